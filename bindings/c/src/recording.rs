//! A pool that is recorded from one moment to another: what it serves meanwhile, and which of that comes back.
//!
//! Recorded here, not in vrampool's own pools, which are recorded from their beginning or never: so a pool that is in use can
//! be. While it is not, a request asks one word for it, and a free one of its block's. While it is, a thread that records goes
//! on with the recorder that it used last, and counts no reference to it.

use crate::blocks::{Held, Loan};
use crate::failure::{Failure, Status};
use crate::registry;
use crate::streams::Home;
use arc_swap::ArcSwapOption;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool::Stream;
use vrampool::backend::StreamId;
use vrampool::trace::Recorder;

/// A pool's.
#[derive(Default)]
pub(crate) struct Recording {
    /// The recorder's number; 0 without one.
    present: AtomicU64,
    recorder: ArcSwapOption<Recorder>,
}

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
        let recorder = Recorder::with_events(events);
        let number = recorder.number();
        let before = self.recorder.compare_and_swap(&None::<Arc<Recorder>>, Some(Arc::new(recorder)));
        if before.is_some() {
            return Err(Failure::new(Status::BUSY, "the pool is recorded already; stop that first"));
        }
        // Relaxed, here and below: what is recorded from when is nobody's promise.
        self.present.store(number, Ordering::Relaxed);
        Ok(())
    }

    /// Ends. Calls that are under way may still be recorded.
    pub(crate) fn stop(&self) -> Result<Arc<Recorder>, Failure> {
        self.present.store(0, Ordering::Relaxed);
        self.recorder.swap(None).ok_or_else(not_recorded)
    }

    /// What records it now.
    pub(crate) fn present(&self) -> Result<Arc<Recorder>, Failure> {
        self.recorder.load_full().ok_or_else(not_recorded)
    }

    /// The pool serves a block.
    #[inline(always)]
    pub(crate) fn note(&self, stream: usize, loan: &Loan, home: &Home) -> Note {
        match self.present.load(Ordering::Relaxed) {
            0 => Note::default(),
            recorder => self.note_surely(recorder, stream, loan, home),
        }
    }

    /// With nothing in it that calls and comes back: registers are not for others to save.
    #[inline(never)]
    fn note_surely(&self, recorder: u64, stream: usize, loan: &Loan, home: &Home) -> Note {
        if let Loan::Pool(buffer) = loan
            && let Some(allocation) = Recorder::note_allocation_of(recorder, buffer.len(), buffer.stream_id())
        {
            return Note { recorder, allocation };
        }
        self.note_in_time(stream, loan, home)
    }

    /// As [`note_surely`](Self::note_surely), of a thread that used another recorder last, or where something else is due first.
    #[cold]
    #[inline(never)]
    fn note_in_time(&self, stream: usize, loan: &Loan, home: &Home) -> Note {
        let noted = stream_of(stream, loan, home).ok().and_then(|stream| {
            let recorder = self.recorder.load();
            let recorder = recorder.as_ref()?;
            match recorder.note_allocation(loan.requested(), stream) {
                0 => None,
                allocation => Some(Note { recorder: recorder.number(), allocation }),
            }
        });
        noted.unwrap_or_default()
    }
}

/// The stream that a block is for. Of a private pool, it may have been made on another one.
fn stream_of(stream: usize, loan: &Loan, home: &Home) -> Result<StreamId, Failure> {
    match loan {
        Loan::Pool(buffer) => Ok(buffer.stream_id()),
        _ => home.with_stream(stream, |stream| Ok(stream.id())),
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
                if Recorder::note_free_of(self.recorder, self.allocation, buffer.stream_id()) => {}
            _ => self.freed_in_time(held),
        }
    }

    /// By a thread that used another recorder last, or where something else is due first. Of a pool that is destroyed, or recorded
    /// anew, nobody wants to know.
    #[cold]
    #[inline(never)]
    fn freed_in_time(self, held: &Held) {
        let _ = registry::with(held.pool, |pool| {
            let recorder = pool.recording.recorder.load();
            if let Some(recorder) = recorder.as_ref().filter(|recorder| recorder.number() == self.recorder) {
                recorder.note_free(self.allocation, stream_of(held.stream, &held.loan, &pool.home)?);
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
