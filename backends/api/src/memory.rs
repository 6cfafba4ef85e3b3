//! Memory and its placement.

use crate::BackendError;
use std::fmt;
use std::ops::Range;

/// A block of memory on a device. **Dropping it frees it.**
///
/// Dropping is safe at any time, and the code that drops it need not know when its bytes are free: the driver may
/// keep them until work that uses them is done. A backend makes sure that work which was enqueued before the
/// drop does not touch memory that was allocated after it (by reference counts, by a stream-ordered free, or
/// by waiting).
///
/// ```
/// use vrampool_backend::Memory;
/// #[derive(Debug)]
/// struct Bytes(Vec<u8>);
/// impl Memory for Bytes {
///     fn len(&self) -> u64 {
///         self.0.len() as u64
///     }
/// }
/// assert_eq!((Bytes(vec![0; 64]).len(), Bytes(vec![]).is_empty()), (64, true));
/// ```
pub trait Memory: fmt::Debug + Send + Sync + 'static {
    /// Size in bytes.
    fn len(&self) -> u64;

    /// Whether it has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its address on the device, where the device has addresses (CUDA, host), else `None` (OpenCL, wgpu).
    fn address(&self) -> Option<u64> {
        None
    }

    /// Releases the memory behind the handle, and returns whether it did; `false` leaves it to the drop. Default:
    /// `false`.
    ///
    /// For the owner of other handles that are out of reach, such as those of threads that make no call. Nothing uses
    /// the memory from then on; a use fails, or finds undefined contents. Work that was enqueued before is treated as
    /// by a drop.
    fn release(&self) -> bool {
        false
    }
}

/// Where memory lives.
///
/// ```
/// use vrampool_backend::{AllocationRequest, Placement};
/// let request = AllocationRequest::new(1 << 20, Placement::HostVisible);
/// assert_eq!(request.kind.placement, Placement::HostVisible);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Placement {
    /// The device's own memory.
    #[default]
    Device,
    /// Memory of the host that the device reaches and that is not paged out ("pinned"). The host may map it.
    HostVisible,
    /// One address for host and device; the driver moves pages ("managed", "shared", "unified").
    Managed,
}

/// Bits that say what memory will be used for. Their meaning belongs to the backend (wgpu's `BufferUsages`,
/// OpenCL's `cl_mem_flags`); to a pool they are only part of the key under which idle memory is found again.
///
/// ```
/// use vrampool_backend::{MemoryKind, Placement, Usage};
/// let kind = MemoryKind::new(Placement::Device);
/// assert_eq!(kind.usage, Usage::DEFAULT);
/// assert_ne!(kind, kind.with_usage(Usage(1 << 5))); // never served for each other
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Usage(pub u64);

impl Usage {
    /// The backend's default: whatever kernels and copies need.
    pub const DEFAULT: Self = Self(0);
}

/// Placement and usage: memory of one kind is never served for another.
///
/// ```
/// use vrampool_backend::{MemoryKind, Placement};
/// assert_eq!(MemoryKind::default(), MemoryKind::new(Placement::Device));
/// assert_eq!(MemoryKind::from(Placement::Managed).placement, Placement::Managed);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub struct MemoryKind {
    /// Where it lives.
    pub placement: Placement,
    /// The intended usage.
    pub usage: Usage,
}

impl MemoryKind {
    /// The kind of the backend's default usage.
    ///
    /// ```
    /// use vrampool_backend::{MemoryKind, Placement, Usage};
    ///
    /// let kind = MemoryKind::new(Placement::HostVisible).with_usage(Usage(4));
    /// assert_eq!((kind.placement, kind.usage), (Placement::HostVisible, Usage(4)));
    /// ```
    #[must_use]
    pub const fn new(placement: Placement) -> Self {
        Self { placement, usage: Usage::DEFAULT }
    }

    /// The same placement, for another usage.
    #[must_use]
    pub const fn with_usage(self, usage: Usage) -> Self {
        Self { usage, ..self }
    }
}

impl From<Placement> for MemoryKind {
    fn from(placement: Placement) -> Self {
        Self::new(placement)
    }
}

/// Checks that a range lies inside a memory of `len` bytes.
///
/// # Errors
/// [`BackendError::InvalidArgument`], which names the range and the size.
pub fn check_range(offset: u64, bytes: u64, len: u64) -> Result<Range<u64>, BackendError> {
    match offset.checked_add(bytes) {
        Some(end) if end <= len => Ok(offset..end),
        _ => Err(BackendError::invalid(
            "range",
            format!("{bytes} bytes from {offset} on leave a memory of {len} bytes"),
        )),
    }
}
