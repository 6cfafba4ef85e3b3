//! Driver allocations, and operations on ranges of them.

use super::context::{Context, Current};
use super::memory_pool::RawPool;
use super::queue::{LEGACY_HANDLE, Queue};
use crate::error::{INVALID_VALUE, OUT_OF_MEMORY};
use crate::stream_core::StreamCore;
use cudarc::driver::sys;
use parking_lot::Mutex;
use std::ffi::{c_int, c_uint};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vrampool_backend::spi::Mappings;
use vrampool_backend::{BackendError, arguments};

/// `CU_MEM_ATTACH_GLOBAL`: any stream on any device may use it.
const ATTACH_GLOBAL: c_uint = 1;
/// `CU_MEMHOSTALLOC_PORTABLE`: pinned for every context, not just this one.
const PORTABLE: c_uint = 1;
/// `CU_MEMHOSTALLOC_DEVICEMAP`: mapped into the device's addresses, which one address space does for all.
const DEVICE_MAP: c_uint = 2;

/// Which call made an allocation, and so which one frees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `cuMemAlloc`
    Device,
    /// `cuMemAllocManaged`
    Managed,
    /// `cuMemHostAlloc`
    Pinned {
        /// Whether mapping was asked for by name.
        mapped: bool,
    },
    /// `cuMemAllocAsync`, by other code, or `cuMemAllocFromPoolAsync`.
    Pool,
    /// `cuMemAddressReserve`: addresses, with what is mapped there behind them.
    Reserved,
}

/// Memory of one context. Dropping it waits for the context's work and frees it, or frees it in the order of
/// a stream.
#[derive(Debug)]
pub(crate) struct Allocation {
    address: u64,
    bytes: u64,
    origin: Origin,
    /// The stream in whose order the memory is freed. If it is unset, the host waits.
    order: Option<Arc<StreamCore>>,
    context: Context,
    /// Held while the host reads or writes the bytes, so that two threads of it never do at once.
    host_access: Mutex<()>,
    /// The mappings of a reservation; empty in other memory.
    mappings: Mutex<Mappings<()>>,
    /// Whether it was freed before the drop.
    is_freed: AtomicBool,
}

/// A range of an allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span<'a> {
    allocation: &'a Allocation,
    offset: u64,
    bytes: usize,
}

impl<'a> Span<'a> {
    /// Refuses a range that leaves the allocation, or that the device cannot touch.
    pub(crate) fn new(allocation: &'a Allocation, offset: u64, bytes: u64) -> Result<Self, BackendError> {
        let range = arguments::check_range(offset, bytes, allocation.bytes)?;
        match usize::try_from(bytes) {
            Ok(bytes) if allocation.is_there(&range) => Ok(Self { allocation, offset, bytes }),
            _ => Err(BackendError::invalid(
                "range",
                format!("of {bytes} bytes from {offset} on, some are not mapped, or not accessible"),
            )),
        }
    }

    fn address(self) -> u64 {
        self.allocation.address + self.offset
    }
}

impl Context {
    /// Takes memory from the driver. `bytes` is at least 1.
    pub(crate) fn allocate(&self, bytes: u64, origin: Origin) -> Result<Allocation, BackendError> {
        let Ok(size) = usize::try_from(bytes) else {
            return Err(BackendError::invalid("bytes", "more than an address space has"));
        };
        let current = self.enter()?;
        let relaxed = current.relaxed();
        let mut address = 0;
        let (call, code) = match origin {
            Origin::Device => {
                // SAFETY: a context is current; the call writes one address, which lives here.
                ("cuMemAlloc", unsafe { (self.library.cuMemAlloc_v2)(&raw mut address, size) })
            }
            Origin::Managed => {
                // SAFETY: as above.
                let code = unsafe { (self.library.cuMemAllocManaged)(&raw mut address, size, ATTACH_GLOBAL) };
                ("cuMemAllocManaged", code)
            }
            Origin::Pinned { mapped } => {
                let mut start = std::ptr::null_mut();
                let flags = if mapped { PORTABLE | DEVICE_MAP } else { PORTABLE };
                // SAFETY: a context is current; the call writes one pointer, which lives here.
                let code = unsafe { (self.library.cuMemHostAlloc)(&raw mut start, size, flags) };
                // Host and device share one address space (`CudaDevice` opens no other), so that the device
                // knows the memory by the host's address.
                address = start.expose_provenance() as u64;
                ("cuMemHostAlloc", code)
            }
            Origin::Pool | Origin::Reserved => {
                return Err(BackendError::unsupported("allocating what has calls of its own"));
            }
        };
        drop(relaxed);
        self.allocated(call, code, bytes, &current)?;
        Ok(Allocation::new(self, address, bytes, origin))
    }

