//! Memory that is handed on: to another device of the process, and to another process.
#![cfg(target_os = "linux")]

use rustix::fs::{MemfdFlags, OFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create, open};
use std::os::fd::{AsFd, OwnedFd};
use std::process::Stdio;
use vrampool_host::{
    AllocationRequest, Backend, BackendError, Call, HostDevice, HostMemory, Physical, Placement, Region,
    RegionMut, ShareableHandle, ShareableKind, SharedHandles, VirtualMemory,
};
use vrampool_test_support::{BackendExt, hold, is_inside, passed, test_again};

const PAGE: u64 = 64 * 1024;

fn device() -> HostDevice {
    HostDevice::builder().granularity(PAGE).memory_limit(4 * PAGE).build()
}

fn shareable(device: &HostDevice, pages: u64) -> Physical {
    let kind = Placement::Device;
    device
        .create_shareable(&AllocationRequest::new(pages * PAGE, kind), ShareableKind::FileDescriptor)
        .expect("memory")
}

fn export(device: &HostDevice, physical: &Physical) -> OwnedFd {
    match device.export(physical).expect("it is shareable") {
        ShareableHandle::FileDescriptor(descriptor) => descriptor,
        other => panic!("{other:?}"),
    }
}

fn import(device: &HostDevice, descriptor: OwnedFd, bytes: u64) -> Result<Physical, BackendError> {
    device.import(ShareableHandle::FileDescriptor(descriptor), bytes)
}

fn mapped(device: &HostDevice, physical: &Physical) -> HostMemory {
    let reservation = device.reserve(physical.len()).expect("addresses");
    device.map(&reservation, 0, physical).expect("room");
    device.set_access(&reservation, 0, physical.len()).expect("mapped");
    reservation
}

fn fill(device: &HostDevice, memory: &HostMemory, value: u8) {
    let stream = device.stream();
    device.fill(&stream, RegionMut::whole(memory, &stream), value).expect("queued");
    device.synchronize(&stream).expect("no failure");
}

fn last(device: &HostDevice, memory: &HostMemory) -> u8 {
    let stream = device.stream();
    let mut byte = [0];
    let end = vrampool_host::Memory::len(memory) - 1;
    device
        .download(&stream, Region::new(memory, end, 1, &stream).expect("inside"), &mut byte)
        .expect("there");
    byte[0]
}

#[test]
fn two_devices_have_the_same_memory_and_one_pays() {
    let [one, two] = [device(), device()];
    let physical = shareable(&one, 2);
    let imported = import(&two, export(&one, &physical), 2 * PAGE).expect("a handle");
    let again =
        import(&one, export(&two, &imported), PAGE).expect("imported memory is shareable, in part too");
    let free = |device: &HostDevice| device.memory_info().expect("no fault").free_bytes / PAGE;
    assert_eq!((free(&one), free(&two)), (2, 4));
    let [first, second] = [mapped(&one, &physical), mapped(&two, &imported)];
    fill(&one, &first, 7);
    assert_eq!(last(&two, &second), 7);
    fill(&two, &second, 8);
    assert_eq!(last(&one, &mapped(&one, &again)), 8);
    drop((first, physical));
    assert_eq!((free(&one), last(&two, &second)), (4, 8));
    assert!(two.map(&second, 0, &again).is_err(), "each device has handles of its own");
}

#[test]
fn work_of_two_devices_on_the_same_memory_takes_turns() {
    let [one, two] = [device(), device()];
    let physical = shareable(&one, 1);
    let imported = import(&two, export(&one, &physical), PAGE).expect("a handle");
    let [first, second] = [mapped(&one, &physical), mapped(&two, &imported)];
    let stream = one.stream();
    let open = hold(&stream, RegionMut::whole(&first, &stream), 3);
    std::thread::scope(|scope| {
        let reads = scope.spawn(|| last(&two, &second));
        while two.races() == 0 && !reads.is_finished() {
            std::thread::yield_now();
        }
        drop(open);
        assert_eq!(two.races(), 1, "it did not wait");
        assert_eq!(reads.join().expect("no panic"), 3);
    });
}

