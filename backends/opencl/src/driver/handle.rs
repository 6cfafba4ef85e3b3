//! What the driver calls its objects by.

use std::ffi::c_void;

/// What the driver calls something by. A number, because any thread may pass it on.
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
