//! Private pools: memory of work that is captured into a graph, kept for as long as the graph may run.
//!
//! As [`Pool::child`](vrampool::Pool::child), but for several streams, with addresses, and with a filter that
//! says which requests are the graph's.

use crate::failure::Failure;
use crate::in_flight::{InFlight, Unordered};
use crate::streams::Home;
use crate::tags::Tagged;
use crate::torch::filter::Filter;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use vrampool::Buffer;
use vrampool::any::AnyDevice;
use vrampool::backend::StreamId;

/// A graph's number, as PyTorch has it.
pub(crate) type Id = (u64, u64);

/// Private pools of a pool.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    /// Which requests go where, the newest last.
    routes: Mutex<Vec<Route>>,
    private: Mutex<HashMap<Id, Arc<Private>>>,
    in_flight: Mutex<InFlight>,
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

/// A private pool.
#[derive(Debug)]
pub(crate) struct Private {
    pub(crate) id: Id,
    pub(crate) tagged: Arc<Tagged>,
    home: Arc<Home>,
    /// The captures of its pool, while the pool lives.
    captures: Weak<Captures>,
    /// How often it was begun and not released: graphs that share it.
    uses: AtomicUsize,
    /// `None` when it is released.
    kept: Mutex<Option<Kept>>,
    /// Bytes that it has, live or kept.
    bytes: AtomicU64,
    /// Where all other memory is used, its idle memory serves other requests.
    is_used_on_oom: AtomicBool,
}

#[derive(Debug, Default)]
struct Kept {
    /// Free, by class and stream.
    idle: HashMap<(u64, StreamId), Vec<Buffer<AnyDevice>>>,
    /// Free, but used by other streams of the graph, so it serves no other request of the graph.
    aside: Vec<Buffer<AnyDevice>>,
}

/// A live block of a private pool. Dropped, it goes back there.
#[derive(Debug)]
pub(crate) struct Captured {
    /// As long as its class. `None` only while dropping.
    buffer: Option<Buffer<AnyDevice>>,
    home: Arc<Private>,
    pub(crate) stream: StreamId,
    pub(crate) requested: u64,
    /// Another stream used it.
    pub(crate) is_shared: bool,
}

impl Captured {
    pub(crate) fn new(
        home: &Arc<Private>,
        buffer: Buffer<AnyDevice>,
        stream: StreamId,
        requested: u64,
    ) -> Self {
        Self { buffer: Some(buffer), home: Arc::clone(home), stream, requested, is_shared: false }
    }

    pub(crate) fn buffer(&self) -> Option<&Buffer<AnyDevice>> {
        self.buffer.as_ref()
    }

    pub(crate) fn id(&self) -> Id {
        self.home.id
    }

    pub(crate) fn is_of(&self, private: &Arc<Private>) -> bool {
        Arc::ptr_eq(&self.home, private)
    }

    /// Its graphs were released: it is as a block of the pool until it is freed.
    pub(crate) fn is_released(&self) -> bool {
        self.home.kept.lock().is_none()
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        let Some(buffer) = self.buffer.take() else { return };
        let class = buffer.capacity();
        let mut kept = self.home.kept.lock();
        match &mut *kept {
            Some(kept) if self.is_shared => kept.aside.push(buffer),
            Some(kept) => kept.idle.entry((class, self.stream)).or_default().push(buffer),
            None => {
                drop(kept);
                self.home.bytes.fetch_sub(class, Ordering::Relaxed);
                self.home.free_later(buffer);
            }
        }
    }
}

impl Private {
    fn new(id: Id, tagged: Arc<Tagged>, home: &Arc<Home>, captures: &Arc<Captures>) -> Self {
        Self {
            id,
            tagged,
            home: Arc::clone(home),
            captures: Arc::downgrade(captures),
            uses: AtomicUsize::new(0),
            kept: Mutex::new(Some(Kept::default())),
            bytes: AtomicU64::new(0),
            is_used_on_oom: AtomicBool::new(false),
        }
    }

