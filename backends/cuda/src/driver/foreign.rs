//! Foreign streams and slices, and kernel arguments: safety here relies on the caller.

use super::queue::PER_THREAD_HANDLE;
use super::{Allocation, Origin, RawEvent, RawPool};
use crate::device::CudaDevice;
use crate::driver_pool::DriverPool;
use crate::memory::CudaMemory;
use crate::stream::CudaStream;
use crate::stream_ordered::device_number;
use crate::view::{CudaView, CudaViewMut};
use bytemuck::Pod;
use cudarc::driver::{CudaSlice, DeviceRepr, LaunchArgs, PushKernelArg, sys};
use vrampool_backend::{BackendError, Memory, Placement, Rejected, Stream};

impl CudaDevice {
    /// A stream that other code knows by its handle: another library's, another language's. `0` and `1` are
    /// the null stream, `2` the calling thread's default stream. The program's own `cudarc` streams are
    /// wrapped without `unsafe`, by [`wrap_stream`](Self::wrap_stream). A stream of a green context is one of
    /// the device's primary context, from CUDA 12.5 on.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] for a stream of another context; else errors of the driver, for a
    /// handle that it knows to be none too.
    ///
    /// # Safety
    /// `handle` is one of a stream that exists. It exists until the last handle to it here is dropped, which
    /// idle memory holds too, or until [`CudaStream::retire`] was called, while no other thread used it, and
    /// what [`CudaStream::cudarc`] returned is used no more. The driver crashes on the handle of a stream
    /// that is destroyed.
    pub unsafe fn wrap_raw_stream(&self, handle: sys::CUstream) -> Result<CudaStream, BackendError> {
        let context = &self.core.context;
        let library = context.library();
        let _current = context.enter()?;
        if handle as usize > PER_THREAD_HANDLE {
            let (mut owner, mut green) = (std::ptr::null_mut(), std::ptr::null_mut());
            let code = match library.green() {
                // SAFETY: the caller vouches for the handle; the call writes two handles, which live here. Of
                // a green context's stream the first is the device's primary context, whose memory and events
                // it shares.
                Some(functions) => unsafe {
                    (functions.cuStreamGetCtx_v2)(handle, &raw mut owner, &raw mut green)
                },
                // SAFETY: as above, of one handle. It refuses streams of green contexts.
                None => unsafe { (library.cuStreamGetCtx)(handle, &raw mut owner) },
            };
            library.check("cuStreamGetCtx", code)?;
            if owner != self.context().cu_ctx() {
                return Err(BackendError::invalid("stream", "it belongs to another context"));
            }
        }
        // SAFETY: the stream is one of this context, as was checked, or a default stream, which every context
        // has. That it exists as long as the result is the caller's promise. Work on it is ordered by events
        // like any other's.
        let stream = unsafe { self.context().wrap_borrowed_stream(handle) };
        CudaStream::of(&self.core, stream)
    }
}

impl DriverPool {
    /// A pool that other code made, by its handle.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Safety
    /// `handle` is a pool on `device`, and exists until the last handle to it here, and the last memory of
    /// it, are dropped.
    pub unsafe fn external(device: &CudaDevice, handle: sys::CUmemoryPool) -> Result<Self, BackendError> {
        device_number(&device.core)?;
        // SAFETY: the caller's promise; memory keeps the pool's handle here, and so what it was promised for.
        let raw = unsafe { RawPool::external(&device.core.context, handle) };
        Self::of(device, raw)
    }
}

