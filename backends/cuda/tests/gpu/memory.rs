//! Kinds of memory, what the host may do with them, and when they are freed.

use crate::{BYTES, first_device, memory};
use std::time::Duration;
use vrampool_cuda::{
    Backend, Capabilities, CudaDevice, CudaMemory, Memory, MemoryKind, Placement, Region, RegionMut,
    TestKernels,
};
use vrampool_test_support::BackendExt;

const MAPPED: MemoryKind = MemoryKind::new(Placement::HostVisible).with_usage(CudaMemory::MAPPED);

fn kinds(device: &CudaDevice) -> Vec<MemoryKind> {
    let mut kinds = vec![Placement::Device.into(), Placement::HostVisible.into(), MAPPED];
    if device.properties().capabilities.contains(Capabilities::MANAGED) {
        kinds.push(Placement::Managed.into());
    }
    kinds
}

#[test]
fn every_kind_is_filled_copied_and_read() {
    let Some(device) = first_device() else { return };
    let alignment = device.properties().alignment;
    vrampool_test_support::every_kind_is_filled_copied_and_read(
        &device,
        &kinds(&device),
        BYTES,
        |memory, kind| {
            assert_eq!(memory.kind(), kind);
            assert!(memory.address().expect("an address").is_multiple_of(alignment));
        },
    );
}

/// The driver copies pinned memory of the host when its turn comes, not when it is asked, and nothing shows a
/// slice of it.
#[test]
fn borrowed_memory_of_the_host_is_done_with_when_the_call_returns() {
    let Some(device) = first_device() else { return };
    let kernels = TestKernels::load(&device).expect("kernels");
    let stream = device.stream();
    let memory = memory(&device);
    // SAFETY: it is filled before it is read.
    let pinned = unsafe { device.context().alloc_pinned_with_flags::<u8>(BYTES as usize, 0) };
    let mut pinned = pinned.expect("memory");
    let host = pinned.as_mut_slice().expect("the host's");
    for round in 0..50u8 {
        host.fill(round);
        kernels.delay(&stream, Duration::from_millis(1)).expect("queued");
        device.upload(&stream, host, RegionMut::whole(&memory, &stream)).expect("an upload");
        host.fill(0xFF);
        kernels.delay(&stream, Duration::from_millis(1)).expect("queued");
        device.download(&stream, Region::whole(&memory, &stream), host).expect("a download");
        assert!(host.iter().all(|&byte| byte == round), "round {round}: {}", host[0]);
    }
}

#[test]
fn memory_is_allocated_and_dropped_on_many_threads_at_once() {
    let Some(device) = first_device() else { return };
    vrampool_test_support::memory_is_allocated_and_dropped_on_many_threads(&device, BYTES);
}
