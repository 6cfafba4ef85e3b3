//! Reserved addresses and their mappings: an access to an unmapped range is an error, and memory
//! counts once.

use std::sync::mpsc::channel;
use vrampool_backend::AllocationRequest;
use vrampool_host::{
    Backend, BackendError, Call, Capabilities, Event, HostDevice, HostMemory, HostStream, MemoryKind,
    Placement, Region, RegionMut, ShareableKind, SharedHandles, VirtualMemory,
};
use vrampool_test_support::{BackendExt, hold, is_inside, passed, test_behind};

const PAGE: u64 = 64 * 1024;

fn device(pages: u64) -> HostDevice {
    HostDevice::builder().granularity(PAGE).memory_limit(pages * PAGE).build()
}

fn free_pages(device: &HostDevice) -> u64 {
    device.memory_info().expect("no fault").free_bytes / PAGE
}

fn kind() -> MemoryKind {
    Placement::HostVisible.into()
}

/// A page that is mapped and accessible.
fn page(device: &HostDevice, reservation: &HostMemory, index: u64) {
    let physical = device.create_physical(&AllocationRequest::new(PAGE, kind())).expect("memory");
    device.map(reservation, index * PAGE, &physical).expect("room");
    device.set_access(reservation, index * PAGE, PAGE).expect("mapped");
}

fn read(device: &HostDevice, stream: &HostStream, memory: &HostMemory, offset: u64) -> u8 {
    let mut byte = [0];
    let region = Region::new(memory, offset, 1, stream).expect("inside");
    device.download(stream, region, &mut byte).expect("there");
    byte[0]
}

fn is_failure(result: Result<(), BackendError>) -> bool {
    matches!(result, Err(BackendError::StreamFailed { reason, .. }) if reason.contains("access failed"))
}

fn is_refused<T>(result: Result<T, BackendError>) -> bool {
    matches!(result, Err(BackendError::InvalidArgument { .. }))
}

#[test]
fn a_device_says_that_it_has_it_and_how_fine_it_is() {
    let plain = HostDevice::new();
    assert!(plain.properties().capabilities.contains(Capabilities::VIRTUAL_MEMORY));
    assert!(plain.virtual_memory().is_some());
    assert_eq!(plain.granularity(kind()), Ok(2 << 20));
    for (asked, has) in [(1 << 16, 1 << 16), ((1 << 16) + 1, 1 << 17), (u64::MAX, 1 << 62)] {
        let device = HostDevice::builder().granularity(asked).build();
        assert_eq!(device.granularity(kind()), Ok(has));
    }
    let finest = HostDevice::builder().granularity(0).build().granularity(kind()).expect("no fault");
    assert!(finest.is_power_of_two() && finest >= 4096);
}

#[test]
fn work_on_what_is_not_there_is_a_failure_of_its_stream_and_does_nothing() {
    let device = device(8);
    let reservation = device.reserve(3 * PAGE).expect("addresses");
    page(&device, &reservation, 0);
    let unreachable = device.create_physical(&AllocationRequest::new(PAGE, kind())).expect("memory");
    device.map(&reservation, 2 * PAGE, &unreachable).expect("room");
    let bytes = vec![7; PAGE as usize];
    let mut answer = bytes.clone();
    for (offset, len) in [(PAGE, 1), (2 * PAGE, PAGE), (PAGE - 1, 2), (0, 3 * PAGE), (3 * PAGE - 1, 1)] {
        let stream = || device.stream();
        let part = |stream: &_| RegionMut::new(&reservation, offset, len, stream).expect("inside");
        let stream_of_fill = stream();
        device.fill(&stream_of_fill, part(&stream_of_fill), 9).expect("queued");
        assert!(is_failure(device.synchronize(&stream_of_fill)), "fill {offset} {len}");
        let of_launch = stream();
        let kernel = |[]: [&[u8]; 0], [_]: [&mut [u8]; 1]| panic!("it ran");
        of_launch.launch([], [part(&of_launch)], kernel).expect("queued");
        assert!(is_failure(device.synchronize(&of_launch)), "launch {offset} {len}");
        if len <= PAGE {
            let of_upload = stream();
            device.upload(&of_upload, &bytes[..len as usize], part(&of_upload)).expect("queued");
            assert!(is_failure(device.synchronize(&of_upload)), "upload {offset} {len}");
            let of_download = stream();
            let region = part(&of_download).as_region();
            assert!(is_failure(device.download(&of_download, region, &mut answer[..len as usize])));
            assert!(device.write_mapped(&reservation, offset, &bytes[..len as usize]).is_err());
            assert!(device.read_mapped(&reservation, offset, &mut answer[..len as usize]).is_err());
        }
    }
    let stream = device.stream();
    let empty = RegionMut::new(&reservation, PAGE, 0, &stream).expect("inside");
    device.fill(&stream, empty, 9).expect("queued");
    assert_eq!(read(&device, &stream, &reservation, PAGE - 1), 0, "nothing was written");
    assert_eq!(answer, bytes, "nothing was read");
}

