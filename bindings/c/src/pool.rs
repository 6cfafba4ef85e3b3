//! A pool as C has it: one of vrampool's for each tag, under one limit.

use crate::blocks::{self, Held, Loan};
use crate::captured::Captures;
use crate::failure::{Failure, Status};
use crate::options::{Options, UNLIMITED};
use crate::recording::Recording;
use crate::streams::{self, Home, Named};
use crate::{metrics, tags};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vrampool::any::{AnyDevice, AnyStream};
use vrampool::arena::Allowance;
use vrampool::sleep::DEFAULT_TAG;
use vrampool::sleep::Offload;
use vrampool::{Backend, Buffer, MemoryKind, Pool, Source, internal};

#[derive(Debug)]
pub(crate) struct CPool {
    pub(crate) handle: u64,
    pub(crate) home: Arc<Home>,
    pub(crate) options: Options,
    /// What all tags together may have of physical memory, where that is virtual.
    pub(crate) allowance: Option<Allowance>,
    pub(crate) main: Arc<Tagged>,
    /// All of them, `main` too.
    tags: RwLock<BTreeMap<Box<str>, Arc<Tagged>>>,
    /// One sleep, wake, or change of the limit at a time.
    pub(crate) changing: Mutex<()>,
    pub(crate) captures: Arc<Captures>,
    pub(crate) recording: Recording,
}

/// The pool of a tag.
#[derive(Debug)]
pub(crate) struct Tagged {
    pub(crate) tag: Box<str>,
    pub(crate) pool: Pool<AnyDevice>,
    /// Nothing is allocated then; what is freed is idle until it wakes.
    pub(crate) asleep: AtomicBool,
    /// What its contents became when it last fell asleep.
    pub(crate) offload: Mutex<Offload>,
}

impl Tagged {
    fn new(tag: &str, pool: Pool<AnyDevice>) -> Self {
        Self { tag: tag.into(), pool, asleep: AtomicBool::new(false), offload: Mutex::default() }
    }

    /// Releases its pool's idle memory; a failure is logged.
    pub(crate) fn trim(&self) {
        self.trim_to(0);
    }

    /// Releases idle memory of its pool beyond `idle_bytes`, and returns the released bytes. A failure is
    /// logged.
    fn trim_to(&self, idle_bytes: u64) -> u64 {
        self.pool.trim_to(idle_bytes).unwrap_or_else(|error| {
            log::warn!("tag {}: memory is kept that was to be released: {error}", self.tag);
            0
        })
    }

    pub(crate) fn is_asleep(&self) -> bool {
        // Relaxed: who uses memory while another thread puts it to sleep is wrong whatever it reads here.
        self.asleep.load(Ordering::Relaxed)
    }
}

impl CPool {
    pub(crate) fn new(handle: u64, options: Options) -> Result<Self, Failure> {
        let device = options.open()?;
        let allowance = match options.source_on(&device) {
            Source::Virtual => Some(Allowance::new(allowed(&options, &device)?)),
            _ => None,
        };
        let pool = options.build(&device, options.name.as_deref(), allowance.as_ref())?;
        metrics::add(&pool);
        let main = Arc::new(Tagged::new(DEFAULT_TAG, pool));
        Ok(Self {
            handle,
            home: Arc::new(Home::new(handle, device)),
            options,
            allowance,
            tags: RwLock::new(BTreeMap::from([(Box::from(DEFAULT_TAG), Arc::clone(&main))])),
            main,
            changing: Mutex::new(()),
            captures: Arc::default(),
            recording: Recording::default(),
        })
    }

    /// A block, under the tag of this thread's scope.
    #[inline(always)]
    pub(crate) fn allocate(&self, bytes: u64, stream: usize) -> Result<u64, Failure> {
        match tags::current(self.handle) {
            None => self.allocate_under(&self.main, bytes, stream),
            Some(tagged) => self.allocate_under(&tagged, bytes, stream),
        }
    }

    /// A block under a tag, whatever this thread's scope is.
    pub(crate) fn allocate_tagged(&self, tag: &str, bytes: u64, stream: usize) -> Result<u64, Failure> {
        match self.tagged(tag) {
            Some(tagged) => self.allocate_under(&tagged, bytes, stream),
            None => self.allocate_under(&*self.tagged_or_new(tag)?, bytes, stream),
        }
    }

