//! Segments on a CUDA device while a stream is captured into a graph: the capture goes on, and no memory goes that its
//! work may use. The simulated driver fails a capture as the real one does.
#![cfg(all(feature = "cuda", target_os = "linux"))]

mod calls;
mod cuda_driver;

use calls::{SEGMENTS, Segment, free_bytes, ok, on_malloc, stream};
use cuda_driver::{BYTES, on_cuda};
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use vrampool_c::boundary::{Numbers, Out};
use vrampool_c::*;
use vrampool_cuda_simulator_control::Simulator;

const OPTIONS: &CStr = c"device=cuda:0; source=virtual";

/// A segment is used by captured work, on the stream that it was allocated for or that is named with the free.
#[test]
fn a_capture_outlives_segments_that_are_freed_or_unmapped_in_it() {
    on_cuda(OPTIONS, |driver, pool| {
        driver.enter();
        let foreign = driver.create_stream();
        for (captured, other) in [(stream(pool), stream(pool)), (foreign, stream(pool))] {
            let before = free_bytes(pool);
            let (kept, freed) = (Segment::new(BYTES, captured), Segment::new(BYTES, other));
            driver.begin_capture(captured);
            driver.fill(freed.place(), 1, BYTES, captured);
            driver.fill(kept.place(), 1, BYTES, captured);
            // Refused, and nothing is done.
            assert_eq!(kept.unmap(), Status::CAPTURE, "{}", last_error_text());
            assert!(last_error_text().contains("after the capture"), "{}", last_error_text());
            assert_eq!(kept.map(), Status::INVALID_ARGUMENT, "{}", last_error_text());
            driver.fill(kept.place(), 2, BYTES, other);
            assert_eq!(driver.read(kept.place(), other), vec![2; BYTES]);
            // Deferred.
            ok(freed.free(captured));
            assert_eq!(freed.free(captured), Status::INVALID_POINTER, "it is freed once");
            let next = Segment::new(BYTES, other);
            assert_ne!(next.address, freed.address, "its addresses are not reused meanwhile");
            ok(next.free(captured));
            // Fails for a capture that was invalidated.
            driver.end_capture(captured);
            ok(kept.unmap());
            ok(kept.free(other));
            assert_eq!(free_bytes(pool), before, "what was deferred went back");
        }
        driver.destroy_stream(foreign);
        ok(vrampool_segment_callbacks(None, None, ptr::null_mut()));
    });
}

/// Fails for a segment that is not known, as vLLM's callback does.
extern "C" fn forget(_: *mut c_void, _: i32, bytes: u64, address: u64, number: u64) -> Status {
    let mut known = SEGMENTS.lock().expect("no test fails under it");
    match known.iter().position(|other| *other == Segment { bytes, address, number }) {
        Some(at) => {
            known.swap_remove(at);
            Status::OK
        }
        None => Status::MISMATCH,
    }
}

/// Allocates, unmaps, maps and frees a segment, in vLLM's order. What fails is tried again without a fault.
fn cycle() {
    let made = vrampool_segment_alloc(BYTES, 0, ptr::null_mut());
    if made.is_null() {
        assert!(SEGMENTS.lock().expect("whole").is_empty(), "a failed allocation is forgotten");
        return;
    }
    let segment = SEGMENTS.lock().expect("whole")[0];
    let mut is_mapped = true;
    for change in [Segment::unmap, Segment::map] {
        if change(&segment) == Status::OK {
            is_mapped = !is_mapped;
            continue;
        }
        // Nothing has changed: the other direction is refused, and this one works.
        let other = if is_mapped { Segment::map } else { Segment::unmap };
        assert_ne!(other(&segment), Status::OK);
        ok(change(&segment));
        is_mapped = !is_mapped;
    }
    vrampool_segment_free(made, BYTES, 0, ptr::null_mut());
    assert!(SEGMENTS.lock().expect("whole").is_empty(), "a segment is freed whatever fails");
}

static IS_FREED: AtomicBool = AtomicBool::new(false);

