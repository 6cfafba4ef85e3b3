//! Many threads at once, in different parts and in each other's way.

use crate::laws::{PAGE, Real};
use std::sync::atomic::{AtomicBool, Ordering};
use vrampool_backend::AllocationRequest;
use vrampool_host::{Backend, BackendError, HostDevice, Placement, RegionMut, VirtualMemory};
use vrampool_test_support::BackendExt;

#[test]
fn threads_map_and_unmap_parts_while_streams_copy_in_others() {
    const THREADS: u64 = 4;
    let device = HostDevice::builder().granularity(PAGE).memory_limit(THREADS * 3 * PAGE).build();
    let reservation = device.reserve(THREADS * 4 * PAGE).expect("addresses");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let (device, reservation) = (&device, &reservation);
            scope.spawn(move || {
                let stream = device.stream();
                let base = thread * 4 * PAGE;
                let part = |page, pages| {
                    RegionMut::new(reservation, base + page * PAGE, pages * PAGE, &stream).expect("inside")
                };
                for round in 0..200_u64 {
                    let memory: Vec<_> = [1, 2]
                        .map(|pages| {
                            device.create_physical(&AllocationRequest::new(pages * PAGE, Placement::Device))
                        })
                        .into_iter()
                        .collect::<Result<_, _>>()
                        .expect("each thread has its share");
                    let [first, second] = if round % 2 == 0 { [0, 1] } else { [3, 1] };
                    device.map(reservation, base + first * PAGE, &memory[0]).expect("room");
                    device.map(reservation, base + second * PAGE, &memory[1]).expect("room");
                    device.set_access(reservation, base + first * PAGE, PAGE).expect("mapped");
                    device.set_access(reservation, base + second * PAGE, 2 * PAGE).expect("mapped");
                    let value = (round * THREADS + thread) as u8;
                    device.fill(&stream, part(second, 2), 0xFF).expect("queued");
                    device.fill(&stream, part(first, 1), value).expect("queued");
                    device.copy(&stream, part(first, 1).as_region(), part(2, 1)).expect("queued");
                    let mut bytes = vec![0; 2 * PAGE as usize];
                    device.download(&stream, part(1, 2).as_region(), &mut bytes).expect("there");
                    let (filled, copied) = bytes.split_at(PAGE as usize);
                    assert!(filled.iter().all(|&byte| byte == 0xFF), "round {round}");
                    assert!(copied.iter().all(|&byte| byte == value), "round {round}");
                    device.unmap(reservation, base + first * PAGE, PAGE).expect("mapped");
                    device.unmap(reservation, base + second * PAGE, 2 * PAGE).expect("mapped");
                }
            });
        }
    });
    assert_eq!(device.races(), 0, "parts do not meet");
    assert_eq!(device.memory_info().expect("no fault").free_bytes, THREADS * 3 * PAGE);
}

#[test]
fn work_under_a_storm_of_mapping_is_done_or_fails_and_nothing_else() {
    let real = Real::new();
    let device = &real.device;
    let reservation = device.reserve(2 * PAGE).expect("addresses");
    let physical = device.create_physical(&AllocationRequest::new(PAGE, Placement::Device)).expect("memory");
    let over = AtomicBool::new(false);
    let (mut done, mut failed) = (0, 0);
    std::thread::scope(|scope| {
        // Two threads are in each other's way: they map, unmap and let in without a word to anyone.
        for offset in [0, PAGE] {
            let (reservation, physical, over) = (&reservation, &physical, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let _ = device.map(reservation, offset, physical);
                    let _ = device.set_access(reservation, offset, PAGE);
                    // Here and there: where threads share a core, work gets its turn now with the page and
                    // now without.
                    std::thread::yield_now();
                    let _ = device.unmap(reservation, offset, PAGE);
                    std::thread::yield_now();
                }
            });
        }
        // Ends the threads also when an assertion below does not hold.
        let _end = End(&over);
        while done < 100 || failed < 100 {
            match real.work(|stream| device.fill(stream, RegionMut::new(&reservation, 0, PAGE, stream)?, 1)) {
                Ok(()) => done += 1,
                Err(BackendError::StreamFailed { .. }) => failed += 1,
                Err(other) => panic!("{other}"),
            }
        }
    });
}

struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