    #[inline(always)]
    fn allocate_under(&self, tagged: &Tagged, bytes: u64, raw: usize) -> Result<u64, Failure> {
        if tagged.is_asleep() {
            return Err(asleep(bytes, &tagged.tag));
        }
        let epoch = streams::epoch();
        self.home.with_stream(raw, |stream| {
            let buffer = match tagged.pool.allocate(bytes, stream) {
                Ok(buffer) => buffer,
                Err(error) => self.allocate_again(tagged, bytes, stream, error)?,
            };
            let address = buffer.address().ok_or_else(no_address)?;
            self.note(address, Named::new(raw, stream, epoch), Loan::Pool(buffer))
        })
    }

    /// A block of idle memory, without a call that may wait; `None` where that takes one, or fails.
    #[inline(always)]
    pub(crate) fn allocate_ready(&self, tag: Option<&str>, bytes: u64, stream: usize) -> Option<u64> {
        match tag {
            Some(tag) => self.allocate_ready_under(&*self.tagged(tag)?, bytes, stream),
            None => match tags::current(self.handle) {
                None => self.allocate_ready_under(&self.main, bytes, stream),
                Some(tagged) => self.allocate_ready_under(&tagged, bytes, stream),
            },
        }
    }

    #[inline(always)]
    fn allocate_ready_under(&self, tagged: &Tagged, bytes: u64, raw: usize) -> Option<u64> {
        if tagged.is_asleep() {
            return None;
        }
        let epoch = streams::epoch();
        let noted = self.home.with_known(raw, |stream| {
            let buffer = internal::allocate_ready(&tagged.pool, bytes, stream)?;
            let address = buffer.address()?;
            Some(self.note(address, Named::new(raw, stream, epoch), Loan::Pool(buffer)))
        });
        noted.flatten()?.ok()
    }

    /// Notes a block where it is found again. Answers its address.
    #[inline(always)]
    pub(crate) fn note(&self, address: u64, stream: Named, loan: Loan) -> Result<u64, Failure> {
        let note = self.recording.note(stream.id, &loan);
        match blocks::insert(address, || Held::new(self.handle, stream, loan, note)) {
            true => Ok(address),
            false => Err(twice(address)),
        }
    }

    /// The pool has climbed its own ladder. What is left is what other tags and released private pools keep.
    #[cold]
    #[inline(never)]
    pub(crate) fn allocate_again(
        &self,
        tagged: &Tagged,
        bytes: u64,
        stream: &AnyStream,
        error: vrampool::Error,
    ) -> Result<Buffer<AnyDevice>, Failure> {
        if !error.is_out_of_memory() {
            return Err(error.into());
        }
        let freed = self.captures.settle(&self.home) + self.relieve(tagged);
        let error = match freed {
            0 => error,
            _ => match tagged.pool.allocate(bytes, stream) {
                Ok(buffer) => return Ok(buffer),
                Err(error) => error,
            },
        };
        let mut failure = Failure::from(error);
        if let Some(allowance) = &self.allowance
            && let Some(limit) = allowance.limit()
            && allowance.taken().saturating_add(bytes) > limit
        {
            let taken = allowance.taken();
            failure.text +=
                &format!(" (all tags of the pool have {taken} bytes of the {limit} of its limit)");
        }
        Err(failure)
    }

    /// Gives back what tags other than this one do not use. Answers how many bytes.
    fn relieve(&self, but: &Tagged) -> u64 {
        let others = self.tags().into_iter().filter(|tagged| tagged.tag != but.tag && !tagged.is_asleep());
        others
            .map(|tagged| {
                let before = tagged.pool.stats().source.reserved_bytes;
                tagged.trim();
                before.saturating_sub(tagged.pool.stats().source.reserved_bytes)
            })
            .sum()
    }

    /// All tags, by name.
    pub(crate) fn tags(&self) -> Vec<Arc<Tagged>> {
        self.tags.read().values().cloned().collect()
    }

    pub(crate) fn tagged(&self, tag: &str) -> Option<Arc<Tagged>> {
        self.tags.read().get(tag).cloned()
    }

