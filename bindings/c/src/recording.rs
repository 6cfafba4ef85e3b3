//! A pool that is recorded from one moment to another: what it serves meanwhile, and which of that comes back.
//!
//! Recorded here, not in vrampool's own pools, which are recorded from their beginning or never: so a pool that is in use can
//! be. While it is not, a request asks one word for it, and a free one of its block's.

use crate::blocks::{Held, Loan};
use crate::failure::{Failure, Status};
use crate::registry;
use crate::streams::Home;
use arc_swap::ArcSwapOption;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use vrampool::Stream;
use vrampool::trace::Recorder;

/// A pool's.
#[derive(Default)]
pub(crate) struct Recording {
    is_on: AtomicBool,
    session: ArcSwapOption<Session>,
}

#[derive(Debug)]
struct Session {
    /// Of all pools', from 1.
    number: u64,
    recorder: Recorder,
}

/// Under what a block's free is recorded.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Note {
    /// 0 nowhere.
    session: u64,
    allocation: u64,
}

impl Recording {
    /// Begins, with room for so many events.
    pub(crate) fn start(&self, events: u64) -> Result<(), Failure> {
        static SESSIONS: AtomicU64 = AtomicU64::new(1);
        let recorder = Recorder::with_events(events);
        // Relaxed, here and below: only distinctness matters, and what is recorded from when is nobody's promise.
        let session = Arc::new(Session { number: SESSIONS.fetch_add(1, Ordering::Relaxed), recorder });
        let before = self.session.compare_and_swap(&None::<Arc<Session>>, Some(session));
        if before.is_some() {
            return Err(Failure::new(Status::BUSY, "the pool is recorded already; stop that first"));
        }
        self.is_on.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Ends. Calls that are under way may still be recorded.
    pub(crate) fn stop(&self) -> Result<Recorder, Failure> {
        self.is_on.store(false, Ordering::Relaxed);
        self.session.swap(None).map(|session| session.recorder.clone()).ok_or_else(not_recorded)
    }

    /// What records it now.
    pub(crate) fn present(&self) -> Result<Recorder, Failure> {
        self.session.load().as_ref().map(|session| session.recorder.clone()).ok_or_else(not_recorded)
    }

    /// The pool serves a block.
    #[inline(always)]
    pub(crate) fn note(&self, stream: usize, loan: &Loan, home: &Home) -> Note {
        if self.is_on.load(Ordering::Relaxed) {
            self.note_surely(stream, loan, home)
        } else {
            Note::default()
        }
    }

    #[cold]
    #[inline(never)]
    fn note_surely(&self, stream: usize, loan: &Loan, home: &Home) -> Note {
        let session = self.session.load();
        let Some(session) = &*session else { return Note::default() };
        let noted = home.with_stream(stream, |stream| {
            Ok(session.recorder.note_allocation(loan.requested(), stream.id()))
        });
        match noted {
            Ok(allocation @ 1..) => Note { session: session.number, allocation },
            _ => Note::default(),
        }
    }
}

impl Note {
    /// The block comes back.
    #[inline(always)]
    pub(crate) fn freed(self, held: &Held) {
        if self.session != 0 {
            self.freed_surely(held);
        }
    }

    /// Of a pool that is destroyed, or recorded anew, nobody wants to know.
    #[cold]
    #[inline(never)]
    fn freed_surely(self, held: &Held) {
        let _ = registry::with(held.pool, |pool| {
            let session = pool.recording.session.load();
            match &*session {
                Some(session) if session.number == self.session => {
                    let recorder = &session.recorder;
                    pool.home.with_stream(held.stream, |stream| {
                        recorder.note_free(self.allocation, stream.id());
                        Ok(())
                    })
                }
                _ => Ok(()),
            }
        });
    }
}

#[cold]
fn not_recorded() -> Failure {
    Failure::new(Status::INVALID_ARGUMENT, "the pool is not recorded; start that first")
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Recording").field(&self.session.load()).finish()
    }
}
