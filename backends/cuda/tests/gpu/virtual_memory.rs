//! Separate addresses and memory: what is mapped where, seen from copies and kernels, and what is refused.

use crate::first_device;
use vrampool_backend::AllocationRequest;
use vrampool_cuda::cudarc::driver::result;
use vrampool_cuda::{
    Backend, BackendError, Capabilities, CudaDevice, CudaMemory, CudaStream, Memory, MemoryKind, Physical,
    Placement, Region, RegionMut, TestKernels, VirtualMemory,
};
use vrampool_test_support::BackendExt;

pub(crate) fn kind() -> MemoryKind {
    Placement::Device.into()
}

/// A device with virtual memory, and its granularity. Another is skipped, and says so, unless it is required.
pub(crate) fn device() -> Option<(CudaDevice, u64)> {
    let device = first_device()?;
    let granularity = match device.virtual_memory() {
        Some(memory) => memory.granularity(kind()).expect("a granularity"),
        None => {
            vrampool_test_support::skipped("the device has no virtual memory");
            return None;
        }
    };
    assert!(device.properties().capabilities.contains(Capabilities::VIRTUAL_MEMORY));
    assert!(granularity.is_power_of_two() && granularity >= 4096, "{granularity}");
    Some((device, granularity))
}

fn invalid<T: std::fmt::Debug>(answer: Result<T, BackendError>) {
    let error = answer.expect_err("it is to be refused");
    assert!(matches!(error, BackendError::InvalidArgument { .. }), "{error}");
}

/// New memory at `offset`, accessible.
pub(crate) fn mapped(device: &CudaDevice, reservation: &CudaMemory, offset: u64, bytes: u64) -> Physical {
    device.create_and_map(reservation, offset, &AllocationRequest::new(bytes, kind())).expect("memory")
}

fn fill(device: &CudaDevice, stream: &CudaStream, memory: &CudaMemory, offset: u64, bytes: u64, value: u8) {
    let region = RegionMut::new(memory, offset, bytes, stream).expect("a region");
    device.fill(stream, region, value).expect("a fill");
}

/// Whether every byte of a range is `value`.
pub(crate) fn all(
    device: &CudaDevice,
    stream: &CudaStream,
    memory: &CudaMemory,
    offset: u64,
    bytes: u64,
    value: u8,
) -> bool {
    let mut read = vec![!value; bytes as usize];
    let region = Region::new(memory, offset, bytes, stream).expect("a region");
    device.download(stream, region, &mut read).expect("a download");
    read.iter().all(|&byte| byte == value)
}

#[test]
fn a_reservation_is_memory_where_something_is_mapped() {
    let Some((device, page)) = device() else { return };
    let stream = device.stream();
    let reservation = device.reserve(64 * page).expect("addresses");
    assert_eq!((reservation.len(), reservation.kind()), (64 * page, kind()));
    assert!(reservation.address().expect("an address").is_multiple_of(page));
    let pieces: Vec<_> = [(0, 1), (1, 3), (4, 2)]
        .map(|(at, pages)| mapped(&device, &reservation, at * page, pages * page))
        .into();
    // One fill and one copy over three mappings, to ordinary memory and back to the last of them.
    fill(&device, &stream, &reservation, 0, 6 * page, 5);
    let ordinary = device.memory(page, kind());
    fill(&device, &stream, &ordinary, 0, page, 7);
    let to = RegionMut::new(&reservation, 5 * page / 2, page, &stream).expect("a region");
    device.copy(&stream, Region::whole(&ordinary, &stream), to).expect("a copy");
    assert!(all(&device, &stream, &reservation, 0, 5 * page / 2, 5));
    assert!(all(&device, &stream, &reservation, 5 * page / 2, page, 7));
    assert!(all(&device, &stream, &reservation, 7 * page / 2, 5 * page / 2, 5));
    // Where nothing is mapped nothing is done, and the device is none the worse for it.
    for (offset, bytes) in [(6 * page, 1), (63 * page, page), (6 * page - 1, 2), (0, 64 * page)] {
        let region = RegionMut::new(&reservation, offset, bytes, &stream).expect("a region");
        invalid(device.fill(&stream, region, 1));
        let region = Region::new(&reservation, offset, bytes, &stream).expect("a region");
        invalid(device.download(&stream, region, &mut vec![0; bytes as usize]));
    }
    device.synchronize(&stream).expect("a wait");
    // Taken out by one call, which covers the three.
    device.unmap(&reservation, 0, 6 * page).expect("whole mappings");
    let region = RegionMut::new(&reservation, 0, 1, &stream).expect("a region");
    invalid(device.fill(&stream, region, 1));
    drop((pieces, reservation));
}