    /// The pool of a tag, made if there is none.
    pub(crate) fn tagged_or_new(&self, tag: &str) -> Result<Arc<Tagged>, Failure> {
        if tag.is_empty() {
            return Err(Failure::invalid("tag", "it has no name"));
        }
        let Some(allowance) = &self.allowance else { return Err(not_virtual()) };
        if let Some(tagged) = self.tagged(tag) {
            return Ok(tagged);
        }
        let mut tags = self.tags.write();
        if let Some(tagged) = tags.get(tag) {
            return Ok(Arc::clone(tagged));
        }
        let name = format!("{}/{tag}", self.main.pool.name());
        let pool = self.options.build(&self.home.device, Some(&name), Some(allowance))?;
        pool.set_limit(self.limit())?;
        let tagged = Arc::new(Tagged::new(tag, pool));
        tags.insert(tag.into(), Arc::clone(&tagged));
        drop(tags);
        metrics::add(&tagged.pool);
        Ok(tagged)
    }

    /// It was taken out: gives back what is idle. The rest goes with the last call, scope and block that has
    /// it.
    pub(crate) fn end(&self) {
        self.captures.release_all(&self.home);
        self.tags().iter().for_each(|tagged| tagged.trim());
        streams::forget();
    }

    /// [`UNLIMITED`] without one.
    pub(crate) fn limit(&self) -> u64 {
        let limit =
            self.allowance.as_ref().map_or_else(|| self.main.pool.limit(), |allowance| allowance.limit());
        limit.unwrap_or(UNLIMITED)
    }

    pub(crate) fn set_limit(&self, bytes: u64) -> Result<(), Failure> {
        let _alone = self.changing.lock();
        let (before, tags) = (self.limit(), self.tags());
        for (changed, tagged) in tags.iter().enumerate() {
            if let Err(error) = tagged.pool.set_limit(bytes) {
                for tagged in &tags[..changed] {
                    // What it had room for before it has room for.
                    if let Err(error) = tagged.pool.set_limit(before) {
                        log::error!("tag {}: its limit of {before} bytes is not back: {error}", tagged.tag);
                    }
                }
                return Err(error.into());
            }
        }
        if let Some(allowance) = &self.allowance {
            allowance.set_limit(bytes);
        }
        if self.allowance.as_ref().is_some_and(|allowance| allowance.taken() > bytes) {
            self.trim(0);
        }
        Ok(())
    }

    /// Gives idle memory back until at most so many bytes are idle in all; of tags by name the last ones keep
    /// theirs.
    pub(crate) fn trim(&self, cached_bytes: u64) -> u64 {
        let mut given_back = self.captures.settle(&self.home);
        let tags = self.tags();
        let mut idle: u64 = tags.iter().map(|tagged| tagged.pool.stats().idle_bytes).sum();
        for tagged in tags.iter().filter(|tagged| !tagged.is_asleep()) {
            let own = tagged.pool.stats().idle_bytes;
            let surplus = idle.saturating_sub(cached_bytes).min(own);
            given_back += tagged.trim_to(own - surplus);
            idle -= surplus;
        }
        given_back
    }
}

/// The limit, if it has room for one piece of memory.
fn allowed(options: &Options, device: &AnyDevice) -> Result<u64, Failure> {
    let limit = options.limit.unwrap_or(UNLIMITED);
    let kind: MemoryKind = device.properties().preferred_placement().into();
    let granularity = device.virtual_memory().map_or(Ok(1), |memory| memory.granularity(kind))?;
    if limit < granularity {
        let reason = format!("the device maps memory in pieces of {granularity} bytes; leave room for one");
        return Err(Failure::configuration("limit", &limit.to_string(), &reason));
    }
    Ok(limit)
}

#[cold]
pub(crate) fn asleep(bytes: u64, tag: &str) -> Failure {
    Failure::new(
        Status::ASLEEP,
        format!("{bytes} bytes are asked for under the tag {tag}, which is asleep; wake it first"),
    )
}

#[cold]
pub(crate) fn not_virtual() -> Failure {
    let text =
        "tags, sleep and wake take virtual memory; make the pool with source=virtual on a device that has it";
    Failure::new(Status::UNSUPPORTED, text)
}

#[cold]
fn no_address() -> Failure {
    Failure::new(Status::UNSUPPORTED, "memory of this device has no addresses, which is what C has of it")
}

#[cold]
fn twice(address: u64) -> Failure {
    Failure::new(
        Status::INTERNAL,
        format!("two live blocks begin at {address:#x}; the second was given back"),
    )
}
