//! A request for memory of a device.

use crate::MemoryKind;

/// The arguments of [`Backend::allocate`](crate::Backend::allocate). Fields may be added: a backend reads those
/// that it knows.
///
/// A backend returns the bytes in their kind exactly, aligned to the device's
/// [`alignment`](crate::Properties::alignment), or a typed error. `label` is a hint: a backend whose driver has no
/// such thing ignores it.
///
/// ```
/// use vrampool_backend::{AllocationRequest, Placement};
///
/// let request = AllocationRequest::new(1 << 20, Placement::Device).with_label("weights");
/// assert_eq!((request.bytes, request.label), (1 << 20, Some("weights")));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct AllocationRequest<'a> {
    /// Bytes, at least 1.
    pub bytes: u64,
    /// Placement and usage.
    pub kind: MemoryKind,
    /// A name for the driver's tools. Default: none.
    pub label: Option<&'a str>,
}

impl<'a> AllocationRequest<'a> {
    /// Requests `bytes` bytes of this kind, with the defaults of the other fields.
    pub fn new(bytes: u64, kind: impl Into<MemoryKind>) -> Self {
        Self { bytes, kind: kind.into(), label: None }
    }

    /// Sets the label.
    #[must_use]
    pub fn with_label(mut self, label: &'a str) -> Self {
        self.label = Some(label);
        self
    }
}
