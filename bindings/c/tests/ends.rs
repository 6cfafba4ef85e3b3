//! The end of blocks, pools and streams: what is freed or destroyed is refused, and leaves nothing behind.

mod calls;

use calls::{Torch, allocate, ok, pool, stats, stream};
use std::ffi::c_void;
use std::ptr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_c::boundary::Out;
use vrampool_c::*;

/// A line of `/proc/self/status`, as a number.
fn status_of_process(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("it is there");
    line.chars().filter(char::is_ascii_digit).collect::<String>().parse().expect("a number")
}

#[test]
fn a_destroyed_pool_answers_nothing_once_its_blocks_are_free() {
    let pool = pool(c"device=host; host_capacity=1MiB; source=direct");
    let (own, mut number) = (stream(pool), 0);
    let block = allocate(pool, 100, own);
    ok(vrampool_destroy(pool));
    assert_eq!(vrampool_memory_info(pool, Out::from(&mut number), Out::null()), Status::INVALID_HANDLE);
    assert_eq!(vrampool_stream_create(pool, Out::from(&mut ptr::null_mut())), Status::INVALID_HANDLE);
    // Its block may need its streams.
    ok(vrampool_stream_synchronize(pool, own));
    ok(vrampool_stream_destroy(pool, own));
    ok(vrampool_free(pool, block, ptr::null_mut()));
    assert_eq!(vrampool_stream_synchronize(pool, ptr::null_mut()), Status::INVALID_HANDLE);
}

#[test]
fn the_end_of_a_segment_is_reported_once() {
    static REPORTS: AtomicU64 = AtomicU64::new(0);
    extern "C" fn on_free(_: *mut c_void, _: i32, _: u64, _: u64, _: u64) -> Status {
        REPORTS.fetch_add(1, Ordering::Relaxed);
        Status::OK
    }
    const ROUNDS: u64 = 200;
    let _torch = Torch::new(c"device=host; host_capacity=16MiB");
    ok(vrampool_segment_callbacks(None, Some(on_free), ptr::null_mut()));
    for _ in 0..ROUNDS {
        let segment = vrampool_segment_alloc(1 << 20, 0, ptr::null_mut()) as usize;
        assert_ne!(segment, 0, "{}", last_error_text());
        let begin = Barrier::new(2);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    begin.wait();
                    vrampool_segment_free(segment as *mut c_void, 1 << 20, 0, ptr::null_mut());
                });
            }
        });
    }
    assert_eq!(REPORTS.load(Ordering::Relaxed), ROUNDS);
    ok(vrampool_segment_callbacks(None, None, ptr::null_mut()));
}

/// Whether there are few more threads than `before`, once those that end have ended. The other tests of this
/// process have some of their own.
fn are_few_more_threads_than(before: u64) -> bool {
    let few = before + 32;
    (0..10_000).any(|_| {
        std::thread::yield_now();
        status_of_process("Threads:") < few
    })
}

#[test]
fn streams_that_used_a_block_end_when_they_are_destroyed() {
    for source in [
        c"device=host; host_capacity=16MiB; source=direct",
        c"device=host; host_capacity=16MiB; source=virtual",
    ] {
        let pool = pool(source);
        let own = stream(pool);
        let before = status_of_process("Threads:");
        // Of each stream a block, and one block of all streams; half of them idle, half of them live.
        let all = allocate(pool, 1000, own);
        let mut live = Vec::new();
        for number in 0..128 {
            let (mine, other) = (stream(pool), stream(pool));
            let block = allocate(pool, 1000, mine);
            for block in [block, all] {
                ok(vrampool_record_stream(block, other));
            }
            match number % 2 {
                0 => ok(vrampool_free(pool, block, mine)),
                _ => live.push(block),
            }
            for stream in [mine, other] {
                ok(vrampool_stream_destroy(pool, stream));
            }
        }
        assert!(are_few_more_threads_than(before), "{} threads", status_of_process("Threads:") - before);
        // Memory of the destroyed streams is reused, by a stream that need not wait.
        let again: Vec<_> = (0..64).map(|_| allocate(pool, 1000, own)).collect();
        for block in again.into_iter().chain(live).chain([all]) {
            ok(vrampool_free(pool, block, ptr::null_mut()));
        }
        ok(vrampool_stream_destroy(pool, own));
        ok(vrampool_destroy(pool));
    }
}

#[test]
fn a_stream_that_is_none_is_refused_for_blocks_of_private_pools_too() {
    const NONE: *mut c_void = 0xdead_beef as *mut c_void;
    let _torch = Torch::new(c"device=host; host_capacity=16MiB");
    let id = MempoolId { first: 0, second: 1 };
    vrampool_torch_begin_allocate_to_pool(0, id, CppFunction::null());
    let block = vrampool_torch_alloc(1000, 0, ptr::null_mut());
    assert_eq!(vrampool_record_stream(block, NONE), Status::INVALID_ARGUMENT);
    assert_eq!(vrampool_free(0, block, NONE), Status::INVALID_ARGUMENT);
    ok(vrampool_free(0, block, ptr::null_mut()));
    vrampool_torch_end_allocate_to_pool(0, id);
    vrampool_torch_release_pool(0, id);
}

#[test]
fn a_block_that_was_freed_is_live_no_more_though_its_users_are_not_all_known() {
    const NONE: *mut c_void = 0xdead_beef as *mut c_void;
    let torch = Torch::new(c"device=host; host_capacity=16MiB; source=virtual");
    let (pool, stats) = (torch.pool, || stats(torch.pool));
    let live =
        |stats: Stats| (stats.requested_bytes, stats.live_bytes, stats.live_buffers, stats.private_bytes);
    for tag in [None, Some(c"a")] {
        if let Some(tag) = tag {
            ok(vrampool_tag_begin(pool, tag.into()));
        }
        let block = vrampool_torch_alloc(100_000, 0, ptr::null_mut());
        let before = stats();
        assert_eq!((before.requested_bytes, before.live_buffers), (100_000, 1));
        vrampool_torch_record_stream(block, NONE);
        assert_eq!(vrampool_last_error_code(), Status::INVALID_ARGUMENT);
        vrampool_torch_free(block, 100_000, 0, ptr::null_mut());
        let after = stats();
        assert_eq!(live(after), (0, 0, 0, 0));
        assert_eq!(after.idle_bytes, before.idle_bytes + before.live_bytes, "it is had again after a wait");
        assert_eq!(after.held_bytes, before.held_bytes);
        // Which a trim does.
        ok(vrampool_trim(pool, 0, Out::null()));
        assert_eq!((live(stats()), stats().held_bytes), ((0, 0, 0, 0), 0));
        if tag.is_some() {
            ok(vrampool_tag_end(pool));
        }
    }
}
