//! PyTorch's symbols on a CUDA device: memory is not reused under work that was recorded, with one thread and
//! with several. The simulated driver's race detector sees each mistake; on a GPU the contents do.
#![cfg(all(feature = "cuda", target_os = "linux"))]

mod calls;
mod cuda_driver;

use calls::{ok, stats, stream};
use cuda_driver::{BYTES, on_cuda};
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::mpsc;
use vrampool_c::boundary::Out;
use vrampool_c::*;

const OPTIONS: [&CStr; 2] =
    [c"device=cuda:0; limit=32MiB; source=virtual", c"device=cuda:0; limit=32MiB; source=direct"];

#[test]
fn memory_that_a_stream_was_recorded_on_waits_for_it() {
    for options in OPTIONS {
        on_cuda(options, |driver, pool| {
            let (one, two) = (stream(pool), stream(pool));
            for value in 1..=50u8 {
                let block = vrampool_torch_alloc(BYTES, 0, one);
                driver.fill(block, value, BYTES, one);
                driver.wait(one);
                // Another stream reads it, as `tensor.record_stream` says.
                let copy = vrampool_torch_alloc(BYTES, 0, two);
                driver.copy(copy, block, BYTES, two);
                vrampool_torch_record_stream(block, two);
                vrampool_torch_free(block, BYTES, 0, one);
                let next = vrampool_torch_alloc(BYTES, 0, one);
                driver.fill(next, 0xFF, BYTES, one);
                assert_eq!(driver.read(copy, two), vec![value; BYTES]);
                vrampool_torch_free(next, BYTES, 0, one);
                vrampool_torch_free(copy, BYTES, 0, two);
            }
            ok(vrampool_trim(pool, 0, Out::null()));
        });
    }
}

#[test]
fn threads_with_streams_of_their_own_share_a_pool() {
    for options in OPTIONS {
        on_cuda(options, |driver, pool| {
            std::thread::scope(|scope| {
                for thread in 1..=3u8 {
                    let own = stream(pool) as usize;
                    scope.spawn(move || {
                        let own = own as *mut c_void;
                        for round in 0..60u8 {
                            let value = thread * 60 + round % 60;
                            let block = vrampool_torch_alloc(BYTES, 0, own);
                            driver.fill(block, value, BYTES, own);
                            assert_eq!(driver.read(block, own), vec![value; BYTES]);
                            vrampool_torch_free(block, BYTES, 0, own);
                        }
                    });
                }
            });
        });
    }
}

/// What the captured stream freed and what another one freed: neither can wait for the other. The host waits
/// for the other, and the captured stream gets both.
#[test]
fn a_captured_stream_gets_what_it_freed_beside_another() {
    const ALL: u64 = 32 << 20;
    const PART: usize = 8 << 20;
    let options = c"device=cuda:0; limit=32MiB; source=virtual; size_classes=exact:2MiB; cached_class=0";
    on_cuda(options, |driver, pool| {
        let (captured, other) = (stream(pool), stream(pool));
        let id = MempoolId { first: 0, second: 1 };
        vrampool_torch_begin_allocate_to_pool(0, id, CppFunction::null());
        let (mine, theirs) = (vrampool_torch_alloc(PART, 0, captured), vrampool_torch_alloc(PART, 0, other));
        driver.fill(theirs, 1, PART, other);
        // Little else is free, or can be had.
        let rest = (ALL - stats(pool).reserved_bytes) as usize - PART / 2;
        let rest_block = vrampool_torch_alloc(rest, 0, ptr::null_mut());
        driver.begin_capture(captured);
        vrampool_torch_free(mine, PART, 0, captured);
        vrampool_torch_free(theirs, PART, 0, other);
        let both = vrampool_torch_alloc(2 * PART, 0, captured);
        assert!(!both.is_null(), "{}", last_error_text());
        driver.fill(both, 3, 2 * PART, captured);
        driver.end_capture(captured);
        vrampool_torch_end_allocate_to_pool(0, id);
        vrampool_torch_free(both, 2 * PART, 0, captured);
        vrampool_torch_free(rest_block, rest, 0, ptr::null_mut());
        vrampool_torch_release_pool(0, id);
    });
}

#[test]
fn a_thread_that_ends_calls_no_driver() {
    for options in OPTIONS {
        on_cuda(options, |_, pool| {
            let own = stream(pool);
            let block = vrampool_torch_alloc(BYTES, 0, ptr::null_mut());
            let (worked, work) = mpsc::channel();
            let (end, ended) = mpsc::channel::<()>();
            let thread = std::thread::spawn({
                let (block, own) = (block as usize, own as usize);
                move || {
                    vrampool_torch_record_stream(block as *mut c_void, own as *mut c_void);
                    worked.send(()).expect("the test waits");
                    let _ = ended.recv();
                }
            });
            work.recv().expect("the thread works");
            vrampool_torch_free(block, BYTES, 0, ptr::null_mut());
            ok(vrampool_trim(pool, 0, Out::null()));
            ok(vrampool_stream_destroy(pool, own));
            // Destroyed pools are forgotten when another goes; then the thread has the last handle to the
            // device.
            ok(vrampool_torch_shutdown());
            ok(vrampool_destroy(calls::pool(c"device=host; host_capacity=1MiB")));
            drop(end);
            thread.join().expect("no panic");
        });
    }
}