    /// Allocates from a pool in the order of `stream`; the free is in the same order. Zero bytes allocate nothing.
    pub(crate) fn allocate_from(
        &self,
        pool: &RawPool,
        bytes: u64,
        stream: &Arc<StreamCore>,
    ) -> Result<Allocation, BackendError> {
        let Ok(size) = usize::try_from(bytes) else {
            return Err(BackendError::invalid("bytes", "more than an address space has"));
        };
        let queue = stream.queue().handle()?;
        let mut address = 0;
        if size > 0 {
            let current = self.enter()?;
            let allocate = self.library.cuMemAllocFromPoolAsync;
            // SAFETY: the pool and the stream are alive and of this context's device (`DriverPool` checked
            // the stream); the call writes one address, which lives here.
            let code = unsafe { allocate(&raw mut address, size, pool.handle(), queue) };
            self.allocated("cuMemAllocFromPoolAsync", code, bytes, &current)?;
        }
        let mut allocation = Allocation::new(self, address, bytes, Origin::Pool);
        allocation.order = Some(Arc::clone(stream));
        Ok(allocation)
    }

    fn allocated(
        &self,
        call: &'static str,
        code: c_int,
        requested: u64,
        current: &Current<'_>,
    ) -> Result<(), BackendError> {
        match code {
            OUT_OF_MEMORY => {
                let free = current.memory_info().ok().map(|(free, _)| free);
                Err(BackendError::out_of_memory(requested, free))
            }
            INVALID_VALUE => {
                Err(BackendError::invalid("bytes", format!("{call} takes no size of {requested} bytes")))
            }
            code => self.library.check(call, code),
        }
    }
}

impl Allocation {
    fn new(context: &Context, address: u64, bytes: u64, origin: Origin) -> Self {
        let (order, context) = (None, context.clone());
        let (host_access, mappings, is_freed) = Default::default();
        Self { address, bytes, origin, order, context, host_access, mappings, is_freed }
    }

    /// # Safety
    /// `address` is the start of at least `bytes` bytes that `cuMemAllocAsync` or `cuMemAlloc` gave in
    /// `context`, or of just so many that `cuMemAddressReserve` gave, as `origin` says, and the caller gives
    /// them away: nothing else frees them.
    pub(super) unsafe fn adopt(context: &Context, address: u64, bytes: u64, origin: Origin) -> Self {
        Self::new(context, address, bytes, origin)
    }

    /// The allocation, of which only the first `bytes` are shown.
    pub(crate) fn shown_as(mut self, bytes: u64) -> Self {
        self.bytes = self.bytes.min(bytes);
        self
    }

    /// Has it freed in the order of `stream`, if it came in the order of one.
    pub(crate) fn free_behind(&mut self, stream: &Arc<StreamCore>) {
        if let Some(order) = &mut self.order {
            *order = Arc::clone(stream);
        }
    }