extern "C" fn on_free(_: *mut c_void, device: i32, bytes: u64, address: u64, number: u64) -> Status {
    let mut is_asleep = -1;
    ok(vrampool_segment_is_asleep(number, Out::from(&mut is_asleep)));
    assert_eq!(is_asleep, 0, "it exists");
    ok(vrampool_segments_save(Numbers::of(&[number]), 1, None, ptr::null_mut()));
    let (mut saved, mut saved_bytes) = (ptr::null_mut(), 0);
    ok(vrampool_segment_saved(number, Out::from(&mut saved), Out::from(&mut saved_bytes)));
    assert_eq!(saved_bytes, bytes);
    ok(vrampool_segment_unmap_and_release(device, bytes, address, number));
    vrampool_segment_free(address as *mut c_void, BYTES, device, ptr::null_mut());
    assert_eq!(vrampool_last_error_code(), Status::INVALID_POINTER, "it is freed once");
    vrampool_clear_error();
    IS_FREED.store(true, SeqCst);
    Status::OK
}

/// It is called before the segment is freed, and may call vrampool.
#[test]
fn the_callback_of_a_free_finds_the_segment() {
    on_cuda(OPTIONS, |driver, pool| {
        driver.enter();
        let before = free_bytes(pool);
        let segment = Segment::new(BYTES, ptr::null_mut());
        ok(vrampool_segment_callbacks(Some(on_malloc), Some(on_free), ptr::null_mut()));
        ok(segment.free(ptr::null_mut()));
        assert!(IS_FREED.load(SeqCst), "it was called");
        assert_eq!(free_bytes(pool), before);
        let mut is_asleep = 0;
        ok(vrampool_segment_is_asleep(segment.number, Out::from(&mut is_asleep)));
        assert_eq!(is_asleep, -1);
        ok(vrampool_segment_callbacks(None, None, ptr::null_mut()));
    });
}

/// Each driver call of a segment's life fails once: no memory and no record stays.
#[test]
fn a_driver_call_that_fails_leaves_nothing_behind() {
    const OUT_OF_MEMORY: i32 = 2;
    const INVALID_VALUE: i32 = 1;
    on_cuda(OPTIONS, |driver, pool| {
        let Some(simulator) = Simulator::loaded() else { return };
        driver.enter();
        ok(vrampool_segment_callbacks(Some(on_malloc), Some(forget), ptr::null_mut()));
        cycle();
        let mut before = free_bytes(pool);
        let mut failed = Vec::new();
        for code in [OUT_OF_MEMORY, INVALID_VALUE] {
            for skip in 0.. {
                assert!(skip < 200, "a cycle has few calls");
                simulator.fail_next(skip, code);
                cycle();
                let function = simulator.failed();
                simulator.fail_next(0, 0);
                if function.is_empty() {
                    break;
                }
                // Releases memory that could not be released for want of a wait.
                cycle();
                // The driver keeps memory that it does not release: a segment's, and what the device is probed with.
                let kept = match &*function {
                    "cuMemRelease" => 2 << 20,
                    "cuMemFree_v2" => 4 << 10,
                    _ => 0,
                };
                before -= kept;
                assert_eq!(free_bytes(pool), before, "after a fault of {function}");
                failed.push(function);
            }
        }
        for call in ["cuMemAddressReserve", "cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap"] {
            assert!(failed.iter().any(|function| function == call), "{call} did not fail: {failed:?}");
        }
        ok(vrampool_segment_callbacks(None, None, ptr::null_mut()));
    });
}

/// PyTorch calls under the lock of its allocator; tensors are freed by other threads than those that made them.
#[test]
fn threads_free_segments_of_others_under_pytorchs_lock() {
    on_cuda(OPTIONS, |driver, pool| {
        driver.enter();
        ok(vrampool_segment_callbacks(Some(on_malloc), Some(forget), ptr::null_mut()));
        let before = free_bytes(pool);
        let (pytorchs, live) = (Mutex::new(()), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    driver.enter();
                    for _ in 0..20 {
                        let lock = pytorchs.lock().expect("whole");
                        let made = vrampool_segment_alloc(BYTES, 0, ptr::null_mut());
                        drop(lock);
                        assert!(!made.is_null(), "{}", last_error_text());
                        let mut live = live.lock().expect("whole");
                        live.push(made as usize);
                        let other = live.swap_remove(0);
                        drop(live);
                        let lock = pytorchs.lock().expect("whole");
                        vrampool_clear_error();
                        vrampool_segment_free(other as *mut c_void, BYTES, 0, ptr::null_mut());
                        ok(vrampool_last_error_code());
                        drop(lock);
                    }
                });
            }
        });
        assert_eq!((SEGMENTS.lock().expect("whole").len(), live.into_inner().expect("whole").len()), (0, 0));
        assert_eq!(free_bytes(pool), before);
        ok(vrampool_segment_callbacks(None, None, ptr::null_mut()));
    });
}
