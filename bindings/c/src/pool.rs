//! A pool as C has it: one of vrampool's for each tag, under one limit.

use crate::blocks;
use crate::captured::Captures;
use crate::failure::{Failure, Status, check_no_callback};
use crate::memory::Memory;
use crate::metrics;
use crate::options::{Options, UNLIMITED};
use crate::private::{Captured, Id, Private};
use crate::recording::{Note, Recording};
use crate::scopes;
use crate::streams::{self, Home, Named};
use crate::tags::Tagged;
use crate::torch::filter::Filter;
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use vrampool::any::{AnyDevice, AnyStream};
use vrampool::internal::{self, Numbers};
use vrampool::{Backend, Buffer, Error};
use vrampool_sleep::{DEFAULT_TAG, SleepCounts};

#[derive(Debug)]
pub(crate) struct CPool {
    pub(crate) handle: u64,
    pub(crate) home: Arc<Home>,
    pub(crate) options: Options,
    pub(crate) main: Arc<Tagged>,
    /// All of them, `main` too.
    tags: RwLock<BTreeMap<Box<str>, Arc<Tagged>>>,
    /// One sleep, wake, or change of the limit at a time.
    pub(crate) changing: Mutex<()>,
    pub(crate) sleep_counts: Mutex<SleepCounts>,
    pub(crate) captures: Captures,
    pub(crate) recording: Recording,
}

impl CPool {
    pub(crate) fn new(handle: u64, options: Options) -> Result<Self, Failure> {
        let device = options.open()?;
        let pool = options.builder(&device)?.build()?;
        metrics::add(&pool);
        let main = Arc::new(Tagged::new(DEFAULT_TAG, pool));
        Ok(Self {
            handle,
            home: Arc::new(Home::new(handle, device)),
            options,
            tags: RwLock::new(BTreeMap::from([(Box::from(DEFAULT_TAG), Arc::clone(&main))])),
            main,
            changing: Mutex::new(()),
            sleep_counts: Mutex::default(),
            captures: Captures::default(),
            recording: Recording::default(),
        })
    }

    /// An idle block of this thread if it remembers where one is, or of memory that threads share: what `take` takes,
    /// by C's numbers for pool and stream. This takes no table of pools, no count and, for its own idle blocks, no
    /// lock.
    /// `None` is no failure.
    #[inline(always)]
    pub(crate) fn allocate_hit(
        handle: u64,
        bytes: u64,
        stream: usize,
        take: impl FnOnce(Numbers, u64) -> Option<Buffer<AnyDevice>>,
    ) -> Option<u64> {
        let epoch = streams::epoch();
        let buffer = take(Numbers { pool: handle, stream: stream as u64, epoch }, bytes)?;
        let address = buffer.address()?;
        blocks::insert(address, (handle, stream, epoch), buffer, Note::default()).ok().map(|()| address)
    }

    /// A block, under the tag of this thread's scope.
    #[inline(always)]
    pub(crate) fn allocate(&self, bytes: u64, stream: usize) -> Result<u64, Failure> {
        match scopes::current(self.handle) {
            None => self.allocate_under(&self.main, bytes, stream, true),
            Some(tagged) => self.allocate_under(&tagged, bytes, stream, false),
        }
    }

    /// A block under a tag, whatever this thread's scope is.
    pub(crate) fn allocate_tagged(&self, tag: &str, bytes: u64, stream: usize) -> Result<u64, Failure> {
        match self.tagged(tag) {
            Some(tagged) => self.allocate_under(&tagged, bytes, stream, false),
            None => self.allocate_under(&*self.tagged_or_new(tag)?, bytes, stream, false),
        }
    }

