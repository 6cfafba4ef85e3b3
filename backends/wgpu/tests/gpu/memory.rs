//! Kinds of memory, what the host may do with them, and when it is released.

use crate::held::held;
use crate::{BYTES, can_map, counted_device, fill, first_device, mapping_device, memory, of_usages, read};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use vrampool_backend::AllocationRequest;
use vrampool_test_support::BackendExt;
use vrampool_wgpu::wgpu::{self, BufferUsages};
use vrampool_wgpu::{
    Backend, BackendError, Memory, MemoryKind, Placement, Region, RegionMut, WgpuDevice, WgpuMemory,
};

/// Returns the kinds of memory that the device has.
fn kinds(device: &WgpuDevice) -> Vec<MemoryKind> {
    let vertices = WgpuMemory::DEFAULT_USAGES | BufferUsages::VERTEX | BufferUsages::UNIFORM;
    let mut kinds = vec![Placement::Device.into(), of_usages(Placement::Device, vertices)];
    if can_map(device) {
        kinds.extend([Placement::HostVisible.into(), of_usages(Placement::HostVisible, vertices)]);
    }
    kinds
}

#[test]
fn every_kind_is_filled_copied_and_read() {
    let Some(device) = first_device() else { return };
    vrampool_test_support::every_kind_is_filled_copied_and_read(
        &device,
        &kinds(&device),
        BYTES,
        |memory, kind| {
            assert_eq!((memory.kind(), memory.address()), (kind, None));
        },
    );
}

#[test]
fn a_buffer_has_the_label_of_its_request() {
    let Some(device) = first_device() else { return };
    for (label, wanted) in [(Some("weights of layer 1"), "weights of layer 1"), (None, "vrampool")] {
        let mut request = AllocationRequest::new(BYTES, Placement::Device);
        request.label = label;
        let memory = device.allocate(&request).expect("memory");
        // wgpu shows a buffer's label in its errors alone.
        memory.buffer().destroy();
        let scope = device.device().push_error_scope(wgpu::ErrorFilter::Validation);
        device.queue().write_buffer(memory.buffer(), 0, &[0; 4]);
        let error = match pin!(scope.pop()).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(error) => error.expect("the buffer is destroyed").to_string(),
            Poll::Pending => unreachable!("it is ready outside a browser"),
        };
        assert!(error.contains(&format!("'{wanted}'")), "{error}");
    }
}

/// wgpu's own mapping would refuse the work, or wait for it.
#[test]
fn memory_is_mapped_while_work_uses_its_other_bytes() {
    let Some(device) = mapping_device() else { return };
    let stream = device.stream();
    let mapped = device.memory(2 * BYTES, Placement::HostVisible);
    let other = memory(&device);
    for round in 1..=50u8 {
        fill(&device, &stream, &other, round);
        let half = RegionMut::new(&mapped, 0, BYTES, &stream).expect("a region");
        device.copy(&stream, Region::whole(&other, &stream), half).expect("a copy");
        // Not submitted yet, then under way.
        for value in [round, !round] {
            device.write_mapped(&mapped, BYTES, &[value; 64]).expect("a write");
            let mut bytes = [0; 64];
            device.read_mapped(&mapped, BYTES, &mut bytes).expect("a read");
            assert_eq!(bytes, [value; 64]);
            stream.flush().expect("a submission");
        }
        let bytes = read(&device, &stream, &mapped);
        assert!(bytes[..BYTES as usize].iter().all(|&byte| byte == round));
        assert_eq!(bytes[BYTES as usize..][..64], [!round; 64]);
    }
}

#[test]
fn fresh_memory_is_clear() {
    let Some(device) = first_device() else { return };
    let stream = device.stream();
    for kind in kinds(&device) {
        let memory = device.memory(BYTES, kind);
        assert_eq!(read(&device, &stream, &memory), vec![0; BYTES as usize], "{kind:?}");
    }
}

/// More than goes through one staging buffer, and more than may be under way.
#[test]
fn long_transfers_go_in_pieces() {
    let Some(device) = counted_device() else { return };
    let stream = device.stream();
    let bytes = 150 << 20;
    let mut rng = fastrand::Rng::with_seed(6);
    let mut data = vec![0; bytes as usize];
    rng.fill(&mut data);
    let memory = device.memory(bytes, Placement::Device);
    let before = held(&device);
    for _ in 0..3 {
        device.upload(&stream, &data, RegionMut::whole(&memory, &stream)).expect("an upload");
    }
    let staging = held(&device) - before;
    assert!(staging <= 300 << 20, "{staging} bytes of staging memory");
    assert!(read(&device, &stream, &memory) == data);
    // Three patterns long, and not from the start.
    let part = RegionMut::new(&memory, 1_000_004, 3_000_000, &stream).expect("a region");
    device.fill(&stream, part, 0xC3).expect("a fill");
    data[1_000_004..4_000_004].fill(0xC3);
    assert!(read(&device, &stream, &memory) == data);
}

