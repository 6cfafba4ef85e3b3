//! Driver allocations, and ranges of them.

use super::context::{Context, RawEvent, handles_of};
use super::device::{info, number};
use super::handle::Handle;
use super::host_side::HostSide;
use crate::error::{OUT_OF_RESOURCES, check_allocation, lost};
use opencl_sys as cl;
use parking_lot::{Mutex, ReentrantMutexGuard};
use std::ffi::c_void;
use vrampool_backend::spi::Grant;
use vrampool_backend::{BackendError, arguments, fork};

/// The access of kernels to a buffer.
pub(crate) const KERNEL: cl::cl_mem_flags =
    cl::CL_MEM_READ_WRITE | cl::CL_MEM_READ_ONLY | cl::CL_MEM_WRITE_ONLY;

/// How memory is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `clCreateBuffer`
    Buffer {
        flags: cl::cl_mem_flags,
        /// Whether the driver is to get the memory now: many do at a buffer's first use, where nothing expects
        /// a failure.
        now: bool,
    },
    /// `clCreateBuffer` with memory of the host, which stays mapped until a kernel is to use it.
    Pinned { flags: cl::cl_mem_flags },
    /// `clSVMAlloc`, and a buffer that has that for its storage.
    Shared { flags: cl::cl_svm_mem_flags, fine: bool },
}

/// Memory of one context. Dropping it frees it: a buffer when the work that uses it is done, as the driver
/// sees to; memory whose address is in the driver's hands (pinned and shared) at once, so the code that drops it
/// knows that no work uses it.
#[derive(Debug)]
pub(crate) struct Allocation {
    buffer: Handle,
    bytes: u64,
    /// The host's and the device's address of shared memory.
    shared: Option<SvmPointer>,
    /// Held while the host reads or writes the bytes, so that two threads of it never do at once.
    pub(super) host_side: Mutex<HostSide>,
    pub(super) context: Context,
    _grant: Grant,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct SvmPointer {
    pub(super) address: Handle,
    /// Whether host and device may use it without mapping.
    pub(super) fine: bool,
}

/// A range of an allocation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span<'a> {
    pub(super) allocation: &'a Allocation,
    pub(super) offset: usize,
    pub(super) bytes: usize,
}

impl<'a> Span<'a> {
    /// Refuses a range that leaves the allocation.
    pub(crate) fn new(allocation: &'a Allocation, offset: u64, bytes: u64) -> Result<Self, BackendError> {
        arguments::check_range(offset, bytes, allocation.bytes)?;
        match (usize::try_from(offset), usize::try_from(bytes)) {
            (Ok(offset), Ok(bytes)) => Ok(Self { allocation, offset, bytes }),
            _ => Err(BackendError::invalid("range", "more than an address space has")),
        }
    }

    /// Its address, where host and device share it.
    pub(super) fn shared(self) -> Option<*mut c_void> {
        let shared = self.allocation.shared?;
        Some(shared.address.raw().wrapping_byte_add(self.offset))
    }

    pub(super) fn buffer(self) -> cl::cl_mem {
        self.allocation.buffer.raw()
    }
}

impl Context {
    /// Takes memory from the driver. `bytes` is at least 1; `free` is what an error says is left.
    pub(crate) fn allocate(
        &self,
        bytes: u64,
        origin: Origin,
        grant: Grant,
        free: Option<u64>,
    ) -> Result<Allocation, BackendError> {
        let Ok(size) = usize::try_from(bytes) else {
            return Err(BackendError::invalid("bytes", "more than an address space has"));
        };
        let answer = |call, code| match code {
            // Out of memory, or the result of a broken context.
            OUT_OF_RESOURCES if self.is_broken() => self.judged(Err(lost(call, code))),
            code => self.judged(check_allocation(call, code, bytes, free)),
        };
        let (flags, shared) = match origin {
            Origin::Buffer { flags, .. } | Origin::Pinned { flags } => (flags, None),
            Origin::Shared { flags, fine } => {
                let address =
                    self.allocate_shared(size, flags).ok_or(BackendError::out_of_memory(bytes, free))?;
                (flags & KERNEL | cl::CL_MEM_USE_HOST_PTR, Some(SvmPointer { address, fine }))
            }
        };
        let (mut code, storage) = (0, shared.map_or(std::ptr::null_mut(), |shared| shared.address.raw()));
        let turn = self.turn();
        // SAFETY: the context is alive; `storage` is null, or as many bytes of this context's as the buffer
        // is to have, which are freed behind it; the call writes one number to `code`.
        let buffer = unsafe {
            (self.library().core.clCreateBuffer)(self.handle().raw(), flags, size, storage, &raw mut code)
        };
        drop(turn);
        if let Err(error) = answer("clCreateBuffer", code) {
            if let Some(shared) = shared {
                self.free_shared(shared.address);
            }
            return Err(error);
        }
        let host_side = Mutex::new(HostSide::Unmapped);
        let buffer = Handle::of(buffer);
        let allocation =
            Allocation { buffer, bytes, shared, host_side, context: self.clone(), _grant: grant };
        match origin {
            Origin::Buffer { now: true, .. } => answer("clEnqueueMigrateMemObjects", allocation.realise())?,
            Origin::Pinned { .. } => allocation.keep_mapped(|code| answer("clEnqueueMapBuffer", code))?,
            _ => {}
        }
        Ok(allocation)
    }

    fn allocate_shared(&self, size: usize, flags: cl::cl_svm_mem_flags) -> Option<Handle> {
        let library = self.library().shared.as_ref()?;
        let _turn = self.turn();
        // SAFETY: the context is alive, and its device has shared memory, as the caller checked.
        let address = unsafe { (library.clSVMAlloc)(self.handle().raw(), flags, size, 0) };
        (!address.is_null()).then(|| Handle::of(address))
    }

