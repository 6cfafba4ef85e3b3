//! Foreign streams and pools, and kernel arguments: safety here relies on the caller.

use super::RawPool;
use super::queue::PER_THREAD_HANDLE;
use crate::device::CudaDevice;
use crate::driver_pool::DriverPool;
use crate::stream::CudaStream;
use crate::stream_ordered::device_number;
use crate::view::{CudaView, CudaViewMut};
use cudarc::driver::{LaunchArgs, PushKernelArg, sys};
use vrampool_backend::BackendError;

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

// SAFETY: it pushes what the implementation for `u64` pushes for the view's address, which is what a kernel's
// pointer parameter is; the reference lives as long as the launch's arguments (`'b: 'a`), and with it the
// view, whose region keeps the memory where it is.
unsafe impl<'a, 'b: 'a, T, A> PushKernelArg<&'b CudaView<'_, T, A>> for LaunchArgs<'a> {
    #[inline(always)]
    fn arg(&mut self, view: &'b CudaView<'_, T, A>) -> &mut Self {
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
