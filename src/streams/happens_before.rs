//! The known order between streams: which stream waited for which.

use smallvec::SmallVec;
use std::collections::VecDeque;
use vrampool_backend::StreamId;

/// The latest waits between pairs of streams.
#[derive(Debug, Default)]
pub(crate) struct HappensBefore(VecDeque<Wait>);

/// All work of `user` up to the end of `tick` precedes `stream`, or, if that is `None`, is complete.
#[derive(Debug)]
pub(crate) struct Wait {
    pub(crate) user: StreamId,
    pub(crate) stream: Option<StreamId>,
    pub(crate) tick: u64,
}

/// The ticks up to which one stream is ordered after others, for repeated queries.
#[derive(Debug)]
pub(crate) struct StreamOrder {
    stream: StreamId,
    others: SmallVec<[(StreamId, u64); 8]>,
}

impl StreamOrder {
    /// Whether the stream is ordered after the work of `user` up to the end of `tick`.
    pub(crate) fn covers(&self, user: StreamId, tick: u64) -> bool {
        user == self.stream || self.others.iter().any(|(known, reach)| *known == user && *reach >= tick)
    }
}

/// Most pairs of streams that are kept. Other pairs count as unordered.
const WAITS: usize = 64;

impl HappensBefore {
    /// Whether `stream` is ordered after the work of `user` up to the end of `tick`.
    pub(crate) fn cover(&self, user: StreamId, stream: StreamId, tick: u64) -> bool {
        self.0.iter().any(|wait| {
            wait.user == user && wait.stream.is_none_or(|other| other == stream) && wait.tick >= tick
        })
    }

    /// Whether the work of `user` up to the end of `tick` is complete.
    pub(crate) fn are_done(&self, user: StreamId, tick: u64) -> bool {
        self.0.iter().any(|wait| wait.user == user && wait.stream.is_none() && wait.tick >= tick)
    }

    /// Returns the ticks up to which a stream is ordered after others and itself.
    pub(crate) fn reach(&self, stream: StreamId) -> StreamOrder {
        let mut others = SmallVec::<[(StreamId, u64); 8]>::new();
        for wait in self.0.iter().filter(|wait| wait.stream.is_none_or(|other| other == stream)) {
            match others.iter_mut().find(|(user, _)| *user == wait.user) {
                Some((_, tick)) => *tick = wait.tick.max(*tick),
                None => others.push((wait.user, wait.tick)),
            }
        }
        StreamOrder { stream, others }
    }

    pub(crate) fn add(&mut self, wait: Wait) {
        match self.0.iter_mut().find(|known| known.user == wait.user && known.stream == wait.stream) {
            Some(known) => known.tick = known.tick.max(wait.tick),
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
