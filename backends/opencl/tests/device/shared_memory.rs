//! Memory whose address host and device share: freed behind the work that uses it, and not before.

use crate::programs::Programs;
use crate::{BYTES, all_devices, copy, fill, read};
use opencl3::command_queue::{
    CL_QUEUE_REFERENCE_COUNT, get_command_queue_info, release_command_queue, retain_command_queue,
};
use vrampool_backend::AllocationRequest;
use vrampool_opencl::{
    Backend, BackendError, Capabilities, DeviceKind, Memory, OpenClDevice, OpenClMemory, Placement, Region,
};

fn shared(device: &OpenClDevice) -> OpenClMemory {
    device.allocate(&AllocationRequest::new(BYTES, Placement::Managed)).expect("memory")
}

/// Every device that has shared memory, with the program's kernels. One without refuses it by name.
fn devices() -> Vec<(OpenClDevice, Programs)> {
    let mut devices = all_devices();
    devices.retain(|device| {
        let has = device.properties().capabilities.contains(Capabilities::MANAGED);
        if !has {
            let answer = device.allocate(&AllocationRequest::new(BYTES, Placement::Managed));
            assert!(matches!(answer, Err(BackendError::Unsupported { .. })), "{answer:?}");
            vrampool_test_support::skipped(format_args!("{} has no shared memory", device.properties().name));
        }
        has
    });
    devices.into_iter().map(|device| (Programs::new(&device), device)).map(|(p, d)| (d, p)).collect()
}

#[test]
fn shared_memory_does_what_memory_does() {
    for (device, programs) in devices() {
        let stream = device.create_stream().expect("a stream");
        let (one, two, plain) = (shared(&device), shared(&device), crate::memory(&device));
        let address = one.address().expect("it has one");
        assert!(address.is_multiple_of(device.properties().alignment), "{address:#x}");
        device.write_mapped(&one, 0, &vec![1; BYTES as usize]).expect("it is mapped");
        copy(&device, &stream, &one, &two);
        assert_eq!(read(&device, &stream, &two), vec![1; BYTES as usize]);
        fill(&device, &stream, &one, 2);
        copy(&device, &stream, &one, &plain);
        assert_eq!(read(&device, &stream, &plain), vec![2; BYTES as usize]);
        fill(&device, &stream, &plain, 3);
        copy(&device, &stream, &plain, &two);
        assert_eq!(read(&device, &stream, &two), vec![3; BYTES as usize]);
        programs.set_slowly(&stream, &two, 4, 1);
        device.synchronize(&stream).expect("a wait");
        let mut bytes = vec![0; BYTES as usize];
        device.read_mapped(&two, 0, &mut bytes).expect("it is mapped");
        assert_eq!(bytes, vec![4; BYTES as usize]);
        device.write_mapped(&two, 8, &[9; 8]).expect("it is mapped");
        assert_eq!(read(&device, &stream, &two)[..24], [[4; 8], [9; 8], [4; 8]].concat());
    }
}

#[test]
fn memory_that_waits_to_be_freed_is_waited_for_where_there_is_no_other() {
    for (device, _) in devices() {
        let device = OpenClDevice::builder(device.listed().ordinal).memory_limit(2 * BYTES).build();
        let device = device.expect("a device");
        let programs = Programs::new(&device);
        let stream = device.create_stream().expect("a stream");
        for round in 0..10 {
            let [one, two] = [shared(&device), shared(&device)];
            programs.set_slowly(&stream, &one, round, 3);
            copy(&device, &stream, &one, &two);
            drop(one);
            // There is no room until the kernel is done.
            let three = shared(&device);
            fill(&device, &stream, &three, 0xFF);
            assert_eq!(read(&device, &stream, &two), vec![round; BYTES as usize]);
            let error =
                device.allocate(&AllocationRequest::new(1, Placement::Managed)).expect_err("it is full");
            assert!(error.is_out_of_memory(), "{error}");
        }
    }
}

