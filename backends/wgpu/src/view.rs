//! Conversion of regions to operands of wgpu commands.

use crate::memory::WgpuMemory;
use crate::stream::WgpuStream;
use std::marker::PhantomData;
use std::num::NonZero;
use vrampool_backend::access::{Read, Write};
use vrampool_backend::{BackendError, Region, RegionMut};
use wgpu::BufferUsages;

/// A region that the program's own commands may read on its stream.
///
/// All that was enqueued before is submitted when it is made. Submit what uses it while it exists: to wgpu's
/// queue, or by [`WgpuStream::submit`] or [`WgpuStream::encode`].
#[derive(Debug, Clone)]
pub struct WgpuView<'a, A = Read> {
    region: Region<'a, WgpuMemory>,
    access: PhantomData<A>,
}

/// A region that the program's own commands may read and write on its stream. As [`WgpuView`].
pub type WgpuViewMut<'a> = WgpuView<'a, Write>;

impl WgpuStream {
    /// `region`, made for this stream, to be read by the program's own commands.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] for a region of another stream or device; what wgpu reports about
    /// the work before.
    pub fn view<'a>(&self, region: Region<'a, WgpuMemory>) -> Result<WgpuView<'a>, BackendError> {
        self.any_view(region)
    }

    fn any_view<'a, A>(&self, region: Region<'a, WgpuMemory>) -> Result<WgpuView<'a, A>, BackendError> {
        self.check_regions(&[&region], &[])?;
        self.flush()?;
        Ok(WgpuView { region, access: PhantomData })
    }

    /// `region`, made for this stream, to be read and written by the program's own commands.
    ///
    /// # Errors
    /// As [`view`](Self::view).
    pub fn view_mut<'a>(&self, region: RegionMut<'a, WgpuMemory>) -> Result<WgpuViewMut<'a>, BackendError> {
        self.any_view(region.as_region())
    }
}

impl<'a, A> WgpuView<'a, A> {
    /// The region that it shows.
    #[must_use]
    pub fn region(&self) -> &Region<'a, WgpuMemory> {
        &self.region
    }

    /// The buffer that the region is a part of.
    #[must_use]
    pub fn buffer(&self) -> &wgpu::Buffer {
        self.region.memory().buffer()
    }

    /// Where the region starts in the buffer, bytes.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.region.offset()
    }

    /// The region's size, bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.region.len()
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.region.is_empty()
    }

    /// The region as a bind group takes it, rounded up to whole words.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] when it is empty, its memory is for neither storage nor uniforms,
    /// its offset is not aligned for them, or it is larger than the device can bind.
    pub fn binding(&self) -> Result<wgpu::BufferBinding<'_>, BackendError> {
        let refused = |reason: String| Err(BackendError::invalid("region", reason));
        let limits = &self.region.memory().device.limits;
        let usages = self.buffer().usage();
        let (alignment, largest) = if usages.contains(BufferUsages::STORAGE) {
            (limits.min_storage_buffer_offset_alignment, limits.max_storage_buffer_binding_size)
        } else if usages.contains(BufferUsages::UNIFORM) {
            (limits.min_uniform_buffer_offset_alignment, limits.max_uniform_buffer_binding_size)
        } else {
            return refused(format!("its memory was allocated for {usages:?}, which is not bound"));
        };
        if !self.offset().is_multiple_of(u64::from(alignment)) {
            return refused(format!("its offset, {}, is not a multiple of {alignment}", self.offset()));
        }
        match NonZero::new(self.len().next_multiple_of(wgpu::COPY_BUFFER_ALIGNMENT)) {
            Some(size) if size.get() <= largest => {
                Ok(wgpu::BufferBinding { buffer: self.buffer(), offset: self.offset(), size: Some(size) })
            }
            Some(size) => refused(format!("it has {size} bytes; the device binds at most {largest}")),
            None => refused("it has 0 bytes; a binding has at least 1".into()),
        }
    }
}