    /// Frees a block of the pool once no work of the device uses it.
    fn free_later(&self, buffer: Buffer<AnyDevice>) {
        match self.captures.upgrade() {
            Some(captures) => captures.in_flight.lock().of_graphs.push(buffer),
            None => {
                self.home.drain().unwrap_or_else(|failure| not_waited_for(1, &failure));
                drop(buffer);
            }
        }
    }

    /// Counts a buffer that was made for it.
    pub(crate) fn count(&self, buffer: &Buffer<AnyDevice>) {
        self.bytes.fetch_add(buffer.capacity(), Ordering::Relaxed);
    }

    pub(crate) fn take_idle(&self, class: u64, stream: StreamId) -> Option<Buffer<AnyDevice>> {
        self.kept.lock().as_mut()?.idle.get_mut(&(class, stream))?.pop()
    }

    /// The idle block at an address, and whether other streams of the graph used it.
    pub(crate) fn take_at(&self, address: u64) -> Option<(Buffer<AnyDevice>, bool)> {
        let mut kept = self.kept.lock();
        let kept = kept.as_mut()?;
        let is_there = |buffer: &Buffer<AnyDevice>| buffer.address() == Some(address);
        let take = |(is_shared, list): (bool, &mut Vec<Buffer<AnyDevice>>)| {
            let place = list.iter().position(is_there)?;
            Some((list.swap_remove(place), is_shared))
        };
        let lists = kept.idle.values_mut().map(|list| (false, list)).chain([(true, &mut kept.aside)]);
        lists.into_iter().find_map(take)
    }

    /// Looks at all that is free.
    pub(crate) fn each_kept(&self, look: impl FnMut(&Buffer<AnyDevice>)) {
        let kept = self.kept.lock();
        kept.iter().flat_map(|kept| kept.idle.values().flatten().chain(&kept.aside)).for_each(look);
    }

    /// Takes what is idle and may serve other requests where memory is short.
    fn take_spare(&self) -> Vec<Buffer<AnyDevice>> {
        // Relaxed: it is set before the memory is short, or the next request sees it.
        if !self.is_used_on_oom.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let spare: Vec<_> = self
            .kept
            .lock()
            .iter_mut()
            .flat_map(|kept| std::mem::take(&mut kept.idle))
            .flat_map(|(_, list)| list)
            .collect();
        self.bytes.fetch_sub(spare.iter().map(Buffer::capacity).sum(), Ordering::Relaxed);
        spare
    }

