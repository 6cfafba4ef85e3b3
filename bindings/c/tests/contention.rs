//! Calls with one block from several threads: each takes effect. Streams are identified by what they are, not
//! by their handles.

mod calls;

use calls::{allocate, ok, pool, stats, stream};
use std::ffi::c_void;
use std::sync::Barrier;
use vrampool_c::*;

#[test]
fn no_stream_of_several_threads_is_lost() {
    const ROUNDS: usize = 2_000;
    let pool = pool(c"device=host; host_capacity=16MiB; source=direct");
    let own = stream(pool) as usize;
    let others: Vec<_> = (0..3).map(|_| stream(pool) as usize).collect();
    let address = allocate(pool, 1000, own as *mut c_void) as usize;
    let begin = Barrier::new(others.len());
    std::thread::scope(|scope| {
        for &other in &others {
            let begin = &begin;
            scope.spawn(move || {
                begin.wait();
                for _ in 0..ROUNDS {
                    vrampool_clear_error();
                    vrampool_torch_record_stream(address as *mut c_void, other as *mut c_void);
                    ok(vrampool_last_error_code());
                    ok(vrampool_record_stream(address as *mut c_void, other as *mut c_void));
                }
            });
        }
    });
    ok(vrampool_free(pool, address as *mut c_void, own as *mut c_void));
    others.into_iter().chain([own]).for_each(|stream| {
        ok(vrampool_stream_destroy(pool, stream as *mut c_void));
    });
    ok(vrampool_destroy(pool));
}

/// A free that meets another call with the block waits for it, rather than fail and leave the block live.
#[test]
fn a_block_is_freed_although_another_call_uses_it() {
    const ROUNDS: usize = 2_000;
    let pool = pool(c"device=host; host_capacity=16MiB; source=direct");
    let (own, other) = (stream(pool) as usize, stream(pool) as usize);
    for _ in 0..ROUNDS {
        let address = allocate(pool, 1000, own as *mut c_void) as usize;
        let begin = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                begin.wait();
                // It may be freed already; it is never busy.
                let status = vrampool_record_stream(address as *mut c_void, other as *mut c_void);
                assert!(matches!(status, Status::OK | Status::INVALID_POINTER), "{}", last_error_text());
            });
            begin.wait();
            ok(vrampool_free(pool, address as *mut c_void, own as *mut c_void));
        });
    }
    assert_eq!(stats(pool).live_buffers, 0);
    for stream in [own, other] {
        ok(vrampool_stream_destroy(pool, stream as *mut c_void));
    }
    ok(vrampool_destroy(pool));
}
