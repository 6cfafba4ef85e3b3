//! Handles of the driver's objects.

use std::ffi::c_void;

/// A handle of an object of the driver. A number, because any thread may pass it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Handle(pub(super) usize);

impl Handle {
    pub(crate) fn of(raw: *mut c_void) -> Self {
        Self(raw.expose_provenance())
    }

    pub(crate) fn raw(self) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(self.0)
    }

    pub(crate) fn number(self) -> u64 {
        self.0 as u64
    }
}
