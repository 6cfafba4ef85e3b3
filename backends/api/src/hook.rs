//! Hooks of a pool: called around each request, each driver allocation, and each free.

use crate::DeviceId;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

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

    /// Somebody asks the pool for memory, wherever that will come from.
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

/// What is announced to a [`Hook`].
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
    /// How it went.
    pub outcome: Outcome,
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
    #[must_use]
    pub fn new(
        pool: &'a str,
        device: DeviceId,
        ticket: Ticket,
        requested_bytes: u64,
        rounded_bytes: u64,
    ) -> Self {
        let Ticket { id, site } = ticket;
        Self {
            pool,
            device,
            requested_bytes,
            rounded_bytes,
            address: None,
            id,
            site,
            outcome: Outcome::Pending,
        }
    }

    /// For a pool: the same, now that it is known how it went.
    #[must_use]
    pub fn with(self, outcome: Outcome) -> Self {
        Self { outcome, ..self }
    }
}

/// What a pool remembers of a request that it announced, for as long as what it got is out.
#[derive(Debug, Clone, Copy)]
pub struct Ticket {
    id: u64,
    site: &'static Location<'static>,
}

impl Ticket {
    /// For a new request, made at `site`.
    #[must_use]
    pub fn new(site: &'static Location<'static>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: only distinctness matters, nothing is published with it.
        Self { id: NEXT.fetch_add(1, Ordering::Relaxed), site }
    }
}

/// For a hook that is looked at elsewhere, too.
impl<H: Hook + ?Sized> Hook for Arc<H> {
    fn name(&self) -> &str {
        (**self).name()
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
