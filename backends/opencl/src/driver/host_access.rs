//! Host access to memory: a temporary mapping, a persistent mapping, or a shared address.

use super::allocation::{Allocation, Span};
use super::context::Context;
use super::host_side::HostSide;
use super::queue::Queue;
use crate::error::check;
use crate::stream_core::StreamPoint;
use opencl_sys as cl;
use std::ffi::c_void;
use vrampool_backend::BackendError;

impl Allocation {
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(*self.host_side.lock(), HostSide::Mapped(_))
    }

    /// Takes back a mapping that is kept, behind the work that uses its address. `users` marks that work.
    pub(crate) fn give_to_kernels(
        &self,
        users: impl FnOnce() -> Result<Vec<StreamPoint>, BackendError>,
    ) -> Result<(), BackendError> {
        let mut side = self.host_side.lock();
        if let HostSide::Mapped(address) = *side {
            let users = users()?;
            let unmapped =
                self.unmap(address, &users.iter().filter_map(StreamPoint::event).collect::<Vec<_>>());
            *side = HostSide::Unmapping(self.context.judged(unmapped)?);
        }
        Ok(())
    }
}

impl Context {
    /// Puts `queue` behind the end of a mapping, where one is being taken back.
    pub(crate) fn order_after_unmap(
        &self,
        queue: &Queue,
        allocation: &Allocation,
    ) -> Result<(), BackendError> {
        let mut side = allocation.host_side.lock();
        match &*side {
            HostSide::Unmapping(unmapped) if unmapped.is_complete()? => *side = HostSide::Unmapped,
            HostSide::Unmapping(unmapped) => self.wait(queue, &[unmapped])?,
            HostSide::Mapped(_) | HostSide::Unmapped => {}
        }
        Ok(())
    }

    /// Copies by the address of the one that is kept mapped. Answers whether it did: not when neither is, or
    /// both are.
    pub(super) fn copy_mapped(
        &self,
        queue: &Queue,
        source: Span<'_>,
        to: Span<'_>,
        bytes: usize,
    ) -> Result<bool, BackendError> {
        self.order_after_unmap(queue, source.allocation)?;
        self.order_after_unmap(queue, to.allocation)?;
        let (none, null) = (std::ptr::null(), std::ptr::null_mut());
        let core = &self.library().core;
        if !to.allocation.is_mapped()
            && let HostSide::Mapped(address) = *source.allocation.host_side.lock()
        {
            let from = address.raw().wrapping_byte_add(source.offset);
            let (buffer, offset) = (to.buffer(), to.offset);
            self.enqueue("clEnqueueWriteBuffer", queue, |queue| {
                // SAFETY: the mapping has the range (`Span::new` checked it), and is taken back, or freed,
                // only behind the work of the streams that used it. The driver keeps a count of the other
                // buffer.
                unsafe { (core.clEnqueueWriteBuffer)(queue, buffer, 0, offset, bytes, from, 0, none, null) }
            })?;
            return Ok(true);
        }
        if !source.allocation.is_mapped()
            && let HostSide::Mapped(address) = *to.allocation.host_side.lock()
        {
            let at = address.raw().wrapping_byte_add(to.offset);
            let (buffer, offset) = (source.buffer(), source.offset);
            self.enqueue("clEnqueueReadBuffer", queue, |queue| {
                // SAFETY: as above, with the roles exchanged.
                unsafe { (core.clEnqueueReadBuffer)(queue, buffer, 0, offset, bytes, at, 0, none, null) }
            })?;
            return Ok(true);
        }
        Ok(false)
    }
}

/// The host reads or writes the memory itself. The contract leaves the order with device work to the caller.
impl Span<'_> {
    pub(crate) fn write(self, bytes: &[u8]) -> Result<(), BackendError> {
        let count = self.bytes.min(bytes.len());
        self.with_host(cl::CL_MAP_WRITE, count, |to| {
            // SAFETY: `to` is at least `count` bytes that are mapped for writing, and no other thread of the
            // host is at them, since all go through the lock. `bytes` is ordinary memory, or a mapping that
            // safe code cannot have a reference into, so they do not overlap. A device that writes them
            // meanwhile is outside the program.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, count) };
        })
    }

    pub(crate) fn read(self, bytes: &mut [u8]) -> Result<(), BackendError> {
        let count = self.bytes.min(bytes.len());
        self.with_host(cl::CL_MAP_READ, count, |from| {
            // SAFETY: as in `write`, with the roles exchanged. Whatever the bytes are, they are `u8`s of the
            // driver's.
            unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), count) };
        })
    }

    /// Runs `access` with the address of `count` bytes, which is good for as long as it runs.
    fn with_host(
        self,
        flags: cl::cl_map_flags,
        count: usize,
        access: impl FnOnce(*mut u8),
    ) -> Result<(), BackendError> {
        let (allocation, context) = (self.allocation, &self.allocation.context);
        // Also keeps other threads of the host away from the bytes.
        let side = allocation.host_side.lock();
        if count == 0 {
            return Ok(());
        }
        let address = match (&*side, allocation.shared()) {
            (HostSide::Mapped(address), _) => Some(address.raw().wrapping_byte_add(self.offset)),
            (_, Some(shared)) if shared.fine => Some(shared.address.raw().wrapping_byte_add(self.offset)),
            _ => None,
        };
        if let Some(address) = address {
            access(address.cast());
            return Ok(());
        }
        if let (Some(address), Some(library)) = (self.shared(), &context.library().shared) {
            let none = std::ptr::null();
            let map = |queue, event: *mut *mut c_void| {
                // SAFETY: the range lies in shared memory (`Span::new` checked it); `event` says when the host
                // may use it.
                unsafe { (library.clEnqueueSVMMap)(queue, 0, flags, address, count, 0, none, event) }
            };
            let mapped = context.enqueue_for_event("clEnqueueSVMMap", context.transfer(), map);
            context.judged(mapped.and_then(|mapped| mapped.wait_plainly()))?;
            access(address.cast());
            let unmap = |queue, event: *mut *mut c_void| {
                // SAFETY: it was mapped above, and is unmapped this once.
                unsafe { (library.clEnqueueSVMUnmap)(queue, address, 0, none, event) }
            };
            let done = context.enqueue_for_event("clEnqueueSVMUnmap", context.transfer(), unmap);
            return context.judged(done.and_then(|done| done.wait_plainly()));
        }
        let (address, code) = allocation.map(flags, self.offset, count);
        context.judged(check("clEnqueueMapBuffer", code))?;
        access(address.raw().cast());
        let done = allocation.unmap(address, &[]);
        context.judged(done.and_then(|done| done.wait_plainly()))
    }
}