fn file(bytes: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a file");
    ftruncate(&file, bytes).expect("resized");
    fcntl_add_seals(&file, seals).expect("sealed");
    file
}

#[test]
fn files_that_could_end_the_process_are_refused() {
    let device = device();
    let cases: [(&str, OwnedFd, u64); 6] = [
        ("a file on no memory", std::fs::File::open("/proc/self/exe").expect("Linux has it").into(), PAGE),
        ("a device", std::fs::File::open("/dev/zero").expect("Linux has it").into(), PAGE),
        ("a file that can shrink", file(PAGE, SealFlags::GROW), PAGE),
        ("a file that is too small", file(2 * PAGE - 1, SealFlags::SHRINK), 2 * PAGE),
        ("a file that cannot be written", file(PAGE, SealFlags::SHRINK | SealFlags::WRITE), PAGE),
        ("half a granule", file(PAGE, SealFlags::SHRINK), PAGE / 2),
    ];
    for (what, descriptor, bytes) in cases {
        let answer = import(&device, descriptor, bytes);
        assert!(matches!(answer, Err(BackendError::InvalidArgument { .. })), "{what}: {answer:?}");
    }
    let good = file(PAGE, SealFlags::SHRINK);
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&good));
    let read_only = open(path, OFlags::RDONLY, rustix::fs::Mode::empty()).expect("it is there");
    assert!(import(&device, read_only, PAGE).is_err(), "a descriptor that only reads");
    let imported = import(&device, good, PAGE).expect("another program's memory will do");
    fill(&device, &mapped(&device, &imported), 1);
    let exported = export(&device, &shareable(&device, 1));
    assert!(ftruncate(&exported, 0).is_err() && ftruncate(&exported, 2 * PAGE).is_err(), "sealed");
}

#[test]
fn faults_and_other_kinds_are_errors_that_take_nothing() {
    let device = device();
    let kind = Placement::Device;
    assert_eq!(device.shareable_kinds(), [ShareableKind::FileDescriptor]);
    let fabric = device.create_shareable(&AllocationRequest::new(PAGE, kind), ShareableKind::Fabric);
    assert!(matches!(fabric, Err(BackendError::Unsupported { .. })));
    let fabric = device.import(ShareableHandle::Fabric([0; 64]), PAGE);
    assert!(matches!(fabric, Err(BackendError::Unsupported { .. })));
    let create =
        || device.create_shareable(&AllocationRequest::new(PAGE, kind), ShareableKind::FileDescriptor);
    device.faults().fail_nth(Call::CreatePhysical, 1);
    assert!(create().is_err());
    assert!(
        device
            .create_shareable(&AllocationRequest::new(5 * PAGE, kind), ShareableKind::FileDescriptor)
            .is_err_and(|e| e.is_out_of_memory())
    );
    assert_eq!(device.memory_info().expect("no fault").free_bytes, 4 * PAGE);
    let physical = create().expect("memory");
    device.faults().fail_nth(Call::Export, 1);
    assert!(device.export(&physical).is_err());
    device.faults().fail_nth(Call::Import, 1);
    assert!(import(&device, export(&device, &physical), PAGE).is_err());
    import(&device, export(&device, &physical), PAGE).expect("a handle");
}

#[test]
fn a_second_process_sees_it_and_writes_it() {
    let device = device();
    let physical = shareable(&device, 1);
    let memory = mapped(&device, &physical);
    fill(&device, &memory, 41);
    passed(test_again("second_process").stdin(Stdio::from(export(&device, &physical))));
    assert_eq!(last(&device, &memory), 42);
}

/// The second process; returns at once in the first.
#[test]
fn second_process() {
    if !is_inside() {
        return;
    }
    let device = device();
    let handle = std::io::stdin().as_fd().try_clone_to_owned().expect("a descriptor");
    let memory = mapped(&device, &import(&device, handle, PAGE).expect("a handle"));
    let value = last(&device, &memory);
    assert_eq!(value, 41);
    fill(&device, &memory, value + 1);
}
