//! Private pools: memory of work that is captured into a graph, kept for as long as the graph may run.
//!
//! As [`GraphMemory`](vrampool::GraphMemory), but for several streams, with addresses, and with a filter that
//! says which requests are the graph's.

use crate::blocks::Loan;
use crate::failure::{Failure, Status};
use crate::pool::{CPool, Tagged, asleep};
use crate::streams::{self, Home, Named};
use crate::tags;
use crate::torch::Filter;
use crate::unsettled::{Unordered, Unsettled};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use vrampool::any::{AnyDevice, AnyStream};
use vrampool::backend::StreamId;
use vrampool::{Backend, Buffer, Error};

/// A graph's number, as PyTorch has it.
pub(crate) type Id = (u64, u64);

/// Private pools of a pool.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    /// How many routes there are: what every request asks first.
    active: AtomicUsize,
    /// Which requests go where, the newest last.
    routes: Mutex<Vec<Route>>,
    private: Mutex<HashMap<Id, Arc<Private>>>,
    unsettled: Mutex<Unsettled>,
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
    tagged: Arc<Tagged>,
    home: Arc<Home>,
    /// Whose it is; gone with the pool.
    captures: Weak<Captures>,
    /// How often it was begun and not released: graphs that share it.
    uses: AtomicUsize,
    /// `None` when it is released.
    kept: Mutex<Option<Kept>>,
    /// Bytes that it has, live or kept.
    bytes: AtomicU64,
}

#[derive(Debug, Default)]
struct Kept {
    /// Free, by class and stream.
    idle: HashMap<(u64, StreamId), Vec<Buffer<AnyDevice>>>,
    /// Free, but other streams of the graph use it: for nobody else in it.
    aside: Vec<Buffer<AnyDevice>>,
}

/// A live block of a private pool. Dropped, it goes back there.
#[derive(Debug)]
pub(crate) struct Captured {
    /// As long as its class. `None` only while dropping.
    buffer: Option<Buffer<AnyDevice>>,
    home: Arc<Private>,
    stream: StreamId,
    pub(crate) requested: u64,
    /// Another stream used it.
    pub(crate) is_shared: bool,
}

impl Captured {
    pub(crate) fn buffer(&self) -> Option<&Buffer<AnyDevice>> {
        self.buffer.as_ref()
    }

    /// Its graphs are gone: it is as a block of the pool until it is freed.
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
                self.home.settle_later(buffer);
            }
        }
    }
}

impl Private {
    fn new(tagged: Arc<Tagged>, home: &Arc<Home>, captures: &Arc<Captures>) -> Self {
        Self {
            tagged,
            home: Arc::clone(home),
            captures: Arc::downgrade(captures),
            uses: AtomicUsize::new(0),
            kept: Mutex::new(Some(Kept::default())),
            bytes: AtomicU64::new(0),
        }
    }

    /// Gives a block to the pool, when it may be.
    fn settle_later(&self, buffer: Buffer<AnyDevice>) {
        match self.captures.upgrade() {
            Some(captures) => captures.unsettled.lock().of_graphs.push(buffer),
            None => {
                self.home.drain().unwrap_or_else(|failure| unsettled(1, &failure));
                drop(buffer);
            }
        }
    }

    fn take_idle(&self, class: u64, stream: StreamId) -> Option<Buffer<AnyDevice>> {
        self.kept.lock().as_mut()?.idle.get_mut(&(class, stream))?.pop()
    }

    /// All that is free; what comes back later goes to the pool.
    fn empty(&self) -> Vec<Buffer<AnyDevice>> {
        let Some(kept) = self.kept.lock().take() else { return Vec::new() };
        let freed: Vec<_> = kept.idle.into_values().flatten().chain(kept.aside).collect();
        self.bytes.fetch_sub(freed.iter().map(Buffer::capacity).sum(), Ordering::Relaxed);
        freed
    }
}

