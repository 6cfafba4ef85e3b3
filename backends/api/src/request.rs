//! A request for memory of a device.

use crate::{BackendError, MemoryKind};

/// The arguments of [`Backend::allocate`](crate::Backend::allocate). Fields may be added: a backend reads those
/// that it knows.
///
/// A backend returns the bytes in their kind exactly, or a typed error. The others:
///
/// * `alignment`: kept, or refused with [`BackendError::Unsupported`]; a backend that aligns all memory to its
///   [`alignment`](crate::Properties::alignment) calls [`check_alignment`](Self::check_alignment).
/// * `label`, `priority`: hints. A backend whose driver has no such thing ignores them.
///
/// ```
/// use vrampool_backend::{AllocationRequest, Placement};
///
/// let request = AllocationRequest::new(1 << 20, Placement::Device).with_label("weights").with_alignment(4096);
/// assert_eq!((request.bytes, request.label), (1 << 20, Some("weights")));
/// assert!(request.check_alignment(256).is_err()); // refused by a device that aligns to 256 bytes
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct AllocationRequest<'a> {
    /// Bytes, at least 1.
    pub bytes: u64,
    /// Placement and usage.
    pub kind: MemoryKind,
    /// The alignment of the start, bytes, a power of two. 1, the default, leaves it to the device.
    pub alignment: u64,
    /// A name for the driver's tools. Default: none.
    pub label: Option<&'a str>,
    /// The priority for fast memory. Default: [`Priority::Normal`].
    pub priority: Priority,
}

/// The priority with which a driver that overcommits memory keeps an allocation in fast memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Priority {
    /// Other memory first.
    Low,
    /// As most memory.
    #[default]
    Normal,
    /// Before other memory.
    High,
}

impl<'a> AllocationRequest<'a> {
    /// Requests `bytes` bytes of this kind, with the defaults of the other fields.
    pub fn new(bytes: u64, kind: impl Into<MemoryKind>) -> Self {
        Self { bytes, kind: kind.into(), alignment: 1, label: None, priority: Priority::Normal }
    }

    /// Sets the alignment, bytes, a power of two.
    #[must_use]
    pub fn with_alignment(mut self, bytes: u64) -> Self {
        self.alignment = bytes;
        self
    }

    /// Sets the label.
    #[must_use]
    pub fn with_label(mut self, label: &'a str) -> Self {
        self.label = Some(label);
        self
    }

    /// Sets the priority.
    #[must_use]
    pub fn with_priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Checks the alignment for a device that aligns all memory to `own` bytes.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] for an alignment that is not a power of two;
    /// [`BackendError::Unsupported`] for one of more than `own` bytes.
    pub fn check_alignment(&self, own: u64) -> Result<(), BackendError> {
        if !self.alignment.is_power_of_two() {
            let reason = format!("{} bytes; use a power of two", self.alignment);
            return Err(BackendError::invalid("alignment", reason));
        }
        if self.alignment > own.max(1) {
            return Err(BackendError::unsupported("memory of a larger alignment than the device's own"));
        }
        Ok(())
    }
}
