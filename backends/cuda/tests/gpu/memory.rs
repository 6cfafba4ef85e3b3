//! Kinds of memory, what the host may do with them, and when they are freed.

use crate::kernels::Kernels;
use crate::{BYTES, fill, first_device, memory, read};
use std::time::Duration;
use vrampool_backend::AllocationRequest;
use vrampool_cuda::{
    Backend, BackendError, Capabilities, CudaDevice, CudaMemory, Memory, MemoryKind, Placement, Region,
    RegionMut,
};

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

#[test]
fn the_host_reads_and_writes_what_it_can_see() {
    let Some(device) = first_device() else { return };
    let stream = device.create_stream().expect("a stream");
    for kind in kinds(&device) {
        let memory = device.allocate(&AllocationRequest::new(BYTES, kind)).expect("memory");
        fill(&device, &stream, &memory, 5);
        device.synchronize(&stream).expect("a wait");
        let mut bytes = [0; 4];
        if kind.placement == Placement::Device {
            let error = device.write_mapped(&memory, 0, &[1]).expect_err("the host cannot see it");
            assert!(matches!(error, BackendError::Unsupported { .. }), "{error}");
            continue;
        }
        device.read_mapped(&memory, BYTES - 4, &mut bytes).expect("a read");
        assert_eq!(bytes, [5; 4]);
        device.write_mapped(&memory, 1, &[1, 2, 3]).expect("a write");
        assert_eq!(read(&device, &stream, &memory)[..5], [5, 1, 2, 3, 5]);
        let error = device.read_mapped(&memory, BYTES - 3, &mut bytes).expect_err("it ends before");
        assert!(matches!(error, BackendError::InvalidArgument { .. }), "{error}");
    }
}

/// The driver copies pinned memory of the host when its turn comes, not when it is asked, and nothing shows a
/// slice of it.
#[test]
fn borrowed_memory_of_the_host_is_done_with_when_the_call_returns() {
    let Some(device) = first_device() else { return };
    let kernels = Kernels::new(&device);
    let stream = device.create_stream().expect("a stream");
    let memory = memory(&device);
    // SAFETY: it is filled before it is read.
    let pinned = unsafe { device.context().alloc_pinned_with_flags::<u8>(BYTES as usize, 0) };
    let mut pinned = pinned.expect("memory");
    let host = pinned.as_mut_slice().expect("the host's");
    for round in 0..50u8 {
        host.fill(round);
        kernels.spin(&stream, Duration::from_millis(1));
        device.upload(&stream, host, RegionMut::whole(&memory, &stream)).expect("an upload");
        host.fill(0xFF);
        kernels.spin(&stream, Duration::from_millis(1));
        device.download(&stream, Region::whole(&memory, &stream), host).expect("a download");
        assert!(host.iter().all(|&byte| byte == round), "round {round}: {}", host[0]);
    }
}

#[test]
fn sizes_that_cannot_be_are_typed_errors() {
    let Some(device) = first_device() else { return };
    for kind in kinds(&device) {
        for bytes in [u64::MAX, u64::MAX / 2, 1 << 60, 1 << 50] {
            let error =
                device.allocate(&AllocationRequest::new(bytes, kind)).expect_err("there is no such memory");
            eprintln!("{kind:?} {bytes}: {error}");
            assert!(
                error.is_out_of_memory() || matches!(error, BackendError::InvalidArgument { .. }),
                "{kind:?} {bytes}: {error}"
            );
        }
        let error = device.allocate(&AllocationRequest::new(0, kind)).expect_err("no memory is no memory");
        assert!(matches!(error, BackendError::InvalidArgument { argument: "bytes", .. }), "{error}");
    }
}

#[test]
fn empty_ranges_are_no_work() {
    let Some(device) = first_device() else { return };
    let stream = device.create_stream().expect("a stream");
    let (one, two) = (memory(&device), memory(&device));
    let none = |memory| Region::new(memory, BYTES, 0, &stream).expect("an empty range");
    let none_mut = |memory| RegionMut::new(memory, BYTES, 0, &stream).expect("an empty range");
    device.fill(&stream, none_mut(&one), 1).expect("nothing to do");
    device.copy(&stream, none(&one), none_mut(&two)).expect("nothing to do");
    device.upload(&stream, &[], none_mut(&one)).expect("nothing to do");
    device.download(&stream, none(&one), &mut []).expect("nothing to do");
}

#[test]
fn memory_is_allocated_and_dropped_on_many_threads_at_once() {
    let Some(device) = first_device() else { return };
    vrampool_test_support::memory_is_allocated_and_dropped_on_many_threads(&device, BYTES);
}
