//! Handles that mean another stream on another thread, or later: memory is not reused under the work of a
//! stream because its handle is that of the block's. The simulated driver's race detector sees each mistake;
//! on a GPU the contents do.
#![cfg(all(feature = "cuda", target_os = "linux"))]

mod calls;
mod cuda_driver;

use calls::ok;
use cuda_driver::{BYTES, PER_THREAD, on_cuda};
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::mpsc::channel;
use std::thread;
use vrampool_c::boundary::Out;
use vrampool_c::*;
use vrampool_cuda_simulator_control::Simulator;
use vrampool_test_support::{passed, test_again};

const OPTIONS: [&CStr; 2] =
    [c"device=cuda:0; limit=32MiB; source=virtual", c"device=cuda:0; limit=32MiB; source=direct"];

/// How a program gives a block back that a stream used.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// PyTorch's free, with the stream that used it.
    TorchFree,
    /// PyTorch's `record_stream`, then a free with the block's own.
    TorchRecord,
    /// The C ABI's free, with the stream that used it.
    Free,
    /// The C ABI's `vrampool_record_stream`, then a free with the block's own.
    Record,
}

const WAYS: [Way; 4] = [Way::TorchFree, Way::TorchRecord, Way::Free, Way::Record];

impl Way {
    fn allocate(self, pool: u64, stream: *mut c_void) -> *mut c_void {
        let mut block = ptr::null_mut();
        match self {
            Self::TorchFree | Self::TorchRecord => block = vrampool_torch_alloc(BYTES, 0, stream),
            Self::Free | Self::Record => {
                let allocated = vrampool_allocate(pool, BYTES as u64, stream, Out::from(&mut block));
                ok(allocated);
            }
        }
        assert!(!block.is_null(), "{}", last_error_text());
        block
    }

    /// What the user says once its work is enqueued; and whether that was the free.
    fn used(self, pool: u64, block: *mut c_void, stream: *mut c_void) -> bool {
        let status = match self {
            Self::TorchFree => {
                vrampool_torch_free(block, BYTES, 0, stream);
                return true;
            }
            Self::TorchRecord => {
                vrampool_torch_record_stream(block, stream);
                return false;
            }
            Self::Free => vrampool_free(pool, block, stream),
            Self::Record => vrampool_record_stream(block, stream),
        };
        ok(status);
        matches!(self, Self::Free)
    }

    fn free(self, pool: u64, block: *mut c_void, stream: *mut c_void) {
        match self {
            Self::TorchFree | Self::TorchRecord => vrampool_torch_free(block, BYTES, 0, stream),
            Self::Free | Self::Record => {
                ok(vrampool_free(pool, block, stream));
            }
        }
    }
}

/// One thread's block is read on another thread under the same handle, and freed; then the first thread
/// asks again.
#[test]
fn the_default_stream_of_another_thread_is_another_one() {
    for (options, way) in OPTIONS.into_iter().flat_map(|options| WAYS.map(|way| (options, way))) {
        on_cuda(options, |driver, pool| {
            driver.enter();
            for value in 1..=20u8 {
                let block = way.allocate(pool, PER_THREAD);
                driver.fill(block, value, BYTES, PER_THREAD);
                driver.wait(PER_THREAD);
                let address = block as usize;
                let ((used, is_used), (go, signal)) = (channel(), channel());
                thread::scope(|scope| {
                    let reader = scope.spawn(move || {
                        driver.enter();
                        let (block, copy) = (address as *mut c_void, way.allocate(pool, PER_THREAD));
                        driver.copy(copy, block, BYTES, PER_THREAD);
                        used.send(way.used(pool, block, PER_THREAD)).expect("it listens");
                        signal.recv().expect("it sends");
                        let copied = driver.read(copy, PER_THREAD);
                        way.free(pool, copy, PER_THREAD);
                        copied
                    });
                    if !is_used.recv().expect("it sends") {
                        way.free(pool, block, PER_THREAD);
                    }
                    let next = way.allocate(pool, PER_THREAD);
                    driver.fill(next, 0xFF, BYTES, PER_THREAD);
                    go.send(()).expect("it listens");
                    assert_eq!(reader.join().expect("no panic"), vec![value; BYTES], "{way:?}");
                    way.free(pool, next, PER_THREAD);
                });
            }
        });
    }
}

#[test]
#[ignore = "another test starts it"]
fn reuses_a_handle() {
    let simulator = Simulator::loaded().expect("the test that starts this one checked it");
    for (options, way) in OPTIONS.into_iter().flat_map(|options| WAYS.map(|way| (options, way))) {
        on_cuda(options, |driver, pool| {
            driver.enter();
            let other = driver.create_stream();
            for value in 1..=20u8 {
                let first = driver.create_stream();
                let block = way.allocate(pool, first);
                driver.fill(block, value, BYTES, first);
                ok(vrampool_stream_retire(pool, first));
                driver.destroy_stream(first);
                let second = driver.create_stream();
                assert_eq!(first, second, "the handle comes again");
                let copy = way.allocate(pool, second);
                simulator.hold(second as usize);
                driver.copy(copy, block, BYTES, second);
                if !way.used(pool, block, second) {
                    way.free(pool, block, second);
                }
                let next = way.allocate(pool, other);
                driver.fill(next, 0xFF, BYTES, other);
                simulator.release(second as usize);
                assert_eq!(driver.read(copy, second), vec![value; BYTES], "{way:?}");
                driver.wait(other);
                way.free(pool, next, other);
                way.free(pool, copy, second);
                ok(vrampool_stream_retire(pool, second));
                driver.destroy_stream(second);
            }
            ok(vrampool_stream_retire(pool, other));
            driver.destroy_stream(other);
        });
    }
}

/// A driver gives the handle of a destroyed stream to another one; the simulated one does so at once, if it
/// is signal to.
#[test]
fn a_handle_that_comes_again_is_another_stream() {
    if Simulator::or_skip().is_none() {
        return;
    }
    passed(test_again("reuses_a_handle").env("VRAMPOOL_SIMULATOR", "strict=1,reuse=1"));
}
