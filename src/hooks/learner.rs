//! A hook that records request sizes, from which size classes are fitted.

use crate::cache::size_class::fitted::Demand;
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use vrampool_backend::{Hook, HookEvent, Outcome};

/// Keeps the sizes that are asked for, and when they come back: a [`Demand`] to fit size classes to. Of its
/// first requests, so that it may stay with a pool for as long as that lives; each takes some 20 bytes once
/// freed, and as many more until then.
///
/// A pool with a hook is slower by some tens of nanoseconds a hit: learn with one, and have another to work
/// with, as shown in [`fitted`](crate::cache::size_class::fitted). One learner may serve several pools; it
/// learns what they hold together.
///
/// ```
/// use std::sync::Arc;
/// use vrampool::{Backend, Pool, hooks::Learner, host::HostDevice};
/// # fn main() -> Result<(), vrampool::Error> {
/// let device = HostDevice::new();
/// let stream = device.create_stream()?;
/// let learner = Arc::new(Learner::new());
/// let pool = Pool::builder(&device).hook(Arc::clone(&learner)).build()?;
/// drop(pool.allocate(300_000, &stream)?);
/// assert_eq!((learner.demand().requests(), learner.demand().peak_requested()), (1, 300_000));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Learner {
    most_requests: u64,
    learned: Mutex<Learned>,
}

#[derive(Debug, Default)]
struct Learned {
    demand: Demand,
    requests: u64,
    /// The requests that were kept and whose memory is out.
    live: FxHashSet<u64>,
}

impl Learner {
    /// Default number of requests that are kept, 20 to 40 MiB.
    pub const DEFAULT_REQUESTS: u64 = 1 << 20;

    /// Keeps the first [`DEFAULT_REQUESTS`](Self::DEFAULT_REQUESTS).
    #[must_use]
    pub fn new() -> Self {
        Self::with_requests(Self::DEFAULT_REQUESTS)
    }

    /// Keeps so many requests, and the frees of these.
    #[must_use]
    pub fn with_requests(most_requests: u64) -> Self {
        Self { most_requests, learned: Mutex::default() }
    }

    /// Returns the requests so far.
    #[must_use]
    pub fn demand(&self) -> Demand {
        self.learned.lock().demand.clone()
    }

    /// Whether as many requests were kept as are to be.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.learned.lock().requests >= self.most_requests
    }

    /// Forgets everything, and begins anew: where the first requests are not what later ones are like.
    pub fn clear(&self) {
        *self.learned.lock() = Learned::default();
    }
}

impl Default for Learner {
    fn default() -> Self {
        Self::new()
    }
}

impl Hook for Learner {
    fn name(&self) -> &str {
        "learner"
    }

    fn after_request(&self, event: &HookEvent<'_>) {
        if event.outcome != Outcome::Done {
            return;
        }
        let mut learned = self.learned.lock();
        if learned.requests < self.most_requests {
            learned.requests += 1;
            learned.demand.allocate(event.requested_bytes);
            learned.live.insert(event.id);
        }
    }

    // Before: another thread's request may be served by what comes back, and is to be seen later than that.
    fn before_free(&self, event: &HookEvent<'_>) {
        let mut learned = self.learned.lock();
        if learned.live.remove(&event.id) {
            learned.demand.free(event.requested_bytes);
        }
    }
}
