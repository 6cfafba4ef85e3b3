//! Memory whose address host and device share: freed behind the work that uses it, and not before.

use crate::programs::Programs;
use crate::{BYTES, all_devices, copy, fill, read};
use opencl3::command_queue::{
    CL_QUEUE_REFERENCE_COUNT, get_command_queue_info, release_command_queue, retain_command_queue,
};
use vrampool_backend::AllocationRequest;
use vrampool_opencl::{
    Backend, BackendError, Capabilities, DeviceKind, Memory, OpenClDevice, OpenClMemory, Placement,
};
use vrampool_test_support::{BackendExt, every_kind_is_filled_copied_and_read, streams};

fn shared(device: &OpenClDevice) -> OpenClMemory {
    device.memory(BYTES, Placement::Managed)
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
        let alignment = device.properties().alignment;
        let kinds = [Placement::Managed.into(), Placement::Device.into()];
        every_kind_is_filled_copied_and_read(&device, &kinds, BYTES, |memory, kind| {
            let address = memory.address();
            assert!(
                kind == kinds[1] || address.expect("it has one").is_multiple_of(alignment),
                "{address:#x?}"
            );
        });
        let (stream, memory) = (device.stream(), shared(&device));
        programs.set_slowly(&stream, &memory, 4, 1);
        device.synchronize(&stream).expect("a wait");
        let mut bytes = vec![0; BYTES as usize];
        device.read_mapped(&memory, 0, &mut bytes).expect("it is mapped");
        assert_eq!(bytes, vec![4; BYTES as usize]);
    }
}

/// Also if the stream of the work was dropped.
#[test]
fn memory_that_waits_to_be_freed_is_waited_for_where_there_is_no_other() {
    for (device, _) in devices() {
        let device = OpenClDevice::builder(device.listed().ordinal).memory_limit(2 * BYTES).build();
        let device = device.expect("a device");
        let programs = Programs::new(&device);
        for round in 0..20 {
            let [one, two] = [shared(&device), shared(&device)];
            let [stream, reader] = streams(&device);
            programs.set_slowly(&stream, &one, round, 3);
            copy(&device, &stream, &one, &two);
            let done = device.record(&stream).expect("an event");
            let _kept = (round % 2 == 0).then_some(stream);
            drop(one);
            // There is no room until the kernel is done.
            let three = shared(&device);
            fill(&device, &reader, &three, 0xFF);
            device.wait(&reader, &done).expect("a wait");
            assert_eq!(read(&device, &reader, &two), vec![round; BYTES as usize]);
            let full =
                device.allocate(&AllocationRequest::new(1, Placement::Managed)).expect_err("it is full");
            assert!(full.is_out_of_memory(), "{full}");
        }
    }
}

#[test]
fn the_last_handle_to_a_device_may_go_before_the_work_is_done() {
    for (device, _) in devices() {
        let device = OpenClDevice::builder(device.listed().ordinal).build().expect("a device");
        let programs = Programs::new(&device);
        let (stream, memory) = (device.stream(), shared(&device));
        programs.set_slowly(&stream, &memory, 1, 20);
        drop(memory);
        drop((programs, stream, device));
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
            let memory = device.memory(BYTES, placement);
            let other = crate::memory(&device);
            let mut queues = Vec::new();
            for value in 0..STREAMS {
                let stream = device.stream();
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
            let stream = device.stream();
            assert_eq!(read(&device, &stream, &memory), vec![(STREAMS - 1) as u8; BYTES as usize]);
            for queue in queues {
                // SAFETY: the count that was taken above.
                unsafe { release_command_queue(queue) }.expect("a queue");
            }
        }
    }
}
