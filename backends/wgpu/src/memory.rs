//! Memory of a wgpu device.

use crate::gpu::GRANULARITY;
use crate::shared::DeviceCore;
use parking_lot::{Mutex, MutexGuard};
use vrampool_backend::spi::Grant;
use vrampool_backend::{
    BackendError, Memory, MemoryKind, Placement, Region, Usage,
    fork::{self, ForkArc},
};
use wgpu::BufferUsages;

/// Memory of a [`WgpuDevice`](crate::WgpuDevice): one [`wgpu::Buffer`].
///
/// wgpu clears memory before its first use. Memory that a pool serves again holds what was in it.
///
/// Dropping it never waits for the device. wgpu keeps the bytes until the work that uses them is done,
/// submitted or not, and gives them to the driver when it is polled then, which allocating does first of all.
/// Until the work that was enqueued before the drop is done they count against the device's
/// [limit](crate::WgpuDevice::with_memory_limit). When more than 32 MiB are kept so, the work is submitted by
/// the drop and waited for by the next allocation: so a device holds at most 32 MiB more than what is live,
/// and its staging buffers. [`Backend::reclaim`](vrampool_backend::Backend::reclaim), which a pool's trim
/// calls, waits for all of it.
#[derive(Debug)]
pub struct WgpuMemory {
    buffer: wgpu::Buffer,
    len: u64,
    kind: MemoryKind,
    /// The bytes that are charged to a device with a limit.
    grant: Option<Grant>,
    /// Held while the host reads or writes the bytes, so that two threads never do at once.
    host: Mutex<()>,
    pub(crate) device: ForkArc<DeviceCore>,
}

impl WgpuMemory {
    /// The usages of [`Usage::DEFAULT`], which [kernels](crate::Kernel) and copies need.
    pub const DEFAULT_USAGES: BufferUsages =
        BufferUsages::STORAGE.union(BufferUsages::COPY_SRC).union(BufferUsages::COPY_DST);

    pub(crate) fn new(
        buffer: wgpu::Buffer,
        len: u64,
        kind: MemoryKind,
        grant: Option<Grant>,
        device: &ForkArc<DeviceCore>,
    ) -> Self {
        Self { buffer, len, kind, grant, host: Mutex::new(()), device: device.clone() }
    }

    /// `usages` as a [`MemoryKind`] has them.
    #[must_use]
    pub fn usage(usages: BufferUsages) -> Usage {
        Usage(u64::from(usages.bits()))
    }

    /// The kind of memory of a device's own that work uses for `usages`. With another placement:
    /// `MemoryKind::new(placement).with_usage(WgpuMemory::usage(usages))`.
    ///
    /// ```
    /// use vrampool_wgpu::{WgpuMemory, wgpu::BufferUsages};
    /// let kind = WgpuMemory::kind_for(BufferUsages::VERTEX | BufferUsages::COPY_DST);
    /// assert_eq!(kind.usage, WgpuMemory::usage(BufferUsages::VERTEX | BufferUsages::COPY_DST));
    /// ```
    #[must_use]
    pub fn kind_for(usages: BufferUsages) -> MemoryKind {
        MemoryKind::new(Placement::Device).with_usage(Self::usage(usages))
    }

    /// Of what kind it is.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// The buffer, at least as long as the memory. For commands of the program's own; neither destroy nor map
    /// it. What was enqueued before may not be submitted yet: take a [view](crate::WgpuStream::view) instead,
    /// or call [`WgpuStream::flush`](crate::WgpuStream::flush) or a pool buffer's `used_on` before the
    /// commands are submitted.
    #[must_use]
    pub fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// The host's turn to read or write the bytes.
    pub(crate) fn host_turn(&self) -> MutexGuard<'_, ()> {
        self.host.lock()
    }
}

impl Drop for WgpuMemory {
    fn drop(&mut self) {
        if fork::is_forked() {
            // It is the parent's: it is never dropped here.
            return std::mem::forget(self.buffer.clone());
        }
        self.device.defer_release(&self.buffer, self.grant.take());
    }
}

impl Memory for WgpuMemory {
    fn len(&self) -> u64 {
        self.len
    }
}

