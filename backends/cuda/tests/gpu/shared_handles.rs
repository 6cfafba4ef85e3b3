//! Memory that leaves this program, and comes back.
#![cfg(unix)]

use crate::first_device;
use crate::virtual_memory::{all, kind};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use vrampool_backend::AllocationRequest;
use vrampool_cuda::{
    Backend, BackendError, CudaDevice, CudaMemory, CudaStream, Physical, RegionMut, ShareableHandle,
    ShareableKind, SharedHandles, VirtualMemory,
};
use vrampool_test_support::{BackendExt, passed, test_again};

/// In granules, by agreement between the two programs.
const PAGES: u64 = 3;

/// A device that makes handles of this kind, and the size that is shared.
fn device(kind: ShareableKind) -> Option<(CudaDevice, u64)> {
    let device = first_device()?;
    let Some(handles) = device.shared_handles() else {
        vrampool_test_support::skipped("the device shares no memory");
        return None;
    };
    let kinds = handles.shareable_kinds();
    eprintln!("handles that work: {kinds:?}");
    if !kinds.contains(&kind) {
        vrampool_test_support::skipped(format_args!("the device makes no handle of kind {kind:?}"));
        return None;
    }
    let bytes = PAGES * device.granularity(self::kind()).expect("a granularity");
    Some((device, bytes))
}

/// All of it at an address of this program's.
fn mapped(device: &CudaDevice, physical: &Physical) -> CudaMemory {
    let reservation = device.reserve(physical.len()).expect("addresses");
    device.map(&reservation, 0, physical).expect("a place");
    device.set_access(&reservation, 0, physical.len()).expect("access");
    reservation
}

fn fill(device: &CudaDevice, stream: &CudaStream, memory: &CudaMemory, value: u8) {
    device.fill(stream, RegionMut::whole(memory, stream), value).expect("a fill");
    device.synchronize(stream).expect("a wait");
}

#[test]
fn another_program_reads_and_writes_it() {
    let Some((device, bytes)) = device(ShareableKind::FileDescriptor) else { return };
    let stream = device.stream();
    let physical = device
        .create_shareable(&AllocationRequest::new(bytes, kind()), ShareableKind::FileDescriptor)
        .expect("memory");
    let memory = mapped(&device, &physical);
    fill(&device, &stream, &memory, 40);
    let Ok(ShareableHandle::FileDescriptor(descriptor)) = device.export(&physical) else {
        panic!("no descriptor")
    };
    // As its standard input, which is how a descriptor gets there without a socket.
    passed(test_again("shared_handles::asked_by_the_other_program").stdin(Stdio::from(descriptor)));
    assert!(all(&device, &stream, &memory, 0, bytes, 41));
}

#[test]
#[ignore = "another test starts it, with a descriptor of shared memory as its standard input"]
fn asked_by_the_other_program() {
    let (device, bytes) = device(ShareableKind::FileDescriptor).expect("as in the other program");
    let stream = device.stream();
    let descriptor = std::io::stdin().as_fd().try_clone_to_owned().expect("a descriptor");
    let physical = device.import(ShareableHandle::FileDescriptor(descriptor), bytes).expect("memory");
    let memory = mapped(&device, &physical);
    assert!(all(&device, &stream, &memory, 0, bytes, 40));
    fill(&device, &stream, &memory, 41);
}

#[test]
fn a_handle_to_less_memory_is_refused() {
    let Some((device, bytes)) = device(ShareableKind::FileDescriptor) else { return };
    let page = bytes / PAGES;
    let physical = device
        .create_shareable(&AllocationRequest::new(bytes, kind()), ShareableKind::FileDescriptor)
        .expect("memory");
    for wrong in [0, 1, bytes - 1, bytes - page, bytes + page, 4 * bytes, u64::MAX, !(page - 1)] {
        let error = device.import(device.export(&physical).expect("a handle"), wrong).expect_err("it is not");
        eprintln!("{wrong} of {bytes} bytes: {error}");
        assert!(matches!(error, BackendError::InvalidArgument { .. }), "{error}");
    }
    let file: OwnedFd = std::fs::File::open("/dev/null").expect("a file").into();
    let error = device.import(ShareableHandle::FileDescriptor(file), bytes).expect_err("it is no memory");
    eprintln!("a file: {error}");
    assert!(!error.is_device_lost(), "{error}");
    let error = device.import(ShareableHandle::Fabric([7; 64]), bytes).expect_err("it is no handle");
    eprintln!("64 bytes: {error}");
    assert!(!error.is_device_lost(), "{error}");
    let private = device.create_physical(&AllocationRequest::new(page, kind())).expect("memory");
    let error = device.export(&private).expect_err("it was made for this program");
    assert!(matches!(error, BackendError::InvalidArgument { argument: "physical", .. }), "{error}");
    let error = device.export(&Physical::new(page, 0u8)).expect_err("it is another backend's");
    assert!(matches!(error, BackendError::InvalidArgument { argument: "physical", .. }), "{error}");
    device.import(device.export(&physical).expect("a handle"), bytes).expect("nothing is the worse for it");
}
