//! The remaining chunks of a run, and the host's bytes of each.

use crate::data::HostPart;
use crate::error::{BrokerError, Stage};
use std::ops::Range;
use vrampool_backend::Backend;

/// The remaining batch: streams take chunks from its front until none is left, or one failed.
#[derive(Debug)]
pub(crate) struct RemainingChunks<'a, B: Backend> {
    pub(crate) runs: u64,
    next: u64,
    index: u64,
    /// Runs per chunk from now on.
    pub(crate) len: u64,
    /// The number of runs that each stream has memory for; 0 after its memory is released.
    slots: Vec<u64>,
    parts: Vec<HostPart<'a, B>>,
    pub(crate) done_runs: u64,
    pub(crate) done_chunks: u64,
    pub(crate) shrinks: u64,
    /// Whether a chunk failed or panicked, so that no further one begins.
    pub(crate) is_stopped: bool,
    /// The first chunk that failed, and its error.
    failure: Option<(u64, BrokerError)>,
}

/// A chunk that a stream took.
#[derive(Debug)]
pub(crate) struct Piece<'a, B: Backend> {
    pub(crate) index: u64,
    pub(crate) range: Range<u64>,
    /// By array.
    pub(crate) parts: Vec<HostPart<'a, B>>,
}

impl<'a, B: Backend> RemainingChunks<'a, B> {
    /// Creates a course of `slots` streams, each with memory for `len` runs.
    pub(crate) fn new(runs: u64, len: u64, slots: usize, parts: Vec<HostPart<'a, B>>) -> Self {
        Self {
            runs,
            next: 0,
            index: 0,
            len,
            slots: vec![len; slots],
            parts,
            done_runs: 0,
            done_chunks: 0,
            shrinks: 0,
            is_stopped: false,
            failure: None,
        }
    }

    /// Takes the next chunk, of at most `most` runs, or `None` if none is left or the course is stopped.
    pub(crate) fn take(&mut self, most: u64) -> Option<Piece<'a, B>> {
        if self.is_finished() {
            return None;
        }
        let len = most.min(self.len).max(1).min(self.runs - self.next);
        let (index, range) = (self.index, self.next..self.next + len);
        let parts = self.parts.iter_mut().map(|part| part.take(len)).collect();
        self.next = range.end;
        self.index += 1;
        Some(Piece { index, range, parts })
    }

    /// Stops the course after a failed chunk. The error of the earliest failed chunk is kept.
    pub(crate) fn fail(&mut self, chunk: u64, range: Range<u64>, stage: Stage, error: BrokerError) {
        self.is_stopped = true;
        if self.failure.as_ref().is_none_or(|(earlier, _)| chunk < *earlier) {
            let error = BrokerError::Run { chunk, range, stage, source: Box::new(error) };
            self.failure = Some((chunk, error));
        }
    }

    /// Takes the error of the first chunk that failed.
    pub(crate) fn take_failure(&mut self) -> Option<BrokerError> {
        self.failure.take().map(|(_, error)| error)
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.is_stopped || self.next >= self.runs
    }

    /// Returns the number and runs of the next chunk.
    pub(crate) fn upcoming(&self) -> (u64, Range<u64>) {
        (self.index, self.next..self.next.saturating_add(self.len).min(self.runs))
    }

    /// Limits further chunks to `len` runs. Returns whether they were longer before.
    pub(crate) fn shorten(&mut self, len: u64) -> bool {
        let len = len.max(1);
        let is_shorter = len < self.len;
        if is_shorter {
            self.len = len;
            self.shrinks += 1;
        }
        is_shorter
    }

    /// Sets the runs that a stream has memory for; 0: it has left. Returns the number of remaining streams.
    pub(crate) fn set_slot(&mut self, slot: usize, len: u64) -> usize {
        self.slots[slot] = len;
        self.slots.iter().filter(|&&len| len > 0).count()
    }

    /// Returns runs per chunk and streams, if all streams have released their memory beyond that.
    pub(crate) fn fitted(&self) -> Option<(u64, u64)> {
        let is_fitted = self.slots.iter().all(|&len| len <= self.len);
        let streams = self.slots.iter().filter(|&&len| len > 0).count() as u64;
        is_fitted.then_some((self.len, streams))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::Side;
    use crate::request::ChunkLayout;
    use vrampool::host::HostDevice;

    #[test]
    fn chunks_follow_one_another_and_their_bytes_are_theirs() {
        let layout = ChunkLayout { is_cut: true, rows: 2, runs: 10, run_bytes: 1 };
        let mut bytes: Vec<u8> = (0..20).collect();
        let parts = [Side::None, Side::Rows(vec![&mut bytes])].map(|side| HostPart::new(side, layout));
        let mut course = RemainingChunks::<HostDevice>::new(10, 4, 2, parts.into());
        let first = course.take(4).expect("a chunk");
        assert_eq!((first.index, first.range), (0, 0..4));
        assert!(course.shorten(3) && !course.shorten(5));
        let second = course.take(4).expect("a chunk");
        assert_eq!(second.range, 4..7);
        let row = |range| second.parts[1].slice(&range).expect("bytes");
        assert_eq!((row(0..3), row(3..6)), (&[4, 5, 6][..], &[14, 15, 16][..]));
        assert_eq!(course.fitted(), None, "streams have memory for more");
        assert_eq!((course.set_slot(0, 3), course.set_slot(1, 0)), (2, 1));
        assert_eq!(course.fitted(), Some((3, 1)));
        let last = course.take(100).expect("a chunk");
        assert_eq!((last.index, last.range), (2, 7..10));
        assert!(course.take(1).is_none());
        for chunk in [2, 1, 2] {
            course.fail(chunk, 0..1, Stage::Compute, BrokerError::Reentrant);
        }
        assert!(matches!(course.take_failure(), Some(BrokerError::Run { chunk: 1, .. })));
    }
}
