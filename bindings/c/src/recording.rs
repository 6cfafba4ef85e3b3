//! A pool that is recorded from one moment to another: what it serves meanwhile, and which of that comes
//! back.
//!
//! Recorded here, not by a hook of vrampool's own pools, which have theirs from their beginning or never: so a
//! pool that is in use can be. While it is not, a request asks one word for it, and a free one of its block's.

use crate::failure::{Failure, Status};
use crate::memory::Memory;
use crate::streams;
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool::backend::StreamId;
use vrampool_trace::Recorder;

/// A pool's.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    /// The recording's number, unique in the process; 0 without one.
    present: AtomicU64,
    recorder: ArcSwapOption<Numbered>,
    /// Held by the thread that ends it.
    stopping: Mutex<()>,
}

/// A recorder, and the number of its recording.
#[derive(Debug)]
struct Numbered {
    number: u64,
    recorder: Recorder,
}

/// The most events of one recording: 64 GiB of them.
const MOST_EVENTS: u64 = 1 << 32;

/// Under what a block's free is recorded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Note {
    /// The recording's number; 0 nowhere.
    recording: u64,
    allocation: u64,
}

impl Recording {
    /// Begins, with room for so many events.
    pub(crate) fn start(&self, events: u64) -> Result<(), Failure> {
        if events > MOST_EVENTS {
            let reason = format!("{events} events take 16 bytes each; record at most {MOST_EVENTS}");
            return Err(Failure::invalid("events", &reason));
        }
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: only distinctness matters.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let recorder = Arc::new(Numbered { number, recorder: Recorder::with_events(events) });
        let before = self.recorder.compare_and_swap(&None::<Arc<Numbered>>, Some(recorder));
        if before.is_some() {
            return Err(Failure::new(Status::BUSY, "the pool is recorded already; stop that first"));
        }
        // Relaxed, here and below: the exact first recorded call is unspecified.
        self.present.store(number, Ordering::Relaxed);
        streams::forget_requests();
        Ok(())
    }

    /// Ends once `act` has what it needs of the recorder; where that fails, recording goes on. Calls that are
    /// under way may still be recorded.
    pub(crate) fn stop<T>(&self, act: impl FnOnce(&Recorder) -> Result<T, Failure>) -> Result<T, Failure> {
        let _alone = self.stopping.lock();
        let present = self.recorder.load_full().ok_or_else(not_recorded)?;
        self.present.store(0, Ordering::Relaxed);
        match act(&present.recorder) {
            Ok(kept) => {
                self.recorder.store(None);
                Ok(kept)
            }
            Err(failure) => {
                self.present.store(present.number, Ordering::Relaxed);
                streams::forget_requests();
                Err(failure)
            }
        }
    }

    /// What records it now.
    pub(crate) fn present(&self) -> Result<Recorder, Failure> {
        self.recorder.load().as_ref().map(|present| present.recorder.clone()).ok_or_else(not_recorded)
    }

    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.present.load(Ordering::Relaxed) != 0
    }

    /// The pool serves a block.
    #[inline(always)]
    pub(crate) fn note(&self, stream: StreamId, memory: &Memory) -> Note {
        match self.present.load(Ordering::Relaxed) {
            0 => Note::default(),
            _ => self.note_surely(stream, memory),
        }
    }

    #[inline(never)]
    fn note_surely(&self, stream: StreamId, memory: &Memory) -> Note {
        let present = self.recorder.load();
        let pool = memory.buffer().map_or("", |buffer| buffer.pool_name());
        let allocation = |present: &Arc<Numbered>| match present.recorder.note_allocation(
            memory.requested(),
            stream,
            pool,
        ) {
            0 => None,
            allocation => Some(Note { recording: present.number, allocation }),
        };
        present.as_ref().and_then(allocation).unwrap_or_default()
    }

    /// A block that was allocated for `stream` is freed, if its recording is still the present one.
    #[inline(never)]
    pub(crate) fn freed(&self, note: Note, stream: StreamId) {
        let present = self.recorder.load();
        if let Some(present) = present.as_ref().filter(|present| present.number == note.recording) {
            present.recorder.note_free(note.allocation, stream);
        }
    }
}

impl Note {
    /// Whether the block was recorded.
    #[inline(always)]
    pub(crate) fn is_recorded(self) -> bool {
        self.recording != 0
    }
}

fn not_recorded() -> Failure {
    Failure::new(Status::INVALID_ARGUMENT, "the pool is not recorded; start that first")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recording_whose_end_fails_goes_on() {
        let recording = Recording::default();
        recording.start(100).expect("the first");
        let failure =
            recording.stop(|_| Err::<(), _>(Failure::invalid("trace", "no"))).expect_err("it fails");
        assert_eq!(failure.status, Status::INVALID_ARGUMENT);
        recording.present().expect("it goes on");
        assert_ne!(recording.present.load(Ordering::Relaxed), 0);
        recording.stop(|_| Ok(())).expect("it ends");
        assert!(recording.stop(|_| Ok(())).is_err(), "it ended");
    }

    #[test]
    fn a_recording_that_no_memory_holds_is_refused() {
        for events in [MOST_EVENTS + 1, 1_000_000_000_000, u64::MAX] {
            let failure = Recording::default().start(events).expect_err("too many");
            assert_eq!(failure.status, Status::INVALID_ARGUMENT);
        }
    }
}
