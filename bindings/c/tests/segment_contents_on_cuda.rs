//! Contents of segments on a CUDA device: each driver call of a copy fails once, and no contents are lost.
#![cfg(all(feature = "cuda", target_os = "linux"))]

mod calls;
mod cuda_driver;

use calls::{Segment, free_bytes, ok};
use cuda_driver::{Driver, on_cuda};
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use vrampool_c::boundary::{Numbers, Out};
use vrampool_c::*;
use vrampool_cuda_simulator_control::Simulator;

/// Bytes of a segment.
const BYTES: usize = 2 << 20;

extern "C" fn count(user: *mut c_void, copied: u64, total: u64) {
    // SAFETY: the caller passes the address of a number that outlives the call.
    unsafe { *user.cast::<(u64, u64)>() = (copied, total) };
}

/// Some segments, the n-th of which is filled with n + 1.
struct Segments<'a> {
    driver: &'a Driver,
    all: Vec<Segment>,
}

impl<'a> Segments<'a> {
    fn new(driver: &'a Driver, number: usize) -> Self {
        let all = (0..number).map(|_| Segment::new(BYTES, ptr::null_mut())).collect();
        let made = Self { driver, all };
        made.fill(1);
        made
    }

    fn fill(&self, first: u8) {
        for (value, segment) in (first..).zip(&self.all) {
            self.driver.fill(segment.place(), value, BYTES, ptr::null_mut());
        }
        self.driver.wait(ptr::null_mut());
    }

    fn holds(&self) -> bool {
        (1..).zip(&self.all).all(|(value, segment)| {
            let mut read = vec![0_u8; BYTES];
            let to = read.as_mut_ptr().cast();
            self.driver.copy(to, segment.place(), BYTES, ptr::null_mut());
            self.driver.wait(ptr::null_mut());
            read.iter().all(|&byte| byte == value)
        })
    }

    fn numbers(&self) -> Vec<u64> {
        self.all.iter().map(|segment| segment.number).collect()
    }

    fn save(&self) -> Status {
        vrampool_segments_save(Numbers::of(&self.numbers()), self.all.len(), None, ptr::null_mut())
    }

    fn restore(&self) -> Status {
        vrampool_segments_restore(Numbers::of(&self.numbers()), self.all.len(), None, ptr::null_mut())
    }

    fn forget(&self, keeps_memory: bool) {
        let numbers = self.numbers();
        let keeps = i32::from(keeps_memory);
        ok(vrampool_segments_forget(Numbers::of(&numbers), numbers.len(), keeps));
    }

    /// The saved bytes of each.
    fn saved(&self) -> Vec<u64> {
        let saved = |number: u64| {
            let (mut address, mut bytes) = (ptr::null_mut(), 0);
            let status = vrampool_segment_saved(number, Out::from(&mut address), Out::from(&mut bytes));
            assert_eq!((status, address.is_null()), (Status::OK, bytes == 0));
            bytes
        };
        self.numbers().into_iter().map(saved).collect()
    }

    fn change(&self, change: fn(&Segment) -> Status) {
        self.all.iter().for_each(|segment| ok(change(segment)));
    }
}

impl Drop for Segments<'_> {
    fn drop(&mut self) {
        for segment in &self.all {
            let _ = segment.free(ptr::null_mut());
        }
        let _ = vrampool_segment_callbacks(None, None, ptr::null_mut());
    }
}

const OPTIONS: [&CStr; 2] =
    [c"device=cuda:0; source=virtual", c"device=cuda:0; source=virtual; offload=pageable"];

#[test]
fn contents_outlast_a_cycle() {
    for options in OPTIONS {
        on_cuda(options, |driver, pool| {
            driver.enter();
            let before = free_bytes(pool);
            let segments = Segments::new(driver, 3);
            let numbers = segments.numbers();
            let mut seen = (0_u64, 0_u64);
            let user = (&raw mut seen).cast();
            ok(vrampool_segments_save(Numbers::of(&numbers), 3, Some(count), user));
            assert_eq!(seen, (3 * BYTES as u64, 3 * BYTES as u64));
            segments.change(Segment::unmap);
            assert_eq!(free_bytes(pool), before);
            assert_eq!(segments.restore(), Status::ASLEEP, "nothing is mapped");
            assert_eq!(segments.save(), Status::ASLEEP, "nothing is mapped");
            segments.change(Segment::map);
            segments.fill(50);
            ok(segments.restore());
            assert!(segments.holds());
            segments.forget(true);
            assert_eq!(segments.saved(), [0; 3]);
            assert_eq!(segments.restore(), Status::OK, "nothing is saved");
            assert!(segments.holds());
            drop(segments);
            assert_eq!(free_bytes(pool), before);
        });
    }
}