#[test]
fn the_host_uses_what_is_visible_to_it_and_nothing_else() {
    let device = device(8);
    let reservation = device.reserve(2 * PAGE).expect("addresses");
    page(&device, &reservation, 0);
    device.write_mapped(&reservation, PAGE - 1, &[5]).expect("visible");
    let mut byte = [0];
    device.read_mapped(&reservation, PAGE - 1, &mut byte).expect("visible");
    assert_eq!(byte, [5]);
    let hidden = device.create_physical(&AllocationRequest::new(PAGE, Placement::Device)).expect("memory");
    device.map(&reservation, PAGE, &hidden).expect("room");
    device.set_access(&reservation, PAGE, PAGE).expect("mapped");
    let answer = device.write_mapped(&reservation, PAGE - 1, &[5, 5]);
    assert!(matches!(answer, Err(BackendError::Unsupported { .. })), "{answer:?}");
}

#[test]
fn memory_counts_once_until_the_last_handle_and_the_last_mapping_are_released() {
    let device = device(4);
    let one = device.create_physical(&AllocationRequest::new(3 * PAGE, kind())).expect("memory");
    assert_eq!(free_pages(&device), 1);
    let answer = device.create_physical(&AllocationRequest::new(2 * PAGE, kind()));
    assert!(matches!(answer, Err(BackendError::OutOfMemory { free_bytes: Some(PAGE), .. })), "{answer:?}");
    let too_much = device.allocate(&AllocationRequest::new(2 * PAGE, kind()));
    assert!(too_much.is_err_and(|error| error.is_out_of_memory()), "both kinds of memory share the device");
    let reservations = [0; 2].map(|_| device.reserve(8 * PAGE).expect("addresses cost nothing"));
    for reservation in &reservations {
        device.map(reservation, 0, &one).expect("room");
        device.map(reservation, 4 * PAGE, &one).expect("room");
    }
    assert_eq!(free_pages(&device), 1);
    drop(one.clone());
    drop(one);
    let [first, second] = reservations;
    device.unmap(&first, 0, 3 * PAGE).expect("mapped");
    drop(first);
    assert_eq!(free_pages(&device), 1);
    device.unmap(&second, 0, 3 * PAGE).expect("mapped");
    assert_eq!((free_pages(&device), device.faults().calls(Call::ReleasePhysical)), (1, 0));
    drop(second);
    assert_eq!((free_pages(&device), device.faults().calls(Call::ReleasePhysical)), (4, 1));
}

#[test]
fn an_allocation_waits_for_memory_that_queued_work_still_uses() {
    let device = device(2);
    let stream = device.stream();
    let reservation = device.reserve(2 * PAGE).expect("addresses");
    page(&device, &reservation, 0);
    page(&device, &reservation, 1);
    let open = hold(&stream, RegionMut::whole(&reservation, &stream), 3);
    drop(reservation);
    assert_eq!(free_pages(&device), 0, "the kernel has it");
    let asked = device.faults().calls(Call::CreatePhysical);
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| device.create_physical(&AllocationRequest::new(2 * PAGE, kind())));
        while device.faults().calls(Call::CreatePhysical) == asked {
            std::thread::yield_now();
        }
        drop(open);
        assert!(waits.join().expect("no panic").is_ok());
    });
    device.synchronize(&stream).expect("no failure");
}