    /// `is_unscoped`: the thread is in no scope, so that later requests like it may be [hits](Self::allocate_hit).
    #[inline(always)]
    fn allocate_under(
        &self,
        tagged: &Tagged,
        bytes: u64,
        raw: usize,
        is_unscoped: bool,
    ) -> Result<u64, Failure> {
        // Before what it depends on is looked at.
        let epoch = streams::epoch();
        let is_plain = is_unscoped && !self.recording.is_active();
        self.home.with_stream(raw, |stream| {
            let named = Named::new(raw, stream, epoch);
            let allocated = tagged.pool.allocate(bytes, stream);
            let buffer = allocated.or_else(|error| self.allocate_again(tagged, bytes, stream, error))?;
            if is_plain {
                let numbers = Numbers { pool: self.handle, stream: raw as u64, epoch };
                internal::know(numbers, bytes, &tagged.pool, named.id);
            }
            let address = buffer.address().ok_or_else(no_address)?;
            self.note(address, named, Memory::Pool(buffer))
        })
    }

    /// A block of idle memory, without a call that may wait; `None` where that takes one, or fails.
    #[inline(always)]
    pub(crate) fn allocate_ready(&self, tag: Option<&str>, bytes: u64, stream: usize) -> Option<u64> {
        match tag {
            Some(tag) => self.allocate_ready_under(&*self.tagged(tag)?, bytes, stream),
            None => match scopes::current(self.handle) {
                None => self.allocate_ready_under(&self.main, bytes, stream),
                Some(tagged) => self.allocate_ready_under(&tagged, bytes, stream),
            },
        }
    }

    #[inline(always)]
    fn allocate_ready_under(&self, tagged: &Tagged, bytes: u64, raw: usize) -> Option<u64> {
        let epoch = streams::epoch();
        let noted = self.home.with_known(raw, |stream| {
            let buffer = internal::allocate_ready(&tagged.pool, bytes, stream)?;
            let address = buffer.address()?;
            Some(self.note(address, Named::new(raw, stream, epoch), Memory::Pool(buffer)))
        });
        noted.flatten()?.ok()
    }

    /// A block of a private pool.
    pub(crate) fn allocate_private(
        &self,
        private: &Arc<Private>,
        bytes: u64,
        raw: usize,
    ) -> Result<u64, Failure> {
        let (own, epoch) = (private.serving(bytes)?, streams::epoch());
        let (buffer, named) = self.home.with_stream(raw, |stream| {
            let buffer = match own.pool.allocate(bytes, stream) {
                Ok(buffer) => buffer,
                Err(Error::Capture { .. }) => self.allocate_for_captured(own, bytes, stream)?,
                Err(error) => self.allocate_again(own, bytes, stream, error)?,
            };
            Ok((buffer, Named::new(raw, stream, epoch)))
        })?;
        let address = buffer.address().unwrap_or(0);
        let captured = Captured { buffer, home: Arc::clone(private) };
        self.note(address, named, Memory::Captured(Box::new(captured)))
    }

    /// A block for a stream that must not be asked for what it takes.
    fn allocate_for_captured(
        &self,
        tagged: &Tagged,
        bytes: u64,
        stream: &AnyStream,
    ) -> Result<Buffer<AnyDevice>, Failure> {
        match self.allocate_aside(tagged, bytes) {
            Err(failure) if failure.status == Status::CAPTURE => {
                // What is free was used by the captured stream and by others: it serves no other stream now, and it
                // can once the host has waited for them.
                tagged.pool.synchronize_freed(stream)?;
                Ok(tagged.pool.allocate(bytes, stream)?)
            }
            aside => {
                let mut buffer = aside?;
                internal::adopt(&mut buffer, stream)?;
                Ok(buffer)
            }
        }
    }

    /// A block for it on a stream that is not captured, whose part in it is over
    /// when this returns. What the graph does with the block later is behind that, whenever it is launched.
    fn allocate_aside(&self, tagged: &Tagged, bytes: u64) -> Result<Buffer<AnyDevice>, Failure> {
        let aside = self.home.aside()?;
        let allocated = tagged.pool.allocate(bytes, aside);
        let buffer = allocated.or_else(|error| self.allocate_again(tagged, bytes, aside, error))?;
        self.home.device.synchronize(aside)?;
        Ok(buffer)
    }

    /// Requests that the filter accepts go to the private pool of this number from now on.
    pub(crate) fn begin_private(&self, id: Id, filter: Option<Filter>) -> Result<(), Failure> {
        let tagged = scopes::current(self.handle).unwrap_or_else(|| Arc::clone(&self.main));
        self.captures.begin(id, filter, tagged, &self.home)
    }

