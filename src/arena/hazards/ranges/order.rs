//! The known order between streams: which stream waited for which.

use smallvec::SmallVec;
use std::collections::VecDeque;
use vrampool_backend::StreamId;

/// The latest waits between pairs of streams.
#[derive(Debug, Default)]
pub(super) struct Waits(VecDeque<Wait>);

/// All work of `user` up to the end of `era` precedes `stream`, or, if that is `None`, is complete.
#[derive(Debug)]
pub(super) struct Wait {
    pub(super) user: StreamId,
    pub(super) stream: Option<StreamId>,
    pub(super) era: u64,
}

/// The eras up to which one stream is ordered after others, for repeated queries.
#[derive(Debug)]
pub(crate) struct StreamOrder {
    stream: StreamId,
    others: SmallVec<[(StreamId, u64); 8]>,
}

impl StreamOrder {
    /// Whether the stream is ordered after the work of `user` up to the end of `era`.
    pub(crate) fn covers(&self, user: StreamId, era: u64) -> bool {
        user == self.stream || self.others.iter().any(|(known, reach)| *known == user && *reach >= era)
    }
}

/// Most pairs of streams that are kept. Other pairs count as unordered.
const WAITS: usize = 64;

impl Waits {
    /// Whether `stream` is ordered after the work of `user` up to the end of `era`.
    pub(super) fn cover(&self, user: StreamId, stream: StreamId, era: u64) -> bool {
        self.0.iter().any(|wait| {
            wait.user == user && wait.stream.is_none_or(|other| other == stream) && wait.era >= era
        })
    }

    /// Whether the work of `user` up to the end of `era` is complete.
    pub(super) fn are_done(&self, user: StreamId, era: u64) -> bool {
        self.0.iter().any(|wait| wait.user == user && wait.stream.is_none() && wait.era >= era)
    }

    /// Returns the eras up to which a stream is ordered after others and itself.
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
                    // Completed streams are queried more often than pairs.
                    let oldest = self.0.iter().rposition(|known| known.stream.is_some());
                    self.0.remove(oldest.unwrap_or(WAITS - 1));
                }
                self.0.push_front(wait);
            }
        }
    }
}