#[test]
fn kernels_run_on_mapped_memory() {
    let Some((device, page)) = device() else { return };
    let kernels = TestKernels::load(&device).expect("kernels");
    let stream = device.stream();
    let reservation = device.reserve(4 * page).expect("addresses");
    let _pieces = [0, 1, 2, 3].map(|at| mapped(&device, &reservation, at * page, page));
    let region = |offset, len| RegionMut::new(&reservation, offset, len, &stream).expect("a region");
    fill(&device, &stream, &reservation, 0, 8, 0);
    kernels.write_pattern(&stream, region(page / 2, 3 * page), 5).expect("queued");
    for (seed, is_the_pattern) in [(5, true), (6, false)] {
        let pattern = region(page / 2, 3 * page).as_region();
        kernels.count_mismatches(&stream, pattern, seed, region(0, 8)).expect("queued");
        assert_eq!(all(&device, &stream, &reservation, 0, 8, 0), is_the_pattern);
    }
}

#[test]
fn memory_that_is_not_the_devices_own_is_not_mapped() {
    let Some((device, page)) = device() else { return };
    for placement in [Placement::HostVisible, Placement::Managed] {
        for error in [
            device.granularity(placement.into()).expect_err("not the device's own"),
            device
                .create_physical(&AllocationRequest::new(page, placement))
                .expect_err("not the device's own"),
        ] {
            assert!(matches!(error, BackendError::Unsupported { .. }), "{error}");
        }
    }
}

#[test]
fn a_tebibyte_of_addresses_costs_no_memory() {
    let Some((device, page)) = device() else { return };
    let stream = device.stream();
    let bytes = (1u64 << 40).next_multiple_of(page);
    let reservation = device.reserve(bytes).expect("addresses");
    let last = mapped(&device, &reservation, bytes - page, page);
    fill(&device, &stream, &reservation, bytes - page, page, 1);
    assert!(all(&device, &stream, &reservation, bytes - page, page, 1));
    drop(last);
}

#[test]
fn several_threads_map_at_once_none_of_which_ever_saw_a_context() {
    let Some((device, page)) = device() else { return };
    let reservation = device.reserve(64 * page).expect("addresses");
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (device, reservation) = (&device, &reservation);
            scope.spawn(move || {
                let at = thread * 8 * page;
                let first = mapped(device, reservation, at, page);
                assert!(
                    result::ctx::get_current().expect("an answer").is_none(),
                    "a context was left behind"
                );
                let stream = device.stream();
                for round in 0..10u8 {
                    let value = (thread as u8) << 4 | round;
                    let place = at + page * (1 + u64::from(round) % 6);
                    let second = mapped(device, reservation, place, page);
                    fill(device, &stream, reservation, place, page, value);
                    assert!(all(device, &stream, reservation, place, page, value));
                    device.unmap(reservation, place, second.len()).expect("it was mapped");
                }
                device.unmap(reservation, at, first.len()).expect("it was mapped");
                drop(device.reserve(page).expect("addresses"));
            });
        }
    });
    // All of it is free again.
    let whole = mapped(&device, &reservation, 0, 64 * page);
    drop((reservation, whole));
}

#[test]
fn the_context_is_made_current_and_stays() {
    let Some(device) = first_device() else { return };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..2 {
                device.ensure_context().expect("a context");
                let current = result::ctx::get_current().expect("an answer");
                assert_eq!(current, Some(device.context().cu_ctx()));
            }
        });
    });
}
