//! Calls with one block from several threads: each takes effect. Streams are identified by what they are, not
//! by their handles.

mod calls;

use calls::{allocate, ok, pool, stream};
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
