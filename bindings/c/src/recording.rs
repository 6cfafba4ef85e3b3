//! A pool that is recorded from one moment to another: what it serves meanwhile, and which of that comes
//! back.
//!
//! Recorded here, not in vrampool's own pools, which are recorded from their beginning or never: so a pool
//! that is in use can be. While it is not, a request asks one word for it, and a free one of its block's.
//! While it is, a thread that records goes on with the recorder that it used last, and counts no reference to
//! it.

use crate::blocks::{Held, Loan};
use crate::failure::{Failure, Status};
use crate::registry;
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool::backend::StreamId;
use vrampool::internal;
use vrampool::trace::Recorder;

/// A pool's.
#[derive(Default)]
pub(crate) struct Recording {
    /// The recorder's number; 0 without one.
    present: AtomicU64,
    recorder: ArcSwapOption<Recorder>,
    /// Held by who ends it.
    stopping: Mutex<()>,
}

/// The most events of one recording: 64 GiB of them.
const MOST_EVENTS: u64 = 1 << 32;

/// Under what a block's free is recorded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Note {
    /// The recorder's number; 0 nowhere.
    recorder: u64,
    allocation: u64,
}

impl Recording {
    /// Begins, with room for so many events.
    pub(crate) fn start(&self, events: u64) -> Result<(), Failure> {
        if events > MOST_EVENTS {
            let reason = format!("{events} events take 16 bytes each; record at most {MOST_EVENTS}");
            return Err(Failure::invalid("events", &reason));
        }
        let recorder = Recorder::with_events(events);
        let number = internal::recorder_number(&recorder);
        let before = self.recorder.compare_and_swap(&None::<Arc<Recorder>>, Some(Arc::new(recorder)));
        if before.is_some() {
            return Err(Failure::new(Status::BUSY, "the pool is recorded already; stop that first"));
        }
        // Relaxed, here and below: what is recorded from when is nobody's promise.
        self.present.store(number, Ordering::Relaxed);
        Ok(())
    }

    /// Ends once `act` has what it needs of the recorder; where that fails, recording goes on. Calls that are
    /// under way may still be recorded.
    pub(crate) fn stop<T>(&self, act: impl FnOnce(&Recorder) -> Result<T, Failure>) -> Result<T, Failure> {
        let _alone = self.stopping.lock();
        let recorder = self.present()?;
        self.present.store(0, Ordering::Relaxed);
        match act(&recorder) {
            Ok(kept) => {
                self.recorder.store(None);
                Ok(kept)
            }
            Err(failure) => {
                self.present.store(internal::recorder_number(&recorder), Ordering::Relaxed);
                Err(failure)
            }
        }
    }

    /// What records it now.
    pub(crate) fn present(&self) -> Result<Arc<Recorder>, Failure> {
        self.recorder.load_full().ok_or_else(not_recorded)
    }

    /// The pool serves a block.
    #[inline(always)]
    pub(crate) fn note(&self, stream: StreamId, loan: &Loan) -> Note {
        match self.present.load(Ordering::Relaxed) {
            0 => Note::default(),
            recorder => self.note_surely(recorder, stream, loan),
        }
    }

    /// With nothing in it that calls and comes back: registers are not for others to save.
    #[inline(never)]
    fn note_surely(&self, recorder: u64, stream: StreamId, loan: &Loan) -> Note {
        if let Loan::Pool(buffer) = loan
            && let Some(allocation) = internal::note_allocation_of(recorder, buffer.len(), buffer.stream_id())
        {
            return Note { recorder, allocation };
        }
        self.note_in_time(stream, loan)
    }

    /// As [`note_surely`](Self::note_surely), of a thread that used another recorder last, or where something
    /// else is due first.
    #[cold]
    #[inline(never)]
    fn note_in_time(&self, stream: StreamId, loan: &Loan) -> Note {
        let recorder = self.recorder.load();
        let allocation = |recorder: &Arc<Recorder>| match recorder.note_allocation(loan.requested(), stream) {
            0 => None,
            allocation => Some(Note { recorder: internal::recorder_number(recorder), allocation }),
        };
        recorder.as_ref().and_then(allocation).unwrap_or_default()
    }
}

impl Note {
    /// The block comes back.
    #[inline(always)]
    pub(crate) fn freed(self, held: &Held) {
        if self.recorder != 0 {
            self.freed_surely(held);
        }
    }

    /// As [`Recording::note_surely`].
    #[inline(never)]
    fn freed_surely(self, held: &Held) {
        match &held.loan {
            Loan::Pool(buffer)
                if internal::note_free_of(self.recorder, self.allocation, buffer.stream_id()) => {}
            _ => self.freed_in_time(held),
        }
    }

    /// By a thread that used another recorder last, or where something else is due first. Of a pool that is
    /// destroyed, or recorded anew, nobody wants to know.
    #[cold]
    #[inline(never)]
    fn freed_in_time(self, held: &Held) {
        let _ = registry::with(held.pool, |pool| {
            let recorder = pool.recording.recorder.load();
            if let Some(recorder) =
                recorder.as_ref().filter(|recorder| internal::recorder_number(recorder) == self.recorder)
            {
                recorder.note_free(self.allocation, held.stream_id());
            }
            Ok(())
        });
    }
}

#[cold]
fn not_recorded() -> Failure {
    Failure::new(Status::INVALID_ARGUMENT, "the pool is not recorded; start that first")
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Recording").field(&self.recorder.load()).finish()
    }
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
        let recorder = recording.present().expect("it goes on");
        assert_eq!(recording.present.load(Ordering::Relaxed), internal::recorder_number(&recorder));
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
