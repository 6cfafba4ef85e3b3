//! Calls that a device refuses, their errors, and that these have no other effect.

use crate::{BYTES, can_map, fill, first_device, memory, of_usages, own_device, read};
use vrampool_backend::AllocationRequest;
use vrampool_test_support::BackendExt;
use vrampool_wgpu::wgpu::{self, BufferUsages};
use vrampool_wgpu::{Backend, BackendError, Memory, MemoryKind, Placement, Region, RegionMut, Usage};

fn invalid<T>(answer: Result<T, BackendError>) -> String {
    match answer {
        Err(error @ BackendError::InvalidArgument { .. }) => error.to_string(),
        Err(other) => panic!("not an invalid argument but: {other:?}"),
        Ok(_) => panic!("it was not refused"),
    }
}

#[test]
fn sizes_and_usages_that_cannot_be() {
    let Some(device) = first_device() else { return };
    let Some(own) = own_device(|_| ()) else { return };
    let has = |placement: &Placement| *placement == Placement::Device || can_map(&device);
    for placement in [Placement::Device, Placement::HostVisible].into_iter().filter(has) {
        for bytes in [0, u64::MAX, u64::MAX / 2, 1 << 60, device.properties().max_allocation + 1] {
            invalid(device.allocate(&AllocationRequest::new(bytes, placement)));
        }
    }
    for bits in [1 << 30, 1 << 40, u64::MAX] {
        invalid(device.allocate(&AllocationRequest::new(
            4,
            MemoryKind::new(Placement::Device).with_usage(Usage(bits)),
        )));
    }
    // wgpu refuses these without a feature, and its text says which.
    for usages in
        [BufferUsages::MAP_READ | BufferUsages::STORAGE, BufferUsages::MAP_READ | BufferUsages::MAP_WRITE]
    {
        let text = invalid(own.allocate(&AllocationRequest::new(4, of_usages(Placement::Device, usages))));
        assert!(text.contains("usage"), "{text}");
    }
    for kind in [Placement::Managed.into(), MemoryKind::from(Placement::HostVisible)] {
        let error = own.allocate(&AllocationRequest::new(4, kind)).expect_err("it has none");
        assert!(matches!(error, BackendError::Unsupported { .. }), "{error}");
    }
    own.allocate(&AllocationRequest::new(4, Placement::Device)).expect("the device is as it was");
}

#[test]
fn offsets_lengths_and_usages_of_copies() {
    let Some(device) = first_device() else { return };
    let stream = device.stream();
    let (one, two) = (memory(&device), memory(&device));
    fill(&device, &stream, &one, 1);
    let from = |offset, len| Region::new(&one, offset, len, &stream).expect("a region");
    let to = |offset, len| RegionMut::new(&two, offset, len, &stream).expect("a region");
    let mut bytes = [0; 8];
    // Not submitted when the others are refused.
    fill(&device, &stream, &two, 2);
    for (offset, len) in [(1, 4), (2, 4), (1, 3), (2, 6)] {
        invalid(device.copy(&stream, from(offset, len), to(0, len)));
        invalid(device.copy(&stream, from(0, len), to(offset, len)));
        invalid(device.fill(&stream, to(offset, len), 1));
        invalid(device.upload(&stream, &bytes[..len as usize], to(offset, len)));
    }
    invalid(device.download(&stream, from(1, 8), &mut bytes));
    let vertices = device.memory(8, of_usages(Placement::Device, BufferUsages::VERTEX));
    let whole = || RegionMut::whole(&vertices, &stream);
    invalid(device.fill(&stream, whole(), 0));
    invalid(device.fill(&stream, whole(), 1));
    invalid(device.upload(&stream, &bytes, whole()));
    invalid(device.copy(&stream, from(0, 8), whole()));
    invalid(device.download(&stream, Region::whole(&vertices, &stream), &mut bytes));
    let within = device.copy(
        &stream,
        Region::new(&two, 0, 8, &stream).expect("a region"),
        RegionMut::new(&two, 8, 8, &stream).expect("a region"),
    );
    assert!(matches!(within, Err(BackendError::Unsupported { .. })), "{within:?}");
    assert_eq!(read(&device, &stream, &two), vec![2; BYTES as usize], "what was enqueued is lost");
}

#[test]
fn objects_of_another_device() {
    let Some(one) = first_device() else { return };
    let Some(two) = own_device(|_| ()) else { return };
    let limited = one.with_memory_limit(1 << 20).expect("a device");
    let mine = one.stream();
    for other in [&two, &limited] {
        let stream = other.stream();
        let memory = memory(other);
        invalid(one.fill(&mine, RegionMut::whole(&memory, &mine), 0));
        invalid(one.fill(&stream, RegionMut::whole(&memory, &stream), 0));
        invalid(one.synchronize(&stream));
        invalid(one.record(&stream));
        invalid(one.wait(&mine, &other.record(&stream).expect("an event")));
        invalid(mine.view(Region::whole(&memory, &mine)));
    }
    let placement = if can_map(&limited) { Placement::HostVisible } else { Placement::Device };
    let mapped = limited.memory(4, placement);
    invalid(one.write_mapped(&mapped, 0, &[1]));
}

#[test]
fn commands_that_wgpu_refuses_take_nothing_with_them() {
    let Some(device) = first_device() else { return };
    let stream = device.stream();
    let memory = memory(&device);
    for round in 0..10u8 {
        fill(&device, &stream, &memory, round);
        // Within one buffer, and past its end.
        let text = invalid(stream.encode(|encoder| {
            encoder.copy_buffer_to_buffer(memory.buffer(), 0, memory.buffer(), 8, 8);
        }));
        assert!(text.contains("same buffer"), "{text}");
        let mut encoder = device.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.clear_buffer(memory.buffer(), memory.len(), Some(8));
        let _scope = device.device().push_error_scope(wgpu::ErrorFilter::Validation);
        invalid(stream.submit([encoder.finish()]));
        assert_eq!(read(&device, &stream, &memory), vec![round; BYTES as usize]);
    }
}