    /// Frees the memory in the order of its stream. Returns whether it did.
    fn free_in_order(&self) -> bool {
        let Some(stream) = &self.order else { return false };
        // All work of a retired stream is done, so that the order of any other will do: the context's default
        // stream.
        let queue = stream.queue().handle().unwrap_or(LEGACY_HANDLE as sys::CUstream);
        // SAFETY: this value owned the memory, which `cuMemAllocFromPoolAsync` gave; all work on it is on the
        // stream or before it, as the function that set this order requires.
        unsafe { (self.context.library.cuMemFreeAsync)(self.address, queue) == 0 }
    }

    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    pub(crate) fn len(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// The mappings, if it is a reservation.
    pub(crate) fn mappings(&self) -> Option<&Mutex<Mappings<()>>> {
        (self.origin == Origin::Reserved).then_some(&self.mappings)
    }

    /// Whether a range that it has is one that the device can touch.
    fn is_there(&self, range: &Range<u64>) -> bool {
        let is_mapped = || self.mappings().is_none_or(|mappings| mappings.lock().are_accessible(range));
        range.is_empty() || !self.is_freed.load(Ordering::Acquire) && is_mapped()
    }

    /// Where the host may reach the bytes; `None` for the device's own memory.
    fn host_address(&self, offset: u64) -> Option<*mut u8> {
        match self.origin {
            Origin::Pinned { .. } | Origin::Managed => {
                Some(std::ptr::with_exposed_provenance_mut((self.address + offset) as usize))
            }
            Origin::Device | Origin::Pool | Origin::Reserved => None,
        }
    }
}

impl Allocation {
    /// All bytes, of which the caller has the one reference, and which no pending work uses.
    pub(crate) fn bytes_in_place(&mut self) -> Result<&[u8], BackendError> {
        let start = self.host_address(0).ok_or(NOT_MAPPED)?;
        // SAFETY: the driver mapped so many bytes there for the host, zeroed by the system, until the allocation is
        // freed. No other thread of the host reaches them, since `Span` borrows the allocation. No work can be
        // enqueued that uses them while they are borrowed, and work that was enqueued before is complete
        // (`CudaMemory::in_place` waited for it). What code outside this crate does by the address is that code's
        // to order.
        Ok(unsafe { std::slice::from_raw_parts(start, self.bytes as usize) })
    }
}

/// The host reads or writes the memory itself.
const NOT_MAPPED: BackendError = BackendError::unsupported("mapping memory that is not host-visible");

impl Span<'_> {
    /// Writes through the host's own address. The contract leaves the order with device work to the caller.
    pub(crate) fn write(self, bytes: &[u8]) -> Result<(), BackendError> {
        let start = self.allocation.host_address(self.offset).ok_or(NOT_MAPPED)?;
        let _access = self.allocation.host_access.lock();
        let count = self.bytes.min(bytes.len());
        // SAFETY: `Span::new` checked the range, and the allocation it borrows keeps the bytes mapped on the
        // host. `bytes` is ordinary memory, or a mapping that safe code cannot have a reference into, so they
        // do not overlap. No other thread of the host is at the bytes, since all go through the lock; a
        // device that writes them meanwhile is outside the program, and spoils bytes that have no invalid
        // values.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), start, count) };
        Ok(())
    }

    /// Reads through the host's own address.
    pub(crate) fn read(self, bytes: &mut [u8]) -> Result<(), BackendError> {
        let start = self.allocation.host_address(self.offset).ok_or(NOT_MAPPED)?;
        let _access = self.allocation.host_access.lock();
        let count = self.bytes.min(bytes.len());
        // SAFETY: as in `write`, with the roles exchanged. The driver's mapping is initialised: the system
        // zeroed it.
        unsafe { std::ptr::copy_nonoverlapping(start, bytes.as_mut_ptr(), count) };
        Ok(())
    }
}

