//! Private pools: memory of work that is captured into a graph, kept for as long as the graph may run.
//!
//! Each is a private [child](vrampool::Pool::child) of a tag's pool, with a filter that says which requests are the
//! graph's.

use crate::failure::Failure;
use crate::private::{
    Id, InFlight, Private, Unordered, bytes_of_graphs, not_waited_for, release, unordered_of,
};
use crate::streams::Home;
use crate::tags::Tagged;
use crate::torch::filter::Filter;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use vrampool::internal;

/// Private pools of a pool.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    /// Which requests go where, the newest last.
    routes: Mutex<Vec<Route>>,
    private: Mutex<HashMap<Id, Arc<Private>>>,
    /// Also released ones, as long as they have blocks.
    all: Mutex<Vec<Weak<Private>>>,
    in_flight: Mutex<Vec<InFlight>>,
}

/// Number of routes of all pools, which each request of PyTorch reads first.
static ROUTES: AtomicUsize = AtomicUsize::new(0);

/// Whether any pool has a route.
#[inline(always)]
pub(crate) fn are_any_routes() -> bool {
    // Acquire: pairs with the release of the thread that began.
    ROUTES.load(Ordering::Acquire) > 0
}

#[derive(Debug, Clone)]
pub(crate) struct Route {
    id: Id,
    pub(crate) private: Arc<Private>,
    /// Whose requests; `None` for all.
    pub(crate) filter: Option<Arc<Filter>>,
}

impl Captures {
    /// Where requests may have to go, the newest first. Filters are for the caller to ask: nothing of ours is locked
    /// then.
    #[cold]
    pub(crate) fn routes(&self) -> Vec<Route> {
        self.routes.lock().iter().rev().cloned().collect()
    }

    /// Requests that the filter accepts go to the private pool of this number from now on, whose memory is
    /// the tag's.
    pub(crate) fn begin(
        &self,
        id: Id,
        filter: Option<Filter>,
        tagged: Arc<Tagged>,
        home: &Home,
    ) -> Result<(), Failure> {
        // Now, because creating a stream may wait for the device, which invalidates a capture.
        if let Err(failure) = home.aside() {
            log::warn!("no stream for allocations during a capture: {}", failure.text);
        }
        let private = self.create(id, tagged)?;
        let mut routes = self.routes.lock();
        let complete = match routes.is_empty() {
            // The graph may run on any stream: no work of before may use what is idle.
            true => self.drain(home),
            false => Vec::new(),
        };
        routes.push(Route { id, private, filter: filter.map(Arc::new) });
        // Release: a thread that sees it finds the route.
        ROUTES.fetch_add(1, Ordering::Release);
        drop(routes);
        release(complete);
        Ok(())
    }

    /// The private pool of this number, made if there is none, with one more use.
    pub(crate) fn create(&self, id: Id, above: Arc<Tagged>) -> Result<Arc<Private>, Failure> {
        let mut made = None;
        loop {
            let mut known = self.private.lock();
            let found = known.get(&id).cloned().or_else(|| made.take());
            if let Some(private) = found {
                // Relaxed, here and where it is released: the lock orders them.
                private.uses.fetch_add(1, Ordering::Relaxed);
                if let Entry::Vacant(place) = known.entry(id) {
                    place.insert(Arc::clone(&private));
                    let mut all = self.all.lock();
                    all.retain(|of| of.strong_count() > 0);
                    all.push(Arc::downgrade(&private));
                }
                return Ok(private);
            }
            drop(known);
            made = Some(Arc::new(Private::make(id, &above)?));
        }
    }

    pub(crate) fn private(&self, id: Id) -> Option<Arc<Private>> {
        self.private.lock().get(&id).cloned()
    }