/// The usages of a buffer for memory of a kind, on a device that can keep a buffer mapped or cannot.
pub(crate) fn usages_of(kind: MemoryKind, can_map: bool) -> Result<BufferUsages, BackendError> {
    let bits = u32::try_from(kind.usage.0).ok();
    let known = bits.and_then(BufferUsages::from_bits);
    let known =
        known.ok_or_else(|| BackendError::invalid("usage", "it has bits that are not `BufferUsages`"))?;
    let usages = if known.is_empty() { WgpuMemory::DEFAULT_USAGES } else { known };
    match kind.placement {
        Placement::Device => Ok(usages),
        Placement::HostVisible if can_map => Ok(usages | BufferUsages::MAP_READ | BufferUsages::MAP_WRITE),
        Placement::HostVisible => Err(BackendError::unsupported("host-visible memory")),
        Placement::Managed => Err(BackendError::unsupported("managed memory")),
        _ => Err(BackendError::unsupported("this placement")),
    }
}

/// The bytes that a region names, for a command that needs a usage.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span<'a> {
    pub(crate) buffer: &'a wgpu::Buffer,
    pub(crate) offset: u64,
    /// Whole words. Rounded up where the region ends with its memory or has room; that does not leave the buffer.
    pub(crate) size: u64,
    /// Bytes of the region behind those: the start of a word whose other bytes keep their contents.
    pub(crate) tail: u64,
}

impl<'a> Span<'a> {
    /// The word that begins with the tail.
    pub(crate) fn word(&self) -> (&'a wgpu::Buffer, u64) {
        (self.buffer, self.offset + self.size)
    }

    pub(crate) fn new(
        region: &'a Region<'_, WgpuMemory>,
        usage: BufferUsages,
        name: &'static str,
    ) -> Result<Self, BackendError> {
        let (offset, len) = (region.offset(), region.len());
        let whole = Self::around(region, usage, name)?;
        if offset + len == region.memory().len() || whole.size - len <= region.room() {
            return Ok(whole);
        }
        // The word is read, too.
        let tail = len % GRANULARITY;
        Ok(Self { size: len - tail, tail, ..Self::around(region, usage | BufferUsages::COPY_SRC, name)? })
    }

    /// For a command that may read more than the region.
    pub(crate) fn around(
        region: &'a Region<'_, WgpuMemory>,
        usage: BufferUsages,
        name: &'static str,
    ) -> Result<Self, BackendError> {
        let buffer = &region.memory().buffer;
        if !buffer.usage().contains(usage) {
            let reason = format!("its memory was allocated for {:?}, without {usage:?}", buffer.usage());
            return Err(BackendError::invalid(name, reason));
        }
        let offset = region.offset();
        if !offset.is_multiple_of(GRANULARITY) {
            let reason = format!("its offset, {offset}, is not a multiple of {GRANULARITY}");
            return Err(BackendError::invalid(name, reason));
        }
        Ok(Self { buffer, offset, size: region.len().next_multiple_of(GRANULARITY), tail: 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_says_what_its_buffer_is_for() {
        let kind = |placement, usages| MemoryKind::new(placement).with_usage(WgpuMemory::usage(usages));
        let of = |kind| usages_of(kind, true).expect("usages");
        assert_eq!(of(MemoryKind::default()), WgpuMemory::DEFAULT_USAGES);
        assert_eq!(of(kind(Placement::Device, BufferUsages::VERTEX)), BufferUsages::VERTEX);
        let mapped = BufferUsages::MAP_READ | BufferUsages::MAP_WRITE;
        assert_eq!(of(Placement::HostVisible.into()), WgpuMemory::DEFAULT_USAGES | mapped);
        assert!(matches!(
            usages_of(Placement::HostVisible.into(), false),
            Err(BackendError::Unsupported { .. })
        ));
        assert!(matches!(usages_of(Placement::Managed.into(), true), Err(BackendError::Unsupported { .. })));
        for bits in [1 << 31, 1 << 32, u64::MAX] {
            let kind = MemoryKind::new(Placement::Device).with_usage(Usage(bits));
            let error = usages_of(kind, true).expect_err("an unknown bit");
            assert!(matches!(error, BackendError::InvalidArgument { argument: "usage", .. }), "{error}");
        }
    }
}