/// Whether a copy has begun, which goes on when the other is unlocked.
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
static GATE: Mutex<()> = Mutex::new(());

extern "C" fn hold(_: *mut c_void, _: u64, _: u64) {
    HAS_BEGUN.store(true, SeqCst);
    drop(GATE.lock().expect("whole"));
}

/// One that is freed while a call that then fails has locked it, and waits for another.
#[test]
fn a_save_or_restore_that_fails_releases_what_was_freed_meanwhile() {
    on_cuda(OPTIONS[0], |driver, pool| {
        driver.enter();
        let before = free_bytes(pool);
        for call in [Segments::save, Segments::restore] {
            for yields in 0.. {
                assert!(yields < 24, "the call locks the first segment");
                let mut segments = Segments::new(driver, 3);
                ok(segments.save());
                segments.change(Segment::unmap);
                let [first, held, _] = [0, 1, 2].map(|at: usize| segments.all[at]);
                [first, held].iter().for_each(|segment| ok(segment.map()));
                let gate = GATE.lock().expect("whole");
                let is_deferred = thread::scope(|scope| {
                    let copy = scope.spawn(|| {
                        driver.enter();
                        vrampool_segments_save(Numbers::of(&[held.number]), 1, Some(hold), ptr::null_mut())
                    });
                    while !HAS_BEGUN.swap(false, SeqCst) {
                        thread::yield_now();
                    }
                    let failing = scope.spawn(|| {
                        driver.enter();
                        call(&segments)
                    });
                    (0..1 << yields).for_each(|_| thread::yield_now());
                    let mapped = free_bytes(pool);
                    ok(first.free(ptr::null_mut()));
                    let is_deferred = free_bytes(pool) == mapped;
                    drop(gate);
                    assert_eq!(failing.join().expect("no panic"), Status::ASLEEP);
                    ok(copy.join().expect("no panic"));
                    is_deferred
                });
                assert_eq!(free_bytes(pool), before - BYTES as u64, "the freed one is released");
                segments.all.remove(0);
                if is_deferred {
                    break;
                }
            }
        }
        assert_eq!(free_bytes(pool), before);
    });
}

#[test]
fn a_driver_call_that_fails_loses_no_contents() {
    for options in OPTIONS {
        on_cuda(options, |driver, pool| {
            let Some(simulator) = Simulator::loaded() else { return };
            driver.enter();
            let before = free_bytes(pool);
            let segments = Segments::new(driver, 3);
            let mut failed = Vec::new();
            // The n-th driver call fails, until there are fewer.
            for saves in [true, false] {
                for skip in 0.. {
                    assert!(skip < 200, "a copy has few calls");
                    if !saves {
                        ok(segments.save());
                        segments.change(Segment::unmap);
                        segments.change(Segment::map);
                        segments.fill(50);
                    }
                    simulator.fail_next(skip, 1);
                    let status = if saves { segments.save() } else { segments.restore() };
                    let function = simulator.failed();
                    simulator.fail_next(0, 0);
                    if status != Status::OK && saves {
                        assert_eq!(segments.saved(), [0; 3], "after a fault of {function}");
                    } else {
                        assert_eq!(segments.saved(), [BYTES as u64; 3], "after a fault of {function}");
                        ok(segments.restore());
                    }
                    assert!(segments.holds(), "after a fault of {function}");
                    // Two times of four with host memory of the one before.
                    segments.forget(skip % 4 < 2);
                    if function.is_empty() {
                        break;
                    }
                    failed.push(function);
                }
            }
            for call in ["cuMemcpy", "cuStreamSynchronize", "cuStreamCreate", "cuMemHostAlloc"] {
                assert!(
                    failed.iter().any(|function| function.starts_with(call)),
                    "{call} did not fail: {failed:?}"
                );
            }
            drop(segments);
            assert_eq!(free_bytes(pool), before, "{failed:?}");
        });
    }
}
