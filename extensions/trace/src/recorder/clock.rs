//! The clock of a recording.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// The staleness of the recorder's clock, in microseconds, above which a thread updates it. This keeps writes
/// to a word that all threads read rare.
const STALE: u64 = 8;

/// The latest time of an event, microseconds: 12 days. Later events get this time.
const LAST: u64 = (1 << 40) - 1;

/// The clock of a recording, and its number: the fields that every event reads. They share no cache line with
/// fields that are written more often.
#[repr(align(128))]
#[derive(Debug)]
pub(super) struct Clock {
    began: Instant,
    /// Microseconds since `began`.
    now: AtomicU64,
    /// Unique among recorders of the process.
    pub(super) number: u64,
}

impl Clock {
    pub(super) fn new(number: u64) -> Self {
        Self { began: Instant::now(), now: AtomicU64::new(0), number }
    }

    #[inline(always)]
    pub(super) fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    pub(super) fn read(&self) {
        let now = u64::try_from(self.began.elapsed().as_micros()).map_or(LAST, |now| now.min(LAST));
        if now >= self.now() + STALE {
            self.now.fetch_max(now, Relaxed);
        }
    }
}