    /// Notes a block where it is found again. Answers its address.
    #[inline(always)]
    pub(crate) fn note(&self, address: u64, stream: Named, memory: Memory) -> Result<u64, Failure> {
        let note = self.recording.note(stream.id, &memory);
        match blocks::insert(address, (self.handle, stream.raw, stream.epoch), memory, note) {
            Ok(()) => Ok(address),
            Err(_) => Err(twice(address)),
        }
    }

    /// Repeats a request that failed after all steps of the pool's ladder, which trims other tags, too. Only memory of
    /// released private pools may still help.
    #[cold]
    #[inline(never)]
    pub(crate) fn allocate_again(
        &self,
        tagged: &Tagged,
        bytes: u64,
        stream: &AnyStream,
        error: Error,
    ) -> Result<Buffer<AnyDevice>, Failure> {
        match error {
            Error::Asleep { requested_bytes, .. } => Err(tagged.asleep(requested_bytes)),
            error if error.is_out_of_memory() && self.captures.spare(&self.home) => {
                Ok(tagged.pool.allocate(bytes, stream)?)
            }
            error => Err(error.into()),
        }
    }

    /// All tags, by name.
    pub(crate) fn tags(&self) -> Vec<Arc<Tagged>> {
        self.tags.read().values().cloned().collect()
    }

    /// All tags, and the private pools of graphs, also released ones that have blocks.
    pub(crate) fn tags_and_graphs(&self) -> Vec<Arc<Tagged>> {
        let mut all = self.tags();
        all.extend(self.captures.all().iter().map(|private| Arc::clone(&private.own)));
        all
    }

    pub(crate) fn tagged(&self, tag: &str) -> Option<Arc<Tagged>> {
        self.tags.read().get(tag).cloned()
    }

    /// The pool of a tag, made if there is none.
    pub(crate) fn tagged_or_new(&self, tag: &str) -> Result<Arc<Tagged>, Failure> {
        if tag.is_empty() {
            return Err(Failure::invalid("tag", "it is empty"));
        }
        if self.main.arena.is_none() {
            return Err(not_virtual());
        }
        if let Some(tagged) = self.tagged(tag) {
            return Ok(tagged);
        }
        let mut tags = self.tags.write();
        if let Some(tagged) = tags.get(tag) {
            return Ok(Arc::clone(tagged));
        }
        let name = format!("{}/{tag}", self.main.pool.name());
        let pool = self.main.pool.child(name).build()?;
        let tagged = Arc::new(Tagged::new(tag, pool));
        tags.insert(tag.into(), Arc::clone(&tagged));
        Ok(tagged)
    }

    /// It was removed: releases what is idle. The rest goes with the last call, scope and block that has
    /// it.
    pub(crate) fn end(&self) {
        self.captures.release_all(&self.home);
        self.main.trim_to(0);
        streams::forget();
    }

    /// [`UNLIMITED`] without one.
    pub(crate) fn limit(&self) -> u64 {
        self.main.pool.limit().unwrap_or(UNLIMITED)
    }

    pub(crate) fn set_limit(&self, bytes: u64) -> Result<(), Failure> {
        check_no_callback()?;
        let _alone = self.changing.lock();
        // Memory of released private pools is no tag's idle memory.
        self.captures.reclaim(&self.home);
        Ok(self.main.pool.set_limit(bytes)?)
    }

    /// Releases idle memory until at most so many bytes are idle in all.
    pub(crate) fn trim(&self, cached_bytes: u64) -> u64 {
        self.captures.reclaim(&self.home).unwrap_or(0) + self.main.trim_to(cached_bytes)
    }
}

#[cold]
pub(crate) fn not_virtual() -> Failure {
    let text = "tags, sleep and wake require virtual memory; create the pool with source=virtual on a device that supports it";
    Failure::new(Status::UNSUPPORTED, text)
}

#[cold]
fn no_address() -> Failure {
    Failure::new(Status::UNSUPPORTED, "memory of this device has no addresses, which the C library requires")
}