    /// All that is free; what comes back later goes to the pool.
    fn empty(&self) -> Vec<Buffer<AnyDevice>> {
        let Some(kept) = self.kept.lock().take() else { return Vec::new() };
        let freed: Vec<_> = kept.idle.into_values().flatten().chain(kept.aside).collect();
        self.bytes.fetch_sub(freed.iter().map(Buffer::capacity).sum(), Ordering::Relaxed);
        freed
    }
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
        self: &Arc<Self>,
        id: Id,
        filter: Option<Filter>,
        tagged: Arc<Tagged>,
        home: &Arc<Home>,
    ) {
        // Now, because creating a stream may wait for the device, which invalidates a capture.
        if let Err(failure) = home.aside() {
            log::warn!("no stream for allocations during a capture: {}", failure.text);
        }
        let private = self.create(id, tagged, home);
        let mut routes = self.routes.lock();
        let complete = match routes.is_empty() {
            // The graph may run on any stream: no work of before may use what is idle.
            true => self.drain(home),
            false => InFlight::default(),
        };
        routes.push(Route { id, private, filter: filter.map(Arc::new) });
        // Release: a thread that sees it finds the route.
        ROUTES.fetch_add(1, Ordering::Release);
        drop(routes);
        drop(complete);
    }

    /// The private pool of this number, made if there is none, with one more use.
    pub(crate) fn create(self: &Arc<Self>, id: Id, tagged: Arc<Tagged>, home: &Arc<Home>) -> Arc<Private> {
        let mut known = self.private.lock();
        let private = known.entry(id).or_insert_with(|| Arc::new(Private::new(id, tagged, home, self)));
        // Relaxed, here and where it is released: the lock orders them.
        private.uses.fetch_add(1, Ordering::Relaxed);
        Arc::clone(private)
    }

    pub(crate) fn private(&self, id: Id) -> Option<Arc<Private>> {
        self.private.lock().get(&id).cloned()
    }

    pub(crate) fn all_private(&self) -> Vec<Arc<Private>> {
        self.private.lock().values().cloned().collect()
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

    /// Releases idle memory of private pools that others may use, as [`reclaim`](Self::reclaim) does.
    pub(crate) fn spare(&self, home: &Home) -> u64 {
        for private in self.all_private() {
            self.in_flight.lock().of_graphs.extend(private.take_spare());
        }
        self.reclaim(home)
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
        self.in_flight.lock().of_graphs.extend(private.empty());
        self.reclaim(home);
        true
    }

    pub(crate) fn release_all(&self, home: &Home) {
        let all: Vec<_> = self.private.lock().drain().collect();
        for (_, private) in all {
            self.in_flight.lock().of_graphs.extend(private.empty());
        }
        // Of a pool that ends, also while something is captured: what cannot be waited for is freed in the
        // order of its stream.
        drop(self.drain(home));
        let rest = std::mem::take(&mut *self.in_flight.lock());
        drop(rest);
    }

    /// Keeps a block of no graph until no work on the device can use it.
    pub(crate) fn keep_unordered(&self, buffer: Buffer<AnyDevice>) {
        self.in_flight.lock().unordered.push(buffer);
    }

    /// What is kept so of a pool.
    pub(crate) fn unordered(&self, pool: &str) -> Unordered {
        self.in_flight.lock().unordered_of(pool)
    }

    /// Frees memory of released graphs once the device has completed their work. Returns the number of bytes:
    /// none while something is captured, which a wait for the device would invalidate.
    pub(crate) fn reclaim(&self, home: &Home) -> u64 {
        let complete = {
            // Nothing begins to be captured meanwhile.
            let routes = self.routes.lock();
            if !routes.is_empty() || self.in_flight.lock().is_empty() {
                return 0;
            }
            self.drain(home)
        };
        complete.all().map(Buffer::capacity).sum()
    }

    /// Waits for the device. Returns what is complete then: all or, where it fails, nothing.
    fn drain(&self, home: &Home) -> InFlight {
        let freed = std::mem::take(&mut *self.in_flight.lock());
        match home.drain() {
            Ok(()) => freed,
            Err(failure) => {
                not_waited_for(freed.len(), &failure);
                self.in_flight.lock().add(freed);
                InFlight::default()
            }
        }
    }

    /// Bytes of private pools, and of released ones that are not freed yet.
    pub(crate) fn bytes(&self) -> u64 {
        let private: u64 =
            self.private.lock().values().map(|private| private.bytes.load(Ordering::Relaxed)).sum();
        private + self.in_flight.lock().of_graphs.iter().map(Buffer::capacity).sum::<u64>()
    }
}

impl Drop for Captures {
    fn drop(&mut self) {
        ROUTES.fetch_sub(self.routes.get_mut().len(), Ordering::Release);
    }
}

/// Another program's capture may be active: the next call tries again.
#[cold]
fn not_waited_for(blocks: usize, failure: &Failure) {
    log::warn!("the device was not waited for, {blocks} free blocks stay in flight: {}", failure.text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::pool::CPool;
    use std::time::{Duration, Instant};

    #[test]
    fn routes_of_a_pool_end_with_it() {
        let options = Options::parse("device=host; host_capacity=16MiB; source=direct").expect("good");
        let pool = CPool::new(0, options).expect("a pool");
        pool.begin_private((0, 8), None);
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