#[test]
fn unmapping_waits_for_work_and_says_that_it_met_some() {
    let device = device(2);
    let stream = device.stream();
    let reservation = device.reserve(2 * PAGE).expect("addresses");
    page(&device, &reservation, 0);
    page(&device, &reservation, 1);
    let open = hold(&stream, RegionMut::new(&reservation, 0, PAGE, &stream).expect("inside"), 3);
    device.unmap(&reservation, PAGE, PAGE).expect("no kernel uses the range");
    assert_eq!(device.races(), 0);
    std::thread::scope(|scope| {
        let unmaps = scope.spawn(|| device.unmap(&reservation, 0, PAGE));
        while device.races() == 0 && !unmaps.is_finished() {
            std::thread::yield_now();
        }
        drop(open);
        assert_eq!(device.races(), 1, "it did not wait");
        unmaps.join().expect("no panic").expect("it is free");
    });
    device.synchronize(&stream).expect("the work found its bytes");
    assert_eq!(free_pages(&device), 2);
}

#[test]
fn a_kernel_cannot_unmap_what_it_uses() {
    let device = device(1);
    let stream = device.stream();
    let reservation = std::sync::Arc::new(device.reserve(PAGE).expect("addresses"));
    page(&device, &reservation, 0);
    let (inside, same) = (device.clone(), std::sync::Arc::clone(&reservation));
    let (sender, receiver) = channel();
    let kernel = move |[bytes]: [&[u8]; 1], []: [&mut [u8]; 0]| {
        let _ = sender.send((inside.unmap(&same, 0, PAGE), bytes[0]));
    };
    stream.launch([Region::whole(&*reservation, &stream)], [], kernel).expect("queued");
    let (answer, byte) = receiver.recv().expect("it ran");
    assert!(is_refused(answer));
    assert_eq!(byte, 0);
}

#[test]
fn streams_at_two_addresses_of_the_same_memory_take_turns() {
    let device = device(1);
    let reservation = device.reserve(2 * PAGE).expect("addresses");
    let physical = device.create_physical(&AllocationRequest::new(PAGE, kind())).expect("memory");
    device.map(&reservation, 0, &physical).expect("room");
    device.map(&reservation, PAGE, &physical).expect("room");
    device.set_access(&reservation, 0, 2 * PAGE).expect("mapped");
    drop(physical);
    let streams = [0; 2].map(|_| device.stream());
    let open = hold(&streams[0], RegionMut::new(&reservation, 0, PAGE, &streams[0]).expect("inside"), 3);
    let second = RegionMut::new(&reservation, PAGE, PAGE, &streams[1]).expect("inside");
    let add = |[]: [&[u8]; 0], [bytes]: [&mut [u8]; 1]| bytes.iter_mut().for_each(|byte| *byte += 1);
    streams[1].launch([], [second], add).expect("queued");
    let added = device.record(&streams[1]).expect("queued");
    while device.races() == 0 && !added.is_complete().expect("no fault") {
        std::thread::yield_now();
    }
    drop(open);
    assert_eq!(device.races(), 1, "it did not wait");
    device.synchronize(&streams[1]).expect("no failure");
    assert_eq!(read(&device, &streams[0], &reservation, 5), 4);
}

#[test]
fn thousands_of_handles_need_no_descriptor_each() {
    let pages = 4096;
    let device = device(pages);
    let reservation = device.reserve(pages * PAGE).expect("addresses");
    (0..pages).for_each(|index| page(&device, &reservation, index));
    let stream = device.stream();
    let last = RegionMut::new(&reservation, (pages - 1) * PAGE - 1, 2, &stream).expect("inside");
    device.fill(&stream, last, 4).expect("queued");
    assert_eq!(read(&device, &stream, &reservation, (pages - 1) * PAGE), 4);
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("Linux has it").count();
    assert!(descriptors < 1000, "{descriptors}");
}

/// The system ends a process that makes a file larger than its limit; it returns no error.
#[test]
fn a_limit_on_the_size_of_files_is_an_error() {
    if !is_inside() {
        passed(&mut test_behind("ulimit -f 8", "mappings::a_limit_on_the_size_of_files_is_an_error"));
        return;
    }
    let device = device(4);
    let answers = [
        device.create_physical(&AllocationRequest::new(PAGE, kind())),
        device.create_shareable(&AllocationRequest::new(PAGE, kind()), ShareableKind::FileDescriptor),
    ];
    for answer in answers {
        assert!(
            matches!(&answer, Err(BackendError::Driver { call, .. }) if call == "ftruncate"),
            "{answer:?}"
        );
    }
    assert_eq!(free_pages(&device), 4);
}