#[cold]
fn twice(address: u64) -> Failure {
    Failure::new(Status::INTERNAL, format!("two live blocks begin at {address:#x}; the second was released"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::registry;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    #[test]
    fn a_capture_begins_when_no_work_of_before_uses_what_is_idle() {
        let options = Options::parse("device=host; host_capacity=16MiB; source=direct").expect("good");
        let pool = CPool::new(0, options).expect("a pool");
        let raw = pool.home.create().expect("a stream");
        let AnyStream::Host(stream) = pool.home.find(raw).expect("made") else { panic!("of the host") };
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        // Slow work, so that a caller that does not wait is certainly early.
        let work = move |[]: [&[u8]; 0], []: [&mut [u8]; 0]| {
            std::thread::sleep(Duration::from_millis(50));
            done.store(true, Ordering::Release);
        };
        stream.launch([], [], work).expect("launched");
        pool.begin_private((0, 7), None).expect("a pool");
        assert!(is_done.load(Ordering::Acquire));
        assert!(pool.captures.end((0, 7), &pool.home));
        drop(stream);
        pool.home.destroy(raw).expect("destroyed");
    }

    fn pool(source: &str) -> u64 {
        let options = format!("device=host; host_capacity=16MiB; source={source}");
        let options = Options::parse(&options).expect("good");
        registry::add(|handle| CPool::new(handle, options)).expect("a pool")
    }

    const SMALL: u64 = 100;
    const LARGE: u64 = 2 << 20;

    fn is_hit(handle: u64, size: u64) -> bool {
        let of = Numbers { pool: handle, stream: 0, epoch: streams::epoch() };
        internal::take_known(of, size).or_else(|| internal::take_known_large::<AnyDevice>(of, size)).is_some()
    }

    fn free(handle: u64, address: u64) {
        assert_eq!(crate::vrampool_free(handle, address as *mut _, std::ptr::null_mut()), Status::OK);
    }

    /// Allocates and frees. Returns whether the next request is a hit.
    fn remembers(handle: u64, bytes: u64) -> bool {
        // Another test of the process may let a stream go at any time, and then this is tried again.
        loop {
            let before = streams::epoch();
            free(handle, registry::with(handle, |pool| pool.allocate(bytes, 0)).expect("memory"));
            let was_hit = is_hit(handle, bytes);
            if streams::epoch() == before {
                break was_hit;
            }
        }
    }

    #[test]
    fn what_a_thread_remembers_ends_with_a_recording_and_with_the_pool() {
        let handle = pool("direct");
        for bytes in [SMALL, LARGE] {
            assert!(!is_hit(handle, bytes), "nothing was freed yet");
            assert!(remembers(handle, bytes));
            registry::with(handle, |pool| pool.recording.start(100)).expect("begun");
            assert!(!is_hit(handle, bytes) && !remembers(handle, bytes), "each request is recorded");
            registry::with(handle, |pool| pool.recording.stop(|_| Ok::<_, Failure>(()))).expect("ended");
            assert!(remembers(handle, bytes));
        }
        registry::remove(handle).expect("it is there");
        assert!(!is_hit(handle, SMALL) && !is_hit(handle, LARGE));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn no_request_in_a_scope_is_a_hit_of_the_default_tag() {
        let handle = pool("virtual");
        for bytes in [SMALL, LARGE] {
            // The first request maps memory, and what is idle is recalled.
            assert!(remembers(handle, bytes) || remembers(handle, bytes));
            let other = registry::with(handle, |pool| pool.tagged_or_new("other")).expect("a tag");
            scopes::begin(handle, &other);
            assert!(!is_hit(handle, bytes), "it is the other tag's");
            let by_name = registry::with(handle, |pool| pool.allocate_tagged(DEFAULT_TAG, bytes, 0));
            free(handle, by_name.expect("memory"));
            assert!(!is_hit(handle, bytes) && !remembers(handle, bytes), "the scope is still open");
            scopes::end(handle).expect("it was begun");
            assert!(remembers(handle, bytes));
        }
        registry::remove(handle).expect("it is there");
    }
}