/// Work on a queue. Memory may be dropped while it is pending: dropping waits for it.
impl Current<'_> {
    /// Copies as many bytes as both have. They must not overlap: the copy would corrupt them, and nothing
    /// else.
    pub(crate) fn copy(&self, queue: &Queue, source: Span<'_>, to: Span<'_>) -> Result<(), BackendError> {
        let bytes = source.bytes.min(to.bytes);
        if bytes == 0 {
            return Ok(());
        }
        let (library, stream) = (self.context.library, queue.handle()?);
        // SAFETY: both ranges lie in allocations (`Span::new` checked them) which are freed only after the
        // context's work is done; the queue keeps its stream alive.
        let code = unsafe { (library.cuMemcpyAsync)(to.address(), source.address(), bytes, stream) };
        library.check("cuMemcpyAsync", code)
    }

    pub(crate) fn fill(&self, queue: &Queue, to: Span<'_>, value: u8) -> Result<(), BackendError> {
        if to.bytes == 0 {
            return Ok(());
        }
        let (library, stream) = (self.context.library, queue.handle()?);
        // SAFETY: as in `copy`.
        let code = unsafe { (library.cuMemsetD8Async)(to.address(), value, to.bytes, stream) };
        library.check("cuMemsetD8Async", code)
    }

    /// Copies from the host and waits until the bytes were read.
    pub(crate) fn upload(&self, queue: &Queue, source: &[u8], to: Span<'_>) -> Result<(), BackendError> {
        self.with_host(queue, source.len().min(to.bytes), || {
            (source.as_ptr().expose_provenance() as u64, to.address())
        })
    }

    /// Copies to the host and waits until the bytes are there.
    pub(crate) fn download(
        &self,
        queue: &Queue,
        source: Span<'_>,
        to: &mut [u8],
    ) -> Result<(), BackendError> {
        let bytes = source.bytes.min(to.len());
        self.with_host(queue, bytes, || (source.address(), to.as_mut_ptr().expose_provenance() as u64))
    }

    /// Copies between borrowed memory of the host and an allocation, and waits. `places` gives the addresses,
    /// source first, of at least `bytes` bytes each, borrowed for as long as this call runs.
    fn with_host(
        &self,
        queue: &Queue,
        bytes: usize,
        places: impl FnOnce() -> (u64, u64),
    ) -> Result<(), BackendError> {
        if bytes == 0 {
            return self.synchronize(queue);
        }
        // A graph would keep the host's address beyond this call.
        if self.is_capturing(queue)? {
            return Err(BackendError::invalid(
                "stream",
                "it is being captured, and a graph cannot keep borrowed memory of the host; copy it before",
            ));
        }
        let (library, stream) = (self.context.library, queue.handle()?);
        let (source, to) = places();
        // SAFETY: the allocation's range was checked by `Span::new` and is freed only after the context's
        // work is done. The host's bytes are borrowed by the caller for this call, which does not return
        // before the copy is done: it waits below, and where waiting fails the context is lost and does no
        // work any more. (Left open: another thread that begins to capture this very stream between the
        // question above and the wait below.) The driver treats pageable and pinned memory of the host
        // differently, and both right when the host waits.
        let code = unsafe { (library.cuMemcpyAsync)(to, source, bytes, stream) };
        library.check("cuMemcpyAsync", code)?;
        self.synchronize(queue)
    }
}

impl Allocation {
    /// Frees the device's own memory before the drop. Returns whether it did: other memory has addresses of the host,
    /// or an order.
    pub(crate) fn free_early(&self) -> bool {
        let is_free = self.origin == Origin::Device && !self.is_freed.swap(true, Ordering::AcqRel);
        if is_free {
            self.free();
        }
        is_free
    }

    /// Frees the memory, once.
    fn free(&self) {
        if self.bytes == 0 {
            return;
        }
        // On a lost device the memory was released with its context.
        let Ok(current) = self.context.enter() else { return };
        if self.free_in_order() {
            return;
        }
        let _relaxed = current.relaxed();
        let library = self.context.library;
        let start = std::ptr::with_exposed_provenance_mut(self.address as usize);
        let _ = match self.origin {
            // Both calls wait for all work of the context before they free, which the tests check.
            //
            // SAFETY: this value owned the memory, which `cuMemAlloc` or `cuMemAllocManaged` gave.
            Origin::Device | Origin::Managed => unsafe { (library.cuMemFree_v2)(self.address) },
            // SAFETY: this value owned the memory, which `cuMemHostAlloc` gave.
            Origin::Pinned { .. } => unsafe { (library.cuMemFreeHost)(start) },
            Origin::Pool => {
                // Here the driver takes for granted that nothing uses the memory, so the wait is ours.
                let _ = current.synchronize_all();
                // SAFETY: this value owned the memory, which `adopt` was given, and no work uses it any more.
                unsafe { (library.cuMemFree_v2)(self.address) }
            }
            Origin::Reserved => return self.unreserve(&current).unwrap_or_default(),
        };
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if !*self.is_freed.get_mut() {
            self.free();
        }
    }
}