    /// All private pools, also released ones that have blocks or wait for the device.
    pub(crate) fn all(&self) -> Vec<Arc<Private>> {
        self.all.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// How often a private pool is used.
    pub(crate) fn uses(&self, id: Id) -> u64 {
        self.private(id).map_or(0, |private| private.uses.load(Ordering::Relaxed) as u64)
    }

    /// Sets whether idle memory of a private pool serves other requests where memory is short. Returns whether there is
    /// such a pool.
    pub(crate) fn use_on_oom(&self, id: Id, is_used: bool) -> bool {
        let private = self.private(id);
        private.is_some_and(|private| {
            private.is_used_on_oom.store(is_used, Ordering::Relaxed);
            true
        })
    }

    /// Releases idle memory of private pools that others may use, as [`reclaim`](Self::reclaim) does. Returns whether
    /// a request may find more than before.
    pub(crate) fn spare(&self, home: &Home) -> bool {
        // Relaxed: it is set before the memory is short, or the next request sees it.
        let is_spare = |private: &&Arc<Private>| private.is_used_on_oom.load(Ordering::Relaxed);
        let spare: Vec<_> = self.private.lock().values().filter(is_spare).cloned().collect();
        let mut released = 0;
        if !spare.is_empty() {
            // Nothing begins to be captured meanwhile. A sleep is not waited for, whose callback may begin.
            let routes = self.routes.lock();
            // Graphs may use it, whose launches are not known.
            if !routes.is_empty() || home.drain().is_err() {
                return false;
            }
            let release = || spare.iter().map(|of| internal::release_private(&of.own.pool)).sum();
            released = internal::refuse_while_changing(release);
        }
        self.reclaim(home).is_some() || released > 0
    }

    /// Ends the newest route of this number, if there is one.
    pub(crate) fn end(&self, id: Id, home: &Home) -> bool {
        let ended = {
            let mut routes = self.routes.lock();
            routes.iter().rposition(|route| route.id == id).map(|newest| routes.remove(newest))
        };
        if ended.is_some() {
            ROUTES.fetch_sub(1, Ordering::Release);
            self.reclaim(home);
        }
        ended.is_some()
    }

    /// Releases a graph of this number; with the last of them, what they share. Returns whether there was one.
    pub(crate) fn release(&self, id: Id, home: &Home) -> bool {
        let mut known = self.private.lock();
        let Entry::Occupied(private) = known.entry(id) else { return false };
        if private.get().uses.fetch_sub(1, Ordering::Relaxed) > 1 {
            return true;
        }
        let private = private.remove();
        drop(known);
        self.keep_released(private);
        self.reclaim(home);
        true
    }

    pub(crate) fn release_all(&self, home: &Home) {
        let all: Vec<_> = self.private.lock().drain().collect();
        all.into_iter().for_each(|(_, private)| self.keep_released(private));
        // Of a pool that ends, also while something is captured: what cannot be waited for is freed in the
        // order of its stream.
        release(self.drain(home));
        let rest = mem::take(&mut *self.in_flight.lock());
        release(rest);
    }

    fn keep_released(&self, private: Arc<Private>) {
        private.is_released.store(true, Ordering::Release);
        self.keep(InFlight::Pool(private));
    }

    /// Keeps freed memory until no work on the device can use it.
    pub(crate) fn keep(&self, freed: InFlight) {
        self.in_flight.lock().push(freed);
    }

    /// Blocks of no graph that are kept so, of a pool.
    pub(crate) fn unordered(&self, pool: &str) -> Unordered {
        unordered_of(&self.in_flight.lock(), pool)
    }

    /// Frees memory of released graphs once the device has completed their work. Returns the bytes that they released;
    /// `None` if nothing was freed, as while something is captured, which a wait for the device would invalidate.
    pub(crate) fn reclaim(&self, home: &Home) -> Option<u64> {
        let complete = {
            // Nothing begins to be captured meanwhile.
            let routes = self.routes.lock();
            if !routes.is_empty() || self.in_flight.lock().is_empty() {
                return None;
            }
            self.drain(home)
        };
        (!complete.is_empty()).then(|| release(complete))
    }

    /// Waits for the device. Returns what is complete then: all or, where it fails, nothing.
    fn drain(&self, home: &Home) -> Vec<InFlight> {
        let freed = mem::take(&mut *self.in_flight.lock());
        match home.drain() {
            Ok(()) => freed,
            Err(failure) => {
                not_waited_for(freed.len(), &failure);
                self.in_flight.lock().extend(freed);
                Vec::new()
            }
        }
    }

    /// Bytes of private pools, and of released ones that are not freed yet.
    pub(crate) fn bytes(&self) -> u64 {
        let all: Vec<_> = self.private.lock().values().cloned().collect();
        let private: u64 = all.iter().map(|private| private.own.held_bytes()).sum();
        private + bytes_of_graphs(&self.in_flight.lock())
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        ROUTES.fetch_sub(self.routes.get_mut().len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::pool::CPool;
    use std::time::{Duration, Instant};
    use vrampool::Backend;
    use vrampool::any::AnyStream;

    /// It is not the source's, also while device work uses it.
    #[test]
    fn free_memory_of_a_private_pool_is_idle_and_nothing_else() {
        let options = Options::parse("device=host; host_capacity=16MiB; source=virtual").expect("good");
        let pool = CPool::new(0, options).expect("a pool");
        let (main, device) = (Arc::clone(&pool.main), &pool.home.device);
        let private = pool.captures.create((0, 9), main).expect("a pool");
        let (stream, user) = (device.create_stream().expect("a stream"), device.create_stream());
        let Ok(AnyStream::Host(user)) = user else { panic!("of the host") };
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let work = move |[]: [&[u8]; 0], []: [&mut [u8]; 0]| ended.recv().unwrap_or_default();
        user.launch([], [], work).expect("launched");
        let block = private.own.pool.allocate(1 << 20, &stream).expect("memory");
        block.used_on(&user.into()).expect("used");
        drop(block);
        let snapshot = pool.snapshot();
        drop(end);
        let segment = &snapshot["segments"][0];
        assert_eq!(segment["blocks"][0]["state"], "idle", "{snapshot}");
        assert_eq!(segment["pending"], serde_json::json!([]), "{snapshot}");
    }

    #[test]
    fn routes_of_a_pool_end_with_it() {
        let options = Options::parse("device=host; host_capacity=16MiB; source=direct").expect("good");
        let pool = CPool::new(0, options).expect("a pool");
        pool.begin_private((0, 8), None).expect("a pool");
        assert!(are_any_routes());
        drop(pool);
        // Another test of the process may have one for a moment.
        let began = Instant::now();
        while are_any_routes() {
            assert!(began.elapsed() < Duration::from_secs(60), "requests are still asked where they go");
            std::thread::yield_now();
        }
    }
}