    fn free_shared(&self, address: Handle) {
        if let Some(library) = &self.library().shared {
            let _turn = self.turn();
            // SAFETY: `allocate_shared` gave it, its one owner gives it up, and no work uses it.
            unsafe { (library.clSVMFree)(self.handle().raw(), address.raw()) };
        }
    }
}

impl Allocation {
    pub(crate) fn len(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn buffer(&self) -> Handle {
        self.buffer
    }

    pub(super) fn shared(&self) -> Option<SvmPointer> {
        self.shared
    }

    pub(crate) fn shared_address(&self) -> Option<u64> {
        self.shared.map(|shared| shared.address.number())
    }

    /// Whether the driver keeps no count of it for queued work, because it knows an address alone.
    pub(crate) fn is_known_by_address(&self) -> bool {
        self.shared.is_some() || self.host_side.lock().is_or_was_mapped()
    }

    /// Returns the flags that the driver reports for the buffer.
    pub(crate) fn flags(&self) -> Result<cl::cl_mem_flags, BackendError> {
        let turn = self.context.turn();
        let bytes = info("clGetMemObjectInfo", |size, place, written| {
            // SAFETY: the buffer is alive; the call writes at most `size` bytes to `place`, and one number to
            // `written`.
            unsafe {
                (self.context.library().core.clGetMemObjectInfo)(
                    self.buffer.raw(),
                    cl::CL_MEM_FLAGS,
                    size,
                    place,
                    written,
                )
            }
        });
        drop(turn);
        self.context.judged(bytes).map(|bytes| number(&bytes))
    }

    /// Maps all of it, and keeps it mapped.
    pub(super) fn keep_mapped(
        &self,
        answer: impl FnOnce(cl::cl_int) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let mut side = self.host_side.lock();
        let flags = cl::CL_MAP_READ | cl::CL_MAP_WRITE;
        let (address, code) = self.map(flags, 0, self.len() as usize);
        answer(code)?;
        *side = HostSide::Mapped(address);
        Ok(())
    }

    pub(super) fn map(&self, flags: cl::cl_map_flags, offset: usize, bytes: usize) -> (Handle, cl::cl_int) {
        let (queue, none) = (self.context.transfer(), std::ptr::null());
        let (mut code, mut event) = (0, std::ptr::null_mut());
        let turn = self.context.turn();
        // SAFETY: the queue and the buffer are alive and of one context; the call writes one number to `code`,
        // and one handle to `event`, which says when the bytes are there.
        let address = unsafe {
            (self.context.library().core.clEnqueueMapBuffer)(
                queue.handle().raw(),
                self.buffer().raw(),
                0,
                flags,
                offset,
                bytes,
                0,
                none,
                &raw mut event,
                &raw mut code,
            )
        };
        (Handle::of(address), self.outcome(turn, code, event))
    }

    pub(super) fn unmap(&self, address: Handle, after: &[&RawEvent]) -> Result<RawEvent, BackendError> {
        let list = handles_of(after);
        let (queue, place) = match after.is_empty() {
            true => (self.context.transfer(), std::ptr::null()),
            false => (self.context.endings(), list.as_ptr()),
        };
        let unmap = self.context.library().core.clEnqueueUnmapMemObject;
        self.context.enqueue_for_event("clEnqueueUnmapMemObject", queue, |queue, event| {
            // SAFETY: `map` gave the address for this buffer, and it is unmapped this once; the events are
            // alive.
            unsafe { unmap(queue, self.buffer().raw(), address.raw(), list.len() as u32, place, event) }
        })
    }

    /// When nothing has the memory any more.
    pub(super) fn unmap_at_the_end(&mut self) {
        let side = std::mem::replace(self.host_side.get_mut(), HostSide::Unmapped);
        if let HostSide::Mapped(address) = side {
            // Where it fails the device is lost, and with it the mapping.
            let _ = self.unmap(address, &[]);
        }
    }

    /// Makes the driver allocate the memory now, and returns its result.
    fn realise(&self) -> cl::cl_int {
        let (list, flags) = ([self.buffer.raw()], cl::CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED);
        let (queue, none) = (self.context.transfer(), std::ptr::null());
        let mut event = std::ptr::null_mut();
        let migrate = self.context.library().core.clEnqueueMigrateMemObjects;
        let turn = self.context.turn();
        // SAFETY: queue and buffer are alive and of one context; the call writes one handle to `event`.
        let code = unsafe { migrate(queue.handle().raw(), 1, list.as_ptr(), flags, 0, none, &raw mut event) };
        self.outcome(turn, code, event)
    }

    /// Waits for work on the queue of transfers that was enqueued in this `turn`, with the answer `code`. Returns
    /// the code of what failed, whatever it was; 0 if nothing did.
    fn outcome(
        &self,
        turn: ReentrantMutexGuard<'_, ()>,
        code: cl::cl_int,
        event: cl::cl_event,
    ) -> cl::cl_int {
        if code != 0 {
            return code;
        }
        let event = RawEvent { handle: Handle::of(event), context: self.context.clone() };
        let flushed = self.context.flush_for_code(self.context.transfer());
        // Others have theirs while this one waits.
        drop(turn);
        match flushed {
            0 => event.wait_for_code(),
            code => code,
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if fork::is_forked() {
            return;
        }
        self.unmap_at_the_end();
        let _turn = self.context.turn();
        // SAFETY: this value had a count of the buffer; the driver keeps one of its own for what is queued.
        let _ = unsafe { (self.context.library().core.clReleaseMemObject)(self.buffer.raw()) };
        if let Some(shared) = self.shared {
            self.context.free_shared(shared.address);
        }
    }
}