impl CPool {
    /// A block of a private pool.
    pub(crate) fn allocate_private(
        &self,
        private: &Arc<Private>,
        bytes: u64,
        raw: usize,
    ) -> Result<u64, Failure> {
        if private.tagged.is_asleep() {
            return Err(asleep(bytes, &private.tagged.tag));
        }
        let pool = &private.tagged.pool;
        let class = pool.size_classes().round(bytes).unwrap_or(bytes);
        let epoch = streams::epoch();
        let (buffer, named) = self.home.with_stream(raw, |stream| {
            let named = Named::new(raw, stream, epoch);
            if let Some(buffer) = private.take_idle(class, named.id) {
                return Ok((buffer, named));
            }
            let buffer = match pool.allocate(class, stream) {
                Ok(buffer) => buffer,
                Err(Error::Capture { .. }) => self.allocate_for_captured(&private.tagged, class, stream)?,
                Err(error) => self.allocate_again(&private.tagged, class, stream, error)?,
            };
            private.bytes.fetch_add(buffer.capacity(), Ordering::Relaxed);
            Ok((buffer, named))
        })?;
        let address = buffer.address().unwrap_or(0);
        let captured = Captured {
            buffer: Some(buffer),
            home: Arc::clone(private),
            stream: named.id,
            requested: bytes,
            is_shared: false,
        };
        self.note(address, named, Loan::Captured(Box::new(captured)))
    }

    /// A block for a stream that must not be asked for what it takes.
    fn allocate_for_captured(
        &self,
        tagged: &Tagged,
        class: u64,
        stream: &AnyStream,
    ) -> Result<Buffer<AnyDevice>, Failure> {
        match self.allocate_aside(tagged, class) {
            Err(failure) if failure.status == Status::CAPTURE => {
                // What is free was used by the captured stream and by others: nobody else can have it, and it
                // can once the host has waited for them.
                tagged.pool.settle_for(stream)?;
                Ok(tagged.pool.allocate(class, stream)?)
            }
            aside => aside,
        }
    }

    /// A block for it on a stream that is not captured, whose part in it is over
    /// when this returns. What the graph does with the block later is behind that, whenever it is launched.
    fn allocate_aside(&self, tagged: &Tagged, class: u64) -> Result<Buffer<AnyDevice>, Failure> {
        let aside = self.home.aside()?;
        let buffer = match tagged.pool.allocate(class, aside) {
            Ok(buffer) => buffer,
            Err(error) => self.allocate_again(tagged, class, aside, error)?,
        };
        self.home.device.synchronize(aside)?;
        Ok(buffer)
    }

    /// Requests that the filter accepts go to the private pool of this number from now on.
    pub(crate) fn begin_private(&self, id: Id, filter: Option<Filter>) {
        let tagged = tags::current(self.handle).unwrap_or_else(|| Arc::clone(&self.main));
        let captures = &self.captures;
        // Now, for to make a stream may wait for the device, which spoils a capture.
        if let Err(failure) = self.home.aside() {
            log::warn!("no stream for what a captured one must not be asked for: {}", failure.text);
        }
        let make = || Arc::new(Private::new(tagged, &self.home, captures));
        let mut known = captures.private.lock();
        let private = Arc::clone(known.entry(id).or_insert_with(make));
        // Relaxed, here and where it is released: the lock orders them.
        private.uses.fetch_add(1, Ordering::Relaxed);
        drop(known);
        let mut routes = captures.routes.lock();
        let settled = match routes.is_empty() {
            // The graph may run on any stream: no work of before may use what is idle.
            true => captures.drain(&self.home),
            false => Unsettled::default(),
        };
        routes.push(Route { id, private, filter: filter.map(Arc::new) });
        // Release: who sees it finds the route.
        captures.active.fetch_add(1, Ordering::Release);
        drop(routes);
        drop(settled);
    }
}

impl Captures {
    /// Whether requests may have to go anywhere.
    #[inline(always)]
    pub(crate) fn has_routes(&self) -> bool {
        // Acquire: pairs with the release of who began.
        self.active.load(Ordering::Acquire) > 0
    }

    /// Where, the newest first. Filters are for the caller to ask: nothing of ours is locked then.
    #[cold]
    pub(crate) fn routes(&self) -> Vec<Route> {
        self.routes.lock().iter().rev().cloned().collect()
    }

