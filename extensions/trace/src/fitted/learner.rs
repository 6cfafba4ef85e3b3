//! A hook that records request sizes, from which size classes are fitted.

use crate::fitted::Demand;
use parking_lot::Mutex;
use rustc_hash::FxHashSet;
use vrampool::hooks::{Hook, HookCalls, HookEvent, Outcome};

/// Records request sizes and frees: a [`Demand`] to fit size classes to. It keeps the first requests only, so
/// that it may stay with a pool; each takes about 20 bytes, and as many more while it is live.
///
/// A pool with a hook is slower by some tens of nanoseconds a hit: learn with one pool and work with another,
/// as shown in [`fitted`](crate::fitted). One learner may serve several pools; it learns what they hold
/// together.
///
/// ```
/// use std::sync::Arc;
/// use vrampool::{Backend, Pool, host::HostDevice};
/// use vrampool_trace::fitted::Learner;
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
    /// The kept requests whose memory is live.
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

    /// Keeps the first `most_requests` requests, and their frees.
    #[must_use]
    pub fn with_requests(most_requests: u64) -> Self {
        Self { most_requests, learned: Mutex::default() }
    }

    /// Returns the requests so far.
    #[must_use]
    pub fn demand(&self) -> Demand {
        self.learned.lock().demand.clone()
    }

    /// Whether it keeps no further requests.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.learned.lock().requests >= self.most_requests
    }

    /// Discards all requests and begins anew, for programs whose first requests differ from later ones.
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

    fn calls(&self) -> HookCalls {
        HookCalls::AFTER_REQUEST | HookCalls::BEFORE_FREE
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

    // Before: a request of another thread may be served by this memory, and is recorded after the free.
    fn before_free(&self, event: &HookEvent<'_>) {
        let mut learned = self.learned.lock();
        if learned.live.remove(&event.id) {
            learned.demand.free(event.requested_bytes);
        }
    }
}
