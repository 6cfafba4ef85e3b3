//! The known order between streams: which of them waited for which.

use smallvec::SmallVec;
use std::collections::VecDeque;
use vrampool_backend::StreamId;

/// Which streams are behind which, of the latest pairs.
#[derive(Debug, Default)]
pub(super) struct Waits(VecDeque<Wait>);

/// `stream`, or where there is none everybody, is behind all that `user` did until that era was over.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) user: StreamId,
    pub(super) stream: Option<StreamId>,
    pub(super) era: u64,
}

/// Until which era was over a stream is behind each other, for more than one question.
#[derive(Debug)]
pub(crate) struct StreamOrder {
    stream: StreamId,
    others: SmallVec<[(StreamId, u64); 8]>,
}

impl StreamOrder {
    /// Whether the stream is behind all that `user` did up to that era.
    pub(crate) fn covers(&self, user: StreamId, era: u64) -> bool {
        user == self.stream || self.others.iter().any(|(known, reach)| *known == user && *reach >= era)
    }
}

/// How many pairs of streams are kept. One that is not is taken to be unordered.
const WAITS: usize = 64;

impl Waits {
    /// Whether `stream` is behind all that `user` did up to that era.
    pub(super) fn cover(&self, user: StreamId, stream: StreamId, era: u64) -> bool {
        self.0.iter().any(|wait| {
            wait.user == user && wait.stream.is_none_or(|other| other == stream) && wait.era >= era
        })
    }

    /// Whether everybody is behind all that `user` did up to that era.
    pub(super) fn are_done(&self, user: StreamId, era: u64) -> bool {
        self.0.iter().any(|wait| wait.user == user && wait.stream.is_none() && wait.era >= era)
    }

    /// How far a stream is behind others, itself among them.
    pub(super) fn reach(&self, stream: StreamId) -> StreamOrder {
        let mut others = SmallVec::<[(StreamId, u64); 8]>::new();
        for wait in self.0.iter().filter(|wait| wait.stream.is_none_or(|other| other == stream)) {
            match others.iter_mut().find(|(user, _)| *user == wait.user) {
                Some((_, era)) => *era = wait.era.max(*era),
                None => others.push((wait.user, wait.era)),
            }
        }
        StreamOrder { stream, others }
    }

    pub(super) fn add(&mut self, wait: Wait) {
        match self.0.iter_mut().find(|known| known.user == wait.user && known.stream == wait.stream) {
            Some(known) => known.era = known.era.max(wait.era),
            None => {
                if self.0.len() == WAITS {
                    // Who is done is asked for more often than who waited for whom.
                    let oldest = self.0.iter().rposition(|known| known.stream.is_some());
                    self.0.remove(oldest.unwrap_or(WAITS - 1));
                }
                self.0.push_front(wait);
            }
        }
    }
}