#[test]
fn the_last_handle_to_a_device_may_go_before_the_work_is_done() {
    for (device, _) in devices() {
        let device = OpenClDevice::builder(device.listed().ordinal).build().expect("a device");
        let programs = Programs::new(&device);
        let (stream, memory) = (device.create_stream().expect("a stream"), shared(&device));
        programs.set_slowly(&stream, &memory, 1, 20);
        drop(memory);
        drop((programs, stream, device));
    }
}

#[test]
fn a_view_keeps_shared_memory_in_use() {
    for (device, programs) in devices() {
        let stream = device.create_stream().expect("a stream");
        let seen = crate::memory(&device);
        for round in 0..20 {
            let memory = shared(&device);
            programs.set_slowly(&stream, &memory, round, 3);
            device
                .copy(
                    &stream,
                    Region::whole(&memory, &stream),
                    vrampool_opencl::RegionMut::whole(&seen, &stream),
                )
                .expect("a copy");
            drop(memory);
            let next = shared(&device);
            device.write_mapped(&next, 0, &vec![0xFF; BYTES as usize]).expect("it is mapped");
            assert_eq!(read(&device, &stream, &seen), vec![round; BYTES as usize]);
        }
    }
}

/// Memory that the driver knows only by address keeps a record of its streams, but none of their queues.
#[test]
fn memory_keeps_no_queue_of_a_dropped_stream() {
    const STREAMS: usize = 300;
    for device in all_devices() {
        let device = OpenClDevice::builder(device.listed().ordinal).kind(DeviceKind::Discrete).build();
        let device = device.expect("a device");
        let has_shared = device.properties().capabilities.contains(Capabilities::MANAGED);
        let placements = [Placement::Managed, Placement::HostVisible];
        for placement in placements.into_iter().filter(|one| has_shared || *one != Placement::Managed) {
            let memory = device.allocate(&AllocationRequest::new(BYTES, placement)).expect("memory");
            let other = crate::memory(&device);
            let mut queues = Vec::new();
            for value in 0..STREAMS {
                let stream = device.create_stream().expect("a stream");
                fill(&device, &stream, &other, value as u8);
                // Pinned memory stays mapped under copies.
                copy(&device, &stream, &other, &memory);
                device.synchronize(&stream).expect("a wait");
                // SAFETY: the stream keeps the queue alive; the count is released below.
                unsafe { retain_command_queue(stream.queue()) }.expect("a queue");
                queues.push(stream.queue());
            }
            let counts = queues.iter().map(|queue| {
                let info = get_command_queue_info(*queue, CL_QUEUE_REFERENCE_COUNT).expect("a count");
                u32::from(info)
            });
            let kept = counts.filter(|count| *count > 1).count();
            assert!(kept <= 32, "{placement:?}: {kept} of {STREAMS} queues are kept");
            let stream = device.create_stream().expect("a stream");
            assert_eq!(read(&device, &stream, &memory), vec![(STREAMS - 1) as u8; BYTES as usize]);
            for queue in queues {
                // SAFETY: the count that was taken above.
                unsafe { release_command_queue(queue) }.expect("a queue");
            }
        }
    }
}

/// The end of the work of a dropped stream is waited for all the same.
#[test]
fn memory_waits_for_dropped_streams() {
    for (device, programs) in devices() {
        let device = OpenClDevice::builder(device.listed().ordinal).memory_limit(2 * BYTES).build();
        let device = device.expect("a device");
        drop(programs);
        let programs = Programs::new(&device);
        for round in 0..10 {
            let [one, two] = [shared(&device), shared(&device)];
            let stream = device.create_stream().expect("a stream");
            programs.set_slowly(&stream, &one, round, 3);
            copy(&device, &stream, &one, &two);
            let done = device.record(&stream).expect("an event");
            drop((one, stream));
            let next = shared(&device);
            let reader = device.create_stream().expect("a stream");
            fill(&device, &reader, &next, 0xFF);
            device.wait(&reader, &done).expect("a wait");
            assert_eq!(read(&device, &reader, &two), vec![round; BYTES as usize]);
        }
    }
}
