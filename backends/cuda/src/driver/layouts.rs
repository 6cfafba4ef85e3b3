//! Structures and numbers as the headers of the driver and of Windows have them.

use std::ffi::{c_int, c_void};
use vrampool_backend::ShareableKind;

/// `CU_MEM_LOCATION_TYPE_DEVICE`
const ON_A_DEVICE: c_int = 1;

/// `CUmemPoolProps`, whose size no version has changed.
#[repr(C)]
pub(crate) struct PoolProperties {
    /// 1: pinned
    pub(super) kind: c_int,
    /// 0: none
    pub(super) shareable: c_int,
    /// 1: a device
    pub(super) location_kind: c_int,
    pub(super) device: c_int,
    pub(super) security: *mut c_void,
    pub(super) rest: [u8; 64],
}

/// `CUmemLocation`, whose size no version has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub(super) struct Location {
    kind: c_int,
    device: c_int,
}

impl Location {
    /// The device of this number of the driver's.
    pub(super) fn device(device: c_int) -> Self {
        Self { kind: ON_A_DEVICE, device }
    }
}

/// `CUmemAllocationProp`, whose size no version has changed.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub(crate) struct PhysicalProperties {
    pub(super) kind: c_int,
    pub(super) shareable: c_int,
    pub(super) location: Location,
    /// A pointer.
    pub(super) windows: usize,
    pub(super) compression: u8,
    pub(super) direct_rdma: u8,
    pub(super) usage: u16,
    pub(super) rest: [u8; 4],
}

/// `CUmemAccessDesc`, whose size no version has changed.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(crate) struct AccessDescriptor {
    pub(super) location: Location,
    pub(super) flags: c_int,
}

/// `OBJECT_ATTRIBUTES` of Windows, whose size no version has changed.
#[repr(C)]
struct ObjectAttributes {
    length: u32,
    /// This and the following are pointers, but for the attributes.
    root: usize,
    name: usize,
    attributes: u32,
    security: usize,
    quality: usize,
}

/// A handle without a name, with the security that the process gives its objects: processes of the same user
/// may have it.
static OF_THE_PROCESS: ObjectAttributes = ObjectAttributes {
    length: size_of::<ObjectAttributes>() as u32,
    root: 0,
    name: 0,
    attributes: 0,
    security: 0,
    quality: 0,
};

/// The address of what Windows has to know of memory that is made for its handles, else 0.
pub(super) fn windows_attributes(kind: Option<ShareableKind>) -> usize {
    match kind {
        Some(ShareableKind::WindowsHandle) => (&raw const OF_THE_PROCESS).expose_provenance(),
        _ => 0,
    }
}

/// `CUmemAllocationHandleType`
pub(super) fn handle_type(kind: ShareableKind) -> c_int {
    match kind {
        ShareableKind::Fabric => 8,
        ShareableKind::WindowsHandle => 2,
        // A file descriptor; there is no other kind that `PhysicalMaker` lets through.
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::{OF_THE_PROCESS, windows_attributes};
    use vrampool_backend::ShareableKind;

    /// The driver reads the structure where memory is made for handles of Windows, and refuses a pointer to it elsewhere.
    #[test]
    fn only_memory_for_handles_of_windows_has_attributes() {
        #[cfg(target_pointer_width = "64")]
        assert_eq!(OF_THE_PROCESS.length, 48);
        assert_eq!(
            windows_attributes(Some(ShareableKind::WindowsHandle)),
            (&raw const OF_THE_PROCESS).addr()
        );
        for kind in [None, Some(ShareableKind::FileDescriptor), Some(ShareableKind::Fabric)] {
            assert_eq!(windows_attributes(kind), 0);
        }
    }
}
