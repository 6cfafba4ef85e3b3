//! Typed views of regions, for kernels.

use crate::memory::OpenClMemory;
use crate::stream::OpenClStream;
use bytemuck::Pod;
use opencl_sys::cl_mem;
use std::fmt;
use std::marker::PhantomData;
use vrampool_backend::access::{Read, Write};
use vrampool_backend::{BackendError, Region, RegionMut, arguments};

/// A region as `T`s that one stream may read: the buffer that a kernel takes, and where in it the region is.
///
/// A kernel on the view's stream takes [`cl_mem`](Self::cl_mem) and, as a number, [`offset`](Self::offset)
/// (bytes) or [`first`](Self::first) (elements).
pub struct OpenClView<'a, T, A = Read> {
    len: usize,
    /// Keeps the memory alive, and where it is.
    region: Region<'a, OpenClMemory>,
    kind: PhantomData<fn() -> (T, A)>,
}

/// A region as `T`s that one stream may read and write. As [`OpenClView`].
pub type OpenClViewMut<'a, T> = OpenClView<'a, T, Write>;

impl OpenClStream {
    /// `region`, made for this stream, as `T`s to read.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] when the region was made for another stream, or is not a whole
    /// number of aligned `T`s, or `T` has no size; else errors of the driver.
    pub fn view<'a, T: Pod>(
        &self,
        region: Region<'a, OpenClMemory>,
    ) -> Result<OpenClView<'a, T>, BackendError> {
        self.any_view(region)
    }

    fn any_view<'a, T: Pod, A>(
        &self,
        region: Region<'a, OpenClMemory>,
    ) -> Result<OpenClView<'a, T, A>, BackendError> {
        self.check_regions(Some(&region), None)?;
        // So that the kernel indexes the buffer with the number of the first element.
        let len = arguments::elements::<T, _>(&region, region.offset(), size_of::<T>() as u64)?;
        region.memory().give_to_kernels(self)?;
        region.memory().use_on(self);
        Ok(OpenClView { len, region, kind: PhantomData })
    }

    /// `region`, made for this stream, as `T`s to read and write.
    ///
    /// # Errors
    /// As [`view`](Self::view).
    pub fn view_mut<'a, T: Pod>(
        &self,
        region: RegionMut<'a, OpenClMemory>,
    ) -> Result<OpenClViewMut<'a, T>, BackendError> {
        self.any_view(region.as_region())
    }
}

impl<'a, T, A> OpenClView<'a, T, A> {
    /// The region that it shows.
    #[must_use]
    pub fn region(&self) -> &Region<'a, OpenClMemory> {
        &self.region
    }

    /// The buffer that the region is in. It is good for as long as the view is there; what is enqueued with
    /// it keeps it.
    #[must_use]
    pub fn cl_mem(&self) -> cl_mem {
        self.region.memory().allocation.buffer().raw()
    }

    /// Where in the buffer it begins, bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.region.offset()
    }

    /// Where in the buffer it begins, elements.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.region.offset() / size_of::<T>() as u64
    }

    /// How many elements it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no elements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T, A> fmt::Debug for OpenClView<'_, T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenClView")
            .field("element", &std::any::type_name::<T>())
            .field("len", &self.len)
            .field("region", &self.region)
            .finish()
    }
}
