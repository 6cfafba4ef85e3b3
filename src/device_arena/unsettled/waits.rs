//! Which streams are behind which.

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

/// How many pairs of streams are kept. One that is not is taken to be unordered.
const WAITS: usize = 64;

impl Waits {
    /// Whether `stream` is behind all that `user` did up to that era.
    pub(super) fn cover(&self, user: StreamId, stream: StreamId, era: u64) -> bool {
        self.0.iter().any(|wait| {
            wait.user == user && wait.stream.is_none_or(|other| other == stream) && wait.era >= era
        })
    }

    pub(super) fn add(&mut self, wait: Wait) {
        match self.0.iter_mut().find(|known| known.user == wait.user && known.stream == wait.stream) {
            Some(known) => known.era = known.era.max(wait.era),
            None => {
                self.0.truncate(WAITS - 1);
                self.0.push_front(wait);
            }
        }
    }
}