#[test]
fn a_device_with_a_limit_runs_out_and_goes_on() {
    let Some(device) = first_device() else { return };
    let device = device.with_memory_limit(4 * BYTES).expect("a device");
    assert_eq!(device.properties().total_bytes, 4 * BYTES);
    let stream = device.stream();
    let mut held: Vec<_> = (0..4).map(|_| memory(&device)).collect();
    assert_eq!(device.memory_info().expect("memory info").free_bytes, 0);
    for _ in 0..3 {
        let error = device.allocate(&AllocationRequest::new(1, Placement::Device)).expect_err("it is full");
        assert!(
            matches!(error, BackendError::OutOfMemory { requested_bytes: 1..=4, free_bytes: Some(0), .. }),
            "{error:?}"
        );
        // Nothing else is the worse for it.
        fill(&device, &stream, &held[0], 4);
        assert_eq!(read(&device, &stream, &held[0]), vec![4; BYTES as usize]);
        drop(held.pop());
        // Dropped memory counts until its work is known to be complete.
        device.reclaim().expect("no fault");
        assert_eq!(device.memory_info().expect("memory info").free_bytes, BYTES);
        held.push(memory(&device));
    }
    held.clear();
    device.reclaim().expect("no fault");
    assert_eq!(device.memory_info().expect("memory info").free_bytes, 4 * BYTES);
    let placement = if can_map(&device) { Placement::HostVisible } else { Placement::Device };
    device.allocate(&AllocationRequest::new(4 * BYTES, placement)).expect("all of it");
}

#[test]
fn threads_that_drop_memory_in_use_at_the_limit_are_never_refused() {
    let Some(device) = first_device() else { return };
    let device = device.with_memory_limit(5 * BYTES).expect("a device");
    let placements = [Placement::Device; 2];
    vrampool_test_support::threads_that_drop_memory_in_use_are_not_refused(&device, BYTES, placements);
    device.reclaim().expect("no fault");
    assert_eq!(device.memory_info().expect("memory info").free_bytes, 5 * BYTES);
}

#[test]
fn dropped_memory_gets_back_to_the_driver_without_a_wait() {
    // More is submitted when it is dropped.
    const LARGE: u64 = 16 << 20;
    let Some(device) = counted_device() else { return };
    let stream = device.stream();
    let keep = memory(&device);
    fill(&device, &stream, &keep, 1);
    device.synchronize(&stream).expect("a wait");
    let before = held(&device);
    for _ in 0..3 {
        let large = device.memory(LARGE, Placement::Device);
        assert!(held(&device) >= before + LARGE);
        fill(&device, &stream, &large, 0);
        let part = Region::new(&large, 0, BYTES, &stream).expect("a region");
        device.copy(&stream, part, RegionMut::whole(&keep, &stream)).expect("a copy");
        // The work that uses it is not even submitted.
        drop(large);
        assert!(held(&device) >= before + LARGE, "the work's memory went away");
        stream.flush().expect("a submission");
        // Nothing is requested but memory.
        let back = (0..1_000_000).any(|_| {
            drop(device.memory(4, Placement::Device));
            std::thread::yield_now();
            held(&device) < before + LARGE
        });
        assert!(back, "{} of {before}", held(&device));
    }
    assert_eq!(read(&device, &stream, &keep), vec![0; BYTES as usize]);
}

#[test]
fn memory_is_allocated_and_dropped_on_many_threads_at_once() {
    let Some(device) = first_device() else { return };
    vrampool_test_support::memory_is_allocated_and_dropped_on_many_threads(&device, BYTES);
}

#[test]
fn usages_are_those_of_the_buffer() {
    let Some(device) = first_device() else { return };
    let usages = BufferUsages::INDEX | BufferUsages::COPY_DST;
    let memory = device.memory(16, of_usages(Placement::Device, usages));
    assert_eq!(memory.buffer().usage(), usages);
    let readback = of_usages(Placement::Device, BufferUsages::MAP_READ | BufferUsages::COPY_DST);
    let readback = device
        .allocate(&AllocationRequest::new(16, readback))
        .expect("a read-back buffer of the program's own");
    assert_eq!(readback.buffer().usage(), BufferUsages::MAP_READ | BufferUsages::COPY_DST);
    assert!(wgpu::BufferSize::new(readback.buffer().size()).is_some());
}
