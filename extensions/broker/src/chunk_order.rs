//! The remaining chunks of a run, and the host ranges that each chunk reads and writes.

use crate::error::{BrokerError, Stage};
use crate::request::ChunkLayout;
use parking_lot::Mutex;
use std::ops::Range;

/// Destination bytes of results, by array: a slice for each row.
pub(crate) type Rows<'a> = Vec<Option<(ChunkLayout, Vec<&'a mut [u8]>)>>;

/// The remaining batch: streams take chunks from its front until none is left, or one failed.
#[derive(Debug)]
pub(crate) struct RemainingChunks<'a> {
    state: Mutex<State<'a>>,
}

#[derive(Debug)]
struct State<'a> {
    runs: u64,
    next: u64,
    index: u64,
    /// Runs per chunk from now on.
    len: u64,
    /// The number of runs that each stream has memory for; 0 after its memory is released.
    slots: Vec<u64>,
    rows: Rows<'a>,
    done_runs: u64,
    done_chunks: u64,
    shrinks: u64,
    stopped: bool,
    failure: Option<Failure>,
}

/// The first chunk that failed.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) chunk: u64,
    pub(crate) range: Range<u64>,
    pub(crate) stage: Stage,
    pub(crate) error: BrokerError,
}

/// A chunk that a stream took.
#[derive(Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) index: u64,
    pub(crate) range: Range<u64>,
    /// By array, a slice for each row.
    pub(crate) rows: Vec<Option<Vec<&'a mut [u8]>>>,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Reached {
    pub(crate) runs: u64,
    pub(crate) done_runs: u64,
    pub(crate) done_chunks: u64,
    pub(crate) len: u64,
    pub(crate) shrinks: u64,
}

impl<'a> RemainingChunks<'a> {
    /// Creates a course of `slots` streams, each with memory for `len` runs.
    pub(crate) fn new(runs: u64, len: u64, slots: usize, rows: Rows<'a>) -> Self {
        Self {
            state: Mutex::new(State {
                runs,
                next: 0,
                index: 0,
                len,
                slots: vec![len; slots],
                rows,
                done_runs: 0,
                done_chunks: 0,
                shrinks: 0,
                stopped: false,
                failure: None,
            }),
        }
    }

    /// Takes the next chunk, of at most `most` runs, or `None` if none is left or the course is stopped.
    pub(crate) fn take(&self, most: u64) -> Option<Piece<'a>> {
        let mut state = self.state.lock();
        if state.stopped || state.next >= state.runs {
            return None;
        }
        let len = most.min(state.len).max(1).min(state.runs - state.next);
        let range = state.next..state.next + len;
        let index = state.index;
        let split = |rest: &mut Option<(ChunkLayout, Vec<&'a mut [u8]>)>| {
            let (layout, rows) = rest.as_mut()?;
            let bytes = usize::try_from(layout.row_bytes(len)).unwrap_or(usize::MAX);
            let front = |row: &mut &'a mut [u8]| {
                let all = std::mem::take(row);
                let (front, rest) = all.split_at_mut(bytes.min(all.len()));
                *row = rest;
                front
            };
            Some(rows.iter_mut().map(front).collect())
        };
        let rows = state.rows.iter_mut().map(split).collect();
        state.next = range.end;
        state.index += 1;
        Some(Piece { index, range, rows })
    }

    /// Counts a completed chunk.
    pub(crate) fn done(&self, runs: u64) -> Reached {
        let mut state = self.state.lock();
        state.done_runs += runs;
        state.done_chunks += 1;
        reached(&state)
    }

    /// Stops the course after a failed chunk. The error of the earliest failed chunk is kept.
    pub(crate) fn fail(&self, failure: Failure) {
        let mut state = self.state.lock();
        state.stopped = true;
        if state.failure.as_ref().is_none_or(|earlier| failure.chunk < earlier.chunk) {
            state.failure = Some(failure);
        }
    }

    /// Stops the course: no further chunks are begun.
    pub(crate) fn stop(&self) {
        self.state.lock().stopped = true;
    }

    /// Whether a chunk failed or panicked.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().stopped
    }

    pub(crate) fn is_finished(&self) -> bool {
        let state = self.state.lock();
        state.stopped || state.next >= state.runs
    }

    /// Returns the number and runs of the next chunk.
    pub(crate) fn upcoming(&self) -> (u64, Range<u64>) {
        let state = self.state.lock();
        (state.index, state.next..state.next.saturating_add(state.len).min(state.runs))
    }

    /// Returns the runs per chunk from now on.
    pub(crate) fn len(&self) -> u64 {
        self.state.lock().len
    }

    /// Limits further chunks to `len` runs. Returns whether they were longer before.
    pub(crate) fn shorten(&self, len: u64) -> bool {
        let mut state = self.state.lock();
        let len = len.max(1);
        if len >= state.len {
            return false;
        }
        state.len = len;
        state.shrinks += 1;
        true
    }

    /// Sets the runs that a stream has memory for; 0: it has left. Returns the number of remaining streams.
    pub(crate) fn set_slot(&self, slot: usize, len: u64) -> usize {
        let mut state = self.state.lock();
        state.slots[slot] = len;
        state.slots.iter().filter(|&&len| len > 0).count()
    }

    /// Returns runs per chunk and streams, if all streams have released their memory beyond that.
    pub(crate) fn fitted(&self) -> Option<(u64, u64)> {
        let state = self.state.lock();
        let is_fitted = state.slots.iter().all(|&len| len <= state.len);
        let streams = state.slots.iter().filter(|&&len| len > 0).count() as u64;
        is_fitted.then_some((state.len, streams))
    }

    pub(crate) fn reached(&self) -> Reached {
        reached(&self.state.lock())
    }

    pub(crate) fn take_failure(&self) -> Option<Failure> {
        self.state.lock().failure.take()
    }
}

fn reached(state: &State<'_>) -> Reached {
    Reached {
        runs: state.runs,
        done_runs: state.done_runs,
        done_chunks: state.done_chunks,
        len: state.len,
        shrinks: state.shrinks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_follow_one_another_and_their_bytes_are_theirs() {
        let layout = ChunkLayout { is_cut: true, rows: 2, runs: 10, run_bytes: 1 };
        let mut bytes: Vec<u8> = (0..20).collect();
        let rows = bytes.chunks_mut(10).collect();
        let course = RemainingChunks::new(10, 4, 2, vec![None, Some((layout, rows))]);
        let first = course.take(4).expect("a chunk");
        assert_eq!((first.index, first.range), (0, 0..4));
        assert!(course.shorten(3) && !course.shorten(5));
        let second = course.take(4).expect("a chunk");
        assert_eq!(second.range, 4..7);
        let rows = second.rows[1].as_ref().expect("bytes");
        assert_eq!((&*rows[0], &*rows[1]), (&[4, 5, 6][..], &[14, 15, 16][..]));
        assert_eq!(course.fitted(), None, "streams have memory for more");
        assert_eq!((course.set_slot(0, 3), course.set_slot(1, 0)), (2, 1));
        assert_eq!(course.fitted(), Some((3, 1)));
        let last = course.take(100).expect("a chunk");
        assert_eq!((last.index, last.range), (2, 7..10));
        assert!(course.take(1).is_none());
        let fail = |chunk| {
            let error = BrokerError::Reentrant;
            course.fail(Failure { chunk, range: 0..1, stage: Stage::Compute, error });
        };
        [2, 1, 2].into_iter().for_each(fail);
        assert_eq!(course.take_failure().map(|failure| failure.chunk), Some(1));
    }
}