    /// Ends the newest route of this number, if there is one.
    pub(crate) fn end(&self, id: Id, home: &Home) -> bool {
        let ended = {
            let mut routes = self.routes.lock();
            routes.iter().rposition(|route| route.id == id).map(|newest| routes.remove(newest))
        };
        if ended.is_some() {
            self.active.fetch_sub(1, Ordering::Release);
            self.settle(home);
        }
        ended.is_some()
    }

    /// A graph of this number is gone; with the last of them, so is what they share. Answers whether there
    /// was one.
    pub(crate) fn release(&self, id: Id, home: &Home) -> bool {
        let mut known = self.private.lock();
        let Entry::Occupied(private) = known.entry(id) else { return false };
        if private.get().uses.fetch_sub(1, Ordering::Relaxed) > 1 {
            return true;
        }
        let private = private.remove();
        drop(known);
        self.unsettled.lock().of_graphs.extend(private.empty());
        self.settle(home);
        true
    }

    pub(crate) fn release_all(&self, home: &Home) {
        let all: Vec<_> = self.private.lock().drain().collect();
        for (_, private) in all {
            self.unsettled.lock().of_graphs.extend(private.empty());
        }
        // Of a pool that ends, also while something is captured: what cannot be waited for is freed in the
        // order of its stream.
        drop(self.drain(home));
        let rest = std::mem::take(&mut *self.unsettled.lock());
        drop(rest);
    }

    /// Keeps a block of no graph until no work on the device can use it.
    pub(crate) fn settle_unordered(&self, buffer: Buffer<AnyDevice>) {
        self.unsettled.lock().unordered.push(buffer);
    }

    /// What is kept so of a pool.
    pub(crate) fn unordered(&self, pool: &str) -> Unordered {
        self.unsettled.lock().unordered_of(pool)
    }

    /// Gives the pool memory of graphs that are gone, once the device has no work of theirs. Answers how many
    /// bytes: none while something is captured, which a wait for the device would spoil.
    pub(crate) fn settle(&self, home: &Home) -> u64 {
        let settled = {
            // Nothing begins to be captured meanwhile.
            let routes = self.routes.lock();
            if !routes.is_empty() || self.unsettled.lock().is_empty() {
                return 0;
            }
            self.drain(home)
        };
        settled.all().map(Buffer::capacity).sum()
    }

    /// Waits for the device. Answers what is settled by that: all or, where it fails, nothing.
    fn drain(&self, home: &Home) -> Unsettled {
        let gone = std::mem::take(&mut *self.unsettled.lock());
        match home.drain() {
            Ok(()) => gone,
            Err(failure) => {
                unsettled(gone.len(), &failure);
                self.unsettled.lock().add(gone);
                Unsettled::default()
            }
        }
    }

    /// Bytes of private pools, and of released ones that are not given back yet.
    pub(crate) fn bytes(&self) -> u64 {
        let private: u64 =
            self.private.lock().values().map(|private| private.bytes.load(Ordering::Relaxed)).sum();
        private + self.unsettled.lock().of_graphs.iter().map(Buffer::capacity).sum::<u64>()
    }
}

/// Somebody else may capture: another time.
#[cold]
fn unsettled(blocks: usize, failure: &Failure) {
    log::warn!("the device was not waited for, {blocks} free blocks are unsettled: {}", failure.text);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;
    use vrampool::any::AnyStream;

    #[test]
    fn a_capture_begins_when_no_work_of_before_uses_what_is_idle() {
        let options = Options::parse("device=host; host_capacity=16MiB; source=direct").expect("good");
        let pool = CPool::new(0, options).expect("a pool");
        let raw = pool.home.create().expect("a stream");
        let AnyStream::Host(stream) = pool.home.find(raw).expect("made") else { panic!("of the host") };
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        // Slow work, so that who does not wait is sure to be early.
        let work = move |[]: [&[u8]; 0], []: [&mut [u8]; 0]| {
            std::thread::sleep(Duration::from_millis(50));
            done.store(true, Ordering::Release);
        };
        stream.launch([], [], work).expect("launched");
        pool.begin_private((0, 7), None);
        assert!(is_done.load(Ordering::Acquire));
        assert!(pool.captures.end((0, 7), &pool.home));
        drop(stream);
        pool.home.destroy(raw).expect("destroyed");
    }
}
