//! Hooks of a pool: called around each request, each driver allocation, and each free.

use crate::{DeviceId, StreamId};
use bitflags::bitflags;
use std::cell::Cell;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Called by a pool it was given to, around what happens there: CuPy's `MemoryHook`. Every method does
/// nothing by default.
///
/// * After each *before* comes its *after*, on the same thread and with the same [id](HookEvent::id), also
///   when what was announced failed ([`HookEvent::outcome`]).
/// * Hooks are called in the order in which the pool was given them, and outside any lock of the pool: they
///   may use it. What a hook does with pools is announced to no hook, neither then nor, for buffers that it
///   asked for, later.
/// * A hook that panics changes nothing: the panic is reported as any other, and ends where the hook was
///   called.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use vrampool_backend::{Hook, HookEvent};
///
/// #[derive(Debug, Default)]
/// struct Largest(AtomicU64);
///
/// impl Hook for Largest {
///     fn name(&self) -> &str {
///         "largest request"
///     }
///
///     fn before_request(&self, event: &HookEvent<'_>) {
///         self.0.fetch_max(event.requested_bytes, Ordering::Relaxed);
///     }
/// }
/// ```
#[doc(alias = "MemoryHook")]
pub trait Hook: fmt::Debug + Send + Sync {
    /// Its name; no two hooks of a pool have the same.
    fn name(&self) -> &str;

    /// The calls that it needs; a pool need not make the others. Default: all.
    fn calls(&self) -> HookCalls {
        HookCalls::all()
    }

    /// A caller asks the pool for memory, wherever that will come from.
    #[doc(alias = "malloc_preprocess")]
    fn before_request(&self, event: &HookEvent<'_>) {
        let _ = event;
    }

    /// The request was served, or failed.
    #[doc(alias = "malloc_postprocess")]
    fn after_request(&self, event: &HookEvent<'_>) {
        let _ = event;
    }

    /// The pool asks the driver for memory, to serve a request. A pool that is out of memory may ask more
    /// than once. A block of an arena is not asked of the driver.
    #[doc(alias = "alloc_preprocess")]
    fn before_allocation(&self, event: &HookEvent<'_>) {
        let _ = event;
    }

    /// The driver gave it, or did not.
    #[doc(alias = "alloc_postprocess")]
    fn after_allocation(&self, event: &HookEvent<'_>) {
        let _ = event;
    }

    /// Memory comes back to the pool.
    #[doc(alias = "free_preprocess")]
    fn before_free(&self, event: &HookEvent<'_>) {
        let _ = event;
    }

    /// Memory came back to the pool.
    #[doc(alias = "free_postprocess")]
    fn after_free(&self, event: &HookEvent<'_>) {
        let _ = event;
    }

    /// The lines of code that hold memory now, most bytes first, where the hook counts them. A pool's report
    /// lists those of its first hook that returns any.
    fn holders(&self) -> Vec<Holder> {
        Vec::new()
    }
}

bitflags! {
    /// Calls of a [`Hook`].
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub struct HookCalls: u8 {
        /// [`Hook::before_request`].
        const BEFORE_REQUEST = 1;
        /// [`Hook::after_request`].
        const AFTER_REQUEST = 1 << 1;
        /// [`Hook::before_allocation`].
        const BEFORE_ALLOCATION = 1 << 2;
        /// [`Hook::after_allocation`].
        const AFTER_ALLOCATION = 1 << 3;
        /// [`Hook::before_free`].
        const BEFORE_FREE = 1 << 4;
        /// [`Hook::after_free`].
        const AFTER_FREE = 1 << 5;
    }
}

/// The memory that one line of code allocated and that is live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The line.
    pub site: &'static Location<'static>,
    /// Live buffers.
    pub buffers: u64,
    /// Their bytes, rounded up.
    pub bytes: u64,
}

impl Holder {
    /// `buffers` of `bytes` in all, allocated at `site`.
    #[must_use]
    pub fn new(site: &'static Location<'static>, buffers: u64, bytes: u64) -> Self {
        Self { site, buffers, bytes }
    }
}

/// The event with which a [`Hook`] is called.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HookEvent<'a> {
    /// The pool's name.
    pub pool: &'a str,
    /// Its device.
    pub device: DeviceId,
    /// Bytes that the request asked for.
    pub requested_bytes: u64,
    /// Bytes they round up to; 2⁶⁴ − 1 when that would be more. After a request, bytes of what serves it.
    pub rounded_bytes: u64,
    /// The memory's address, where the device has addresses and once there is memory. Arenas move blocks: it
    /// is where the block is at this moment.
    pub address: Option<u64>,
    /// The request's. The allocations for it and the free of what it got have the same; no other request of
    /// the process has.
    pub id: u64,
    /// Where the request was made, also when what it got is freed.
    pub site: &'static Location<'static>,
    /// The stream that the request is for; of a free, the one that used the memory last.
    pub stream: StreamId,
    /// How it went.
    pub outcome: Outcome,
    kept: Kept,
}

