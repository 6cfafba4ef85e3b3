//! Typed views of regions, for kernels and for libraries called through `cudarc`.

use crate::memory::CudaMemory;
use crate::stream::CudaStream;
use bytemuck::Pod;
use cudarc::driver::{DevicePtr, DevicePtrMut, DeviceRepr, DeviceSlice, SyncOnDrop, sys};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use vrampool_backend::access::{Read, Write};
use vrampool_backend::{BackendError, Region, RegionMut, arguments};

/// A region as `T`s that one stream may read: an argument of a kernel, or of a library's call, on that
/// stream.
///
/// The cost is a check of the region: no event is made or recorded, because the region's stream orders its
/// use. A library that asks for the address for *another* stream gets it in the right order all the same, at
/// the price of a wait of the host.
pub struct CudaView<'a, T, A = Read> {
    /// In a field of its own, because a kernel's arguments are given by where they are.
    address: sys::CUdeviceptr,
    len: usize,
    stream: CudaStream,
    /// Keeps the memory alive, and where it is.
    region: Region<'a, CudaMemory>,
    kind: PhantomData<fn() -> (T, A)>,
}

/// A region as `T`s that one stream may read and write. As [`CudaView`].
pub type CudaViewMut<'a, T> = CudaView<'a, T, Write>;

impl CudaStream {
    /// `region`, made for this stream, as `T`s to read.
    ///
    /// A kernel takes it by [`LaunchArgs::arg`](cudarc::driver::LaunchArgs) with `&view`, on this stream; a
    /// library's call and `cudarc`'s copies take it as [`DevicePtr`].
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] when the region was made for another stream, or is not a whole
    /// number of aligned `T`s, or `T` has no size, or this is the default stream of another thread or a
    /// retired stream.
    pub fn view<'a, T: Pod + DeviceRepr>(
        &self,
        region: Region<'a, CudaMemory>,
    ) -> Result<CudaView<'a, T>, BackendError> {
        self.any_view(region)
    }

    fn any_view<'a, T: Pod + DeviceRepr, A>(
        &self,
        region: Region<'a, CudaMemory>,
    ) -> Result<CudaView<'a, T, A>, BackendError> {
        self.check_regions(Some(&region), None)?;
        self.queue().check_not_retired()?;
        if self.queue().is_of_another_thread() {
            return Err(BackendError::invalid(
                "stream",
                "it is the default stream of another thread, which no handle names here",
            ));
        }
        let address = region.memory().allocation.address() + region.offset();
        let len = arguments::elements::<T, _>(&region, address, align_of::<T>() as u64)?;
        Ok(CudaView { address, len, stream: self.clone(), region, kind: PhantomData })
    }

    /// `region`, made for this stream, as `T`s to read and write. A kernel takes it with `&mut view`.
    ///
    /// # Errors
    /// As [`view`](Self::view).
    pub fn view_mut<'a, T: Pod + DeviceRepr>(
        &self,
        region: RegionMut<'a, CudaMemory>,
    ) -> Result<CudaViewMut<'a, T>, BackendError> {
        self.any_view(region.as_region())
    }
}

impl<'a, T, A> CudaView<'a, T, A> {
    /// The region that it shows.
    #[must_use]
    pub fn region(&self) -> &Region<'a, CudaMemory> {
        &self.region
    }

    pub(crate) fn address(&self) -> &sys::CUdeviceptr {
        &self.address
    }

    /// Puts `stream` behind the view's own, and the host behind `stream` when the result is dropped.
    fn order<'b>(&self, stream: &'b cudarc::driver::CudaStream) -> SyncOnDrop<'b> {
        let away = self.stream.queue().is_of_another_thread();
        if stream == &**self.stream.cudarc() && !away {
            return SyncOnDrop::Sync(None);
        }
        let own = if away {
            // The null stream comes after every thread's own.
            stream.context().default_stream()
        } else {
            Arc::clone(self.stream.cudarc())
        };
        stream.context().record_err(stream.join(&own));
        SyncOnDrop::sync_stream(stream)
    }
}

impl<T, A> DeviceSlice<T> for CudaView<'_, T, A> {
    fn len(&self) -> usize {
        self.len
    }

    fn stream(&self) -> &Arc<cudarc::driver::CudaStream> {
        self.stream.cudarc()
    }
}

impl<T, A> DevicePtr<T> for CudaView<'_, T, A> {
    fn device_ptr<'b>(
        &'b self,
        stream: &'b cudarc::driver::CudaStream,
    ) -> (sys::CUdeviceptr, SyncOnDrop<'b>) {
        (self.address, self.order(stream))
    }
}

impl<T> DevicePtrMut<T> for CudaViewMut<'_, T> {
    fn device_ptr_mut<'b>(
        &'b mut self,
        stream: &'b cudarc::driver::CudaStream,
    ) -> (sys::CUdeviceptr, SyncOnDrop<'b>) {
        self.device_ptr(stream)
    }
}

impl<T, A> fmt::Debug for CudaView<'_, T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CudaView")
            .field("element", &std::any::type_name::<T>())
            .field("len", &self.len)
            .field("region", &self.region)
            .finish()
    }
}