impl CudaMemory {
    /// Takes over a slice of `cudarc`'s, which is then this memory's to free. Waits for all work of the
    /// context, so that the memory may be used on any stream, like new memory.
    ///
    /// # Errors
    /// With the slice as it was: [`BackendError::InvalidArgument`] for one of another context or of no bytes;
    /// else what the driver reports.
    pub fn from_slice<T>(device: &CudaDevice, slice: CudaSlice<T>) -> Result<Self, Rejected<CudaSlice<T>>> {
        let context = &device.core.context;
        let bytes = slice.num_bytes() as u64;
        let ready = if !context.is_same(slice.context()) {
            Err(BackendError::invalid("slice", "it belongs to another context"))
        } else if bytes == 0 {
            Err(BackendError::invalid("slice", "it has no bytes"))
        } else {
            context.enter().and_then(|current| current.synchronize_all())
        };
        if let Err(error) = ready {
            return Err(Rejected::new(error, slice));
        }
        let address = slice.leak();
        // SAFETY: a slice is a whole allocation of its context, made by `cuMemAllocAsync` or, on a device
        // that has no pools, by `cuMemAlloc`. `leak` gave it away, so nothing else frees it.
        let allocation = unsafe { Allocation::adopt(context, address, bytes, Origin::Pool) };
        Ok(Self::new(allocation, Placement::Device.into()))
    }

    /// Turns the memory into a slice of `cudarc`'s, which frees it in the order of `stream`. Waits for all
    /// work of the context, so that no other stream still uses it.
    ///
    /// # Errors
    /// With the memory as it was: [`BackendError::InvalidArgument`] when it is not the device's own or is a
    /// reservation, `stream` is another device's, or the bytes are not a whole number of `T`; else what the
    /// driver reports.
    #[allow(clippy::result_large_err, reason = "what comes back is the memory itself")]
    pub fn into_slice<T: Pod + DeviceRepr>(
        self,
        stream: &CudaStream,
    ) -> Result<CudaSlice<T>, Rejected<Self>> {
        let size = size_of::<T>();
        let whole = |bytes: u64| usize::try_from(bytes).ok().filter(|bytes| bytes.is_multiple_of(size));
        let context = &stream.core().context;
        let bytes = match whole(self.len()).filter(|_| size > 0 && align_of::<T>() <= 256) {
            Some(bytes) => bytes,
            None => {
                let reason =
                    format!("{} bytes are not a whole number of {}", self.len(), std::any::type_name::<T>());
                return Err(Rejected::new(BackendError::invalid("element type", reason), self));
            }
        };
        let ready = if self.kind().placement != Placement::Device {
            Err(BackendError::invalid("memory", "only the device's own memory can be a slice"))
        } else if self.allocation.mappings().is_some() {
            Err(BackendError::invalid("memory", "it is a reservation, which a slice cannot free"))
        } else if !context.is_same(self.allocation.context().cudarc()) {
            Err(BackendError::invalid("stream", format!("it is one of device {}", stream.device())))
        } else {
            // `cudarc` panics where it cannot make its two events, so they are made once before.
            let events = RawEvent::new(context).and_then(|_| RawEvent::new(context));
            events.and_then(|_| context.enter()?.synchronize_all())
        };
        if let Err(error) = ready {
            return Err(Rejected::new(error, self));
        }
        // An error that a destructor of `cudarc`'s left behind would be taken for one of its events.
        let _ = stream.cudarc().context().check_err();
        let address = self.into_allocation().release();
        // SAFETY: the address is the start of an allocation of `bytes` bytes of the stream's context, which
        // `release` gave away. Whatever its bytes are, they are values of `T`, which is `Pod`.
        Ok(unsafe { stream.cudarc().upgrade_device_ptr(address, bytes / size) })
    }
}

// SAFETY: it pushes what the implementation for `u64` pushes for the view's address, which is what a kernel's
// pointer parameter is; the reference lives as long as the launch's arguments (`'b: 'a`), and with it the
// view, whose region keeps the memory where it is.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b CudaView<'_, T>> for LaunchArgs<'a> {
    #[inline(always)]
    fn arg(&mut self, view: &'b CudaView<'_, T>) -> &mut Self {
        self.arg(view.address())
    }
}

// SAFETY: as above.
unsafe impl<'a, 'b: 'a, T> PushKernelArg<&'b mut CudaViewMut<'_, T>> for LaunchArgs<'a> {
    #[inline(always)]
    fn arg(&mut self, view: &'b mut CudaViewMut<'_, T>) -> &mut Self {
        self.arg(view.address())
    }
}
