//! Memory that wgpu holds, by its own counters, compared with live bytes.

use crate::{counted_device, fill, first_device, own_device, read};
use fastrand::Rng;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_backend::AllocationRequest;
use vrampool_test_support::BackendExt;
use vrampool_wgpu::{Backend, Memory, Placement, RegionMut, WgpuDevice, WgpuStream, wgpu};

const MIB: u64 = 1 << 20;
/// The documented bound of held bytes beyond live ones.
const MOST_DROPPED: u64 = 32 * MIB;
/// As much as the staging of these tests takes: little is uploaded.
const STAGING: u64 = 8 * MIB;

fn alone() -> Option<(WgpuDevice, WgpuStream)> {
    let device = counted_device()?;
    let stream = device.stream();
    Some((device, stream))
}

/// The memory that wgpu has from the driver, by the larger of its two counters. They differ by some bytes.
pub(crate) fn held(device: &WgpuDevice) -> u64 {
    let report = device.device().generate_allocator_report().expect("a report").total_allocated_bytes;
    let counter = device.device().get_internal_counters().hal.buffer_memory.read();
    assert!(counter >= 0, "{counter}");
    report.max(counter as u64)
}

/// Sets the first bytes of a memory.
fn touch(device: &WgpuDevice, stream: &WgpuStream, memory: &vrampool_wgpu::WgpuMemory) {
    let start = RegionMut::new(memory, 0, 4096, stream).expect("a region");
    device.fill(stream, start, 0).expect("queued");
}

#[test]
fn a_loop_of_large_memory_holds_one_and_a_bounded_rest() {
    let Some((device, stream)) = alone() else { return };
    let most = 50 * MIB + MOST_DROPPED + STAGING;
    for _ in 0..50 {
        let memory = device.memory(50 * MIB, Placement::Device);
        assert!(held(&device) <= most, "{} bytes", held(&device));
        touch(&device, &stream, &memory);
    }
    device.reclaim().expect("no fault");
    assert!(held(&device) <= STAGING, "{} bytes are left", held(&device));
}

#[test]
fn dropped_memory_counts_against_the_limit_until_its_work_is_done() {
    let Some(device) = first_device() else { return };
    let device = device.with_memory_limit(64 * MIB).expect("a device");
    let stream = device.stream();
    let free = || device.memory_info().expect("figures").free_bytes;
    let memory = device.memory(16 * MIB, Placement::Device);
    touch(&device, &stream, &memory);
    drop(memory);
    assert_eq!(free(), 48 * MIB, "the work is not submitted");
    stream.flush().expect("submitted");
    device.synchronize(&stream).expect("no fault");
    assert_eq!(free(), 64 * MIB);
    for _ in 0..20 {
        // Before a refusal, what was dropped is waited for.
        let memory =
            device.allocate(&AllocationRequest::new(60 * MIB, Placement::Device)).expect("there is room");
        touch(&device, &stream, &memory);
    }
    device.reclaim().expect("no fault");
    assert_eq!(free(), 64 * MIB);
}

#[test]
fn memory_dropped_beyond_the_bound_is_submitted_at_once() {
    let Some((device, stream)) = alone() else { return };
    let memory = device.memory(64 * MIB, Placement::Device);
    touch(&device, &stream, &memory);
    drop(memory);
    // Nothing flushes.
    device.device().poll(wgpu::PollType::wait_indefinitely()).expect("no fault");
    assert!(held(&device) <= STAGING, "{} bytes", held(&device));
}

/// Four threads that allocate, use and drop, without a trim: never more than the limit of their
/// accounts and the bound.
#[test]
fn four_threads_hold_what_is_live_and_a_bounded_rest() {
    const LIVE: u64 = 48 * MIB;
    let Some((device, _)) = alone() else { return };
    let live = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let (device, live) = (&device, &live);
            scope.spawn(move || {
                let stream = device.stream();
                let (mut rng, mut mine) = (Rng::with_seed(seed), Vec::new());
                for round in 0..300_u64 {
                    let bytes = rng.u64(1..8 * MIB);
                    // Counted before it is asked for, and until it is dropped.
                    let fits = |all: u64| (all + bytes <= LIVE).then_some(all + bytes);
                    if live.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok() {
                        let memory = device.memory(bytes, Placement::Device);
                        let held = held(device);
                        assert!(held <= LIVE + MOST_DROPPED + STAGING, "{held} bytes");
                        let end = bytes.min(4096);
                        let start = RegionMut::new(&memory, 0, end / 4 * 4, &stream).expect("a region");
                        device.fill(&stream, start, 0).expect("queued");
                        mine.push(memory);
                    }
                    while mine.len() > 3 || (!mine.is_empty() && (round % 16 == 15 || rng.bool())) {
                        let memory = mine.swap_remove(rng.usize(..mine.len()));
                        let bytes = memory.len();
                        drop(memory);
                        live.fetch_sub(bytes, Ordering::SeqCst);
                    }
                }
                let bytes: u64 = mine.iter().map(Memory::len).sum();
                drop(mine);
                live.fetch_sub(bytes, Ordering::SeqCst);
            });
        }
    });
    device.reclaim().expect("no fault");
    assert!(held(&device) <= STAGING, "{} bytes are left", held(&device));
}

/// Transfers and fills of more than a buffer of the device may have, and of less.
#[test]
fn a_device_of_small_buffers_transfers_what_it_allocates() {
    for largest in [4 * MIB, 512 << 10, 4096 + 4, 256] {
        let device = own_device(|limits| {
            limits.max_buffer_size = largest;
            limits.max_storage_buffer_binding_size = limits.max_storage_buffer_binding_size.min(largest);
            limits.max_uniform_buffer_binding_size = limits.max_uniform_buffer_binding_size.min(largest);
        });
        let Some(device) = device else { return };
        let stream = device.stream();
        let most = device.properties().max_allocation;
        assert_eq!(most, largest / 4 * 4);
        for bytes in [most, most * 3 / 4 / 4 * 4, 4, 5.min(most), most - 1] {
            let memory = device.memory(bytes, Placement::Device);
            let data: Vec<u8> = (0..bytes).map(|byte| (byte * 7 + (byte >> 9)) as u8).collect();
            device.upload(&stream, &data, RegionMut::whole(&memory, &stream)).expect("an upload");
            assert!(read(&device, &stream, &memory) == data, "{bytes} of {largest}");
            for value in [0, 9] {
                fill(&device, &stream, &memory, value);
                assert!(
                    read(&device, &stream, &memory) == vec![value; bytes as usize],
                    "{bytes} of {largest}"
                );
            }
        }
    }
}