/// A hook's number for a request, kept until its free. Atomic, because hooks see a shared event.
#[derive(Debug, Default)]
struct Kept {
    /// 0 if no hook keeps anything.
    owner: AtomicU64,
    number: AtomicU64,
}

impl Kept {
    // Relaxed: an event is one thread's at a time.
    #[inline]
    fn load(&self) -> (u64, u64) {
        (self.owner.load(Relaxed), self.number.load(Relaxed))
    }
}

impl From<(u64, u64)> for Kept {
    #[inline]
    fn from((owner, number): (u64, u64)) -> Self {
        Self { owner: owner.into(), number: number.into() }
    }
}

impl Clone for Kept {
    fn clone(&self) -> Self {
        self.load().into()
    }
}

/// How what was announced went.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// It is yet to be done: before.
    Pending,
    /// It was done.
    Done,
    /// It failed, and changed nothing.
    Failed,
}

impl<'a> HookEvent<'a> {
    /// For a pool: what is about to be done.
    #[inline(always)]
    #[must_use]
    pub fn new(
        pool: &'a str,
        device: DeviceId,
        ticket: Ticket,
        requested_bytes: u64,
        rounded_bytes: u64,
        stream: StreamId,
    ) -> Self {
        let Ticket { id, site, kept } = ticket;
        Self {
            pool,
            device,
            requested_bytes,
            rounded_bytes,
            address: None,
            id,
            site,
            stream,
            outcome: Outcome::Pending,
            kept: kept.into(),
        }
    }

    /// Keeps a number with the request until its free, where [`kept`](Self::kept) finds it: for a hook that
    /// knows something of each live block. `owner` is unique in the process and not 0. Returns whether it is
    /// kept; it is not if another owner keeps one. What is kept at an allocation or at a free is lost.
    #[inline]
    pub fn keep(&self, owner: u64, number: u64) -> bool {
        let is_free = [0, owner].contains(&self.kept.owner.load(Relaxed));
        if is_free {
            self.kept.owner.store(owner, Relaxed);
            self.kept.number.store(number, Relaxed);
        }
        is_free
    }

    /// Returns the number that this owner [keeps](Self::keep) with the request; `None` if it keeps none.
    #[inline]
    #[must_use]
    pub fn kept(&self, owner: u64) -> Option<u64> {
        let (kept_by, number) = self.kept.load();
        (kept_by == owner).then_some(number)
    }

    /// For a pool: what it remembers of the request.
    #[inline(always)]
    #[must_use]
    pub fn ticket(&self) -> Ticket {
        Ticket { id: self.id, site: self.site, kept: self.kept.load() }
    }

    /// For a pool: the same, now that it is known how it went.
    #[must_use]
    pub fn with(self, outcome: Outcome) -> Self {
        Self { outcome, ..self }
    }
}

/// A pool's record of a request for which hooks were called, kept until its memory is freed.
#[derive(Debug, Clone, Copy)]
pub struct Ticket {
    id: u64,
    site: &'static Location<'static>,
    /// The owner and the number of what a hook keeps.
    kept: (u64, u64),
}

/// Numbers of requests that a thread reserves at a time.
const RESERVED: u64 = 1 << 12;

impl Ticket {
    /// For a new request, made at `site`.
    #[inline(always)]
    #[must_use]
    pub fn new(site: &'static Location<'static>) -> Self {
        static UNRESERVED: AtomicU64 = AtomicU64::new(1);
        thread_local! {
            static NEXT: Cell<u64> = const { Cell::new(RESERVED) };
        }
        let mut id = NEXT.get();
        if id.is_multiple_of(RESERVED) {
            // Relaxed: only distinctness matters, nothing is published with it.
            id = UNRESERVED.fetch_add(1, Relaxed) * RESERVED;
        }
        NEXT.set(id + 1);
        Self { id, site, kept: (0, 0) }
    }
}

/// For a hook that is looked at elsewhere, too.
impl<H: Hook + ?Sized> Hook for Arc<H> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn calls(&self) -> HookCalls {
        (**self).calls()
    }

    fn before_request(&self, event: &HookEvent<'_>) {
        (**self).before_request(event);
    }

    fn after_request(&self, event: &HookEvent<'_>) {
        (**self).after_request(event);
    }

    fn before_allocation(&self, event: &HookEvent<'_>) {
        (**self).before_allocation(event);
    }

    fn after_allocation(&self, event: &HookEvent<'_>) {
        (**self).after_allocation(event);
    }

    fn before_free(&self, event: &HookEvent<'_>) {
        (**self).before_free(event);
    }

    fn after_free(&self, event: &HookEvent<'_>) {
        (**self).after_free(event);
    }

    fn holders(&self) -> Vec<Holder> {
        (**self).holders()
    }
}
