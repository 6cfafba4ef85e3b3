//! PyTorch's symbols on a CUDA device: captures, and the ends of threads and pools. The simulated driver's race
//! detector sees each mistake.
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

#[test]
fn the_last_block_of_a_destroyed_pool_is_freed_behind_the_stream_that_frees_it() {
    for options in OPTIONS {
        on_cuda(options, |driver, pool| {
            let (one, two) = (stream(pool), stream(pool));
            let block = vrampool_torch_alloc(BYTES, 0, one);
            driver.fill(block, 1, BYTES, two);
            ok(vrampool_destroy(pool));
            vrampool_clear_error();
            vrampool_torch_free(block, BYTES, 0, two);
            ok(vrampool_last_error_code());
        });
    }
}
