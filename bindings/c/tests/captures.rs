//! Private pools, as PyTorch's graphs use them: which memory serves which requests, and when.

mod calls;

use calls::{Torch, ok, stats, stream};
use std::ffi::c_void;
use std::ptr;
use vrampool_c::boundary::{Out, Text};
use vrampool_c::*;

const MIB: usize = 1 << 20;
/// The unit in which virtual memory is mapped.
const PAGE: u64 = 2 << 20;

fn id(second: u64) -> MempoolId {
    MempoolId { first: 0, second }
}

fn begin(second: u64) {
    vrampool_torch_begin_allocate_to_pool(0, id(second), CppFunction::null());
}

fn end(second: u64) {
    vrampool_torch_end_allocate_to_pool(0, id(second));
}

fn release(second: u64) {
    vrampool_torch_release_pool(0, id(second));
}

fn allocate(bytes: usize, stream: *mut c_void) -> *mut c_void {
    let address = vrampool_torch_alloc(bytes, 0, stream);
    assert!(!address.is_null(), "{}", last_error_text());
    address
}

fn free(address: *mut c_void, bytes: usize, stream: *mut c_void) {
    vrampool_torch_free(address, bytes, 0, stream);
}

#[test]
fn a_private_pool_that_is_asleep_serves_nothing() {
    let torch = Torch::new(c"device=host; source=virtual");
    let null = ptr::null_mut();
    begin(7);
    free(allocate(MIB, null), MIB, null);
    end(7);
    let slept = vrampool_sleep(torch.pool, boundary::Texts::null(), 0, None, ptr::null_mut(), Out::null());
    ok(slept);
    for graph in [7, 8] {
        begin(graph);
        vrampool_clear_error();
        assert!(vrampool_torch_alloc(MIB, 0, null).is_null());
        assert_eq!(vrampool_last_error_code(), Status::ASLEEP);
        end(graph);
    }
    assert_eq!((stats(torch.pool).live_buffers, stats(torch.pool).reserved_bytes), (0, 0));
    ok(vrampool_wake(torch.pool, boundary::Texts::null(), 0, None, ptr::null_mut(), Out::null()));
    assert_eq!(stats(torch.pool).private_bytes, PAGE, "graph 7 may use what is free");
}

#[test]
fn a_private_pool_lives_until_its_last_graph_is_dropped() {
    let torch = Torch::new(c"device=host; source=virtual; limit=4MiB");
    let stream = stream(torch.pool);
    let mut of_graphs = Vec::new();
    for _ in 0..2 {
        begin(7);
        let block = allocate(MIB, stream);
        free(block, MIB, stream);
        of_graphs.push(block);
        end(7);
    }
    assert_eq!(of_graphs[0], of_graphs[1], "they share it");
    release(7);
    assert_ne!(allocate(MIB, stream), of_graphs[1], "the second graph may run");
    let page = || vrampool_torch_alloc(PAGE as usize, 0, stream);
    assert!(page().is_null(), "its page is kept for it");
    assert!(stats(torch.pool).private_bytes >= MIB as u64);
    release(7);
    assert_eq!(
        (stats(torch.pool).private_bytes, stats(torch.pool).reserved_bytes),
        (0, PAGE),
        "the pool's block is live"
    );
    assert!(!page().is_null(), "its page serves others");
    vrampool_clear_error();
    release(7);
    assert_eq!(vrampool_last_error_code(), Status::INVALID_ARGUMENT, "it was released");
}

#[test]
fn a_block_that_outlives_its_private_pool_is_waited_for_before_it_is_used_again() {
    let torch = Torch::new(c"device=host");
    let (stream, reader) = (stream(torch.pool), stream(torch.pool));
    begin(7);
    let block = allocate(MIB, stream);
    end(7);
    release(7);
    let waits = stats(torch.pool).stream_waits;
    vrampool_torch_record_stream(block, reader);
    assert_eq!(stats(torch.pool).stream_waits, waits, "the program orders its streams");
    free(block, MIB, stream);
    assert_eq!(stats(torch.pool).private_bytes, MIB as u64);
    let other = allocate(MIB, stream);
    assert_ne!(other, block, "the graph's last work may use it");
    // Which waits for the device.
    ok(vrampool_trim(torch.pool, 0, Out::null()));
    assert_eq!(stats(torch.pool).private_bytes, 0);
    assert_eq!(stats(torch.pool).live_buffers, 1);
    free(other, MIB, stream);
}

#[test]
fn a_block_that_outlives_its_private_pool_sleeps_and_wakes_with_its_tag() {
    let torch = Torch::new(c"device=host; source=virtual");
    let (null, kept) = (ptr::null_mut(), [Text::from(c"default")]);
    for is_released_asleep in [true, false] {
        begin(7);
        let block = allocate(MIB, null);
        end(7);
        // SAFETY: the host's memory, of that many bytes.
        unsafe { block.cast::<u8>().write_bytes(7, MIB) };
        if !is_released_asleep {
            release(7);
        }
        ok(vrampool_sleep(torch.pool, boundary::Texts::of(&kept), 1, None, null, Out::null()));
        assert_eq!((stats(torch.pool).asleep_bytes, stats(torch.pool).reserved_bytes), (MIB as u64, 0));
        if is_released_asleep {
            release(7);
        }
        ok(vrampool_trim(torch.pool, 0, Out::null()));
        ok(vrampool_wake(torch.pool, boundary::Texts::null(), 0, None, null, Out::null()));
        assert_eq!((stats(torch.pool).asleep_bytes, stats(torch.pool).reserved_bytes), (0, PAGE));
        // SAFETY: as above.
        assert_eq!(unsafe { std::slice::from_raw_parts(block.cast::<u8>(), MIB) }, [7; MIB]);
        free(block, MIB, null);
        ok(vrampool_trim(torch.pool, 0, Out::null()));
        assert_eq!((stats(torch.pool).live_buffers, stats(torch.pool).held_bytes), (0, 0));
    }
}

#[test]
fn memory_of_a_released_private_pool_counts_once_and_is_released_by_pages() {
    let torch = Torch::new(c"device=host; source=virtual");
    let stream = stream(torch.pool);
    begin(7);
    let blocks = [0; 3].map(|_| allocate(MIB / 2, stream));
    end(7);
    // Nothing is waited for until its end.
    begin(8);
    release(7);
    free(blocks[0], MIB / 2, stream);
    assert_eq!(stats(torch.pool).private_bytes, PAGE);
    end(8);
    let trim = || {
        let mut released = 0;
        ok(vrampool_trim(torch.pool, 0, Out::from(&mut released)));
        released
    };
    free(blocks[1], MIB / 2, stream);
    assert_eq!(trim(), 0, "a block of the page is live");
    free(blocks[2], MIB / 2, stream);
    assert_eq!((trim(), stats(torch.pool).reserved_bytes), (PAGE, 0));
    release(8);
}

#[test]
fn a_released_graph_is_not_waited_for_while_another_one_is_captured() {
    let torch = Torch::new(c"device=host");
    let stream = stream(torch.pool);
    begin(7);
    free(allocate(MIB, stream), MIB, stream);
    end(7);
    begin(8);
    release(7);
    assert_eq!(stats(torch.pool).private_bytes, PAGE, "kept, for its last work is not waited for");
    ok(vrampool_trim(torch.pool, 0, Out::null()));
    assert_eq!(stats(torch.pool).private_bytes, PAGE);
    end(8);
    assert_eq!(stats(torch.pool).private_bytes, 0, "now it was");
    release(8);
}

#[test]
fn a_block_whose_users_could_not_be_recorded_is_waited_for_before_it_is_used_again() {
    let torch = Torch::new(c"device=host");
    let (stream, unknown) = (stream(torch.pool), 12_345_678 as *mut c_void);
    let by_record = |block| {
        vrampool_torch_record_stream(block, unknown);
        free(block, MIB, stream);
    };
    let by_free = |block| free(block, MIB, unknown);
    for free_by in [&by_record as &dyn Fn(*mut c_void), &by_free] {
        let block = allocate(MIB, stream);
        vrampool_clear_error();
        free_by(block);
        assert_eq!(vrampool_last_error_code(), Status::INVALID_ARGUMENT);
        let other = allocate(MIB, stream);
        assert_ne!(other, block, "another stream may use it");
        // Which waits for the device.
        ok(vrampool_trim(torch.pool, 0, Out::null()));
        assert_eq!(stats(torch.pool).live_buffers, 1);
        free(other, MIB, stream);
    }
}

/// The capture of a step of a model: of eight layers, two of which are live at a time beside what is kept to the end.
fn capture(second: u64, batch: usize, stream: *mut c_void) {
    begin(second);
    let bytes = |layer: usize| batch * (MIB * [16, 5, 9, 2, 12, 1, 7, 4][layer]) / 8;
    let kept = [allocate(batch * MIB / 2, stream), allocate(batch * 1000, stream)];
    let mut before = None;
    for layer in 0..8 {
        let workspace = allocate(bytes(7 - layer) / 2, stream);
        let output = allocate(bytes(layer), stream);
        free(workspace, bytes(7 - layer) / 2, stream);
        if let Some((address, bytes)) = before.replace((output, bytes(layer))) {
            free(address, bytes, stream);
        }
    }
    before.into_iter().for_each(|(address, bytes)| free(address, bytes, stream));
    free(kept[0], batch * MIB / 2, stream);
    free(kept[1], batch * 1000, stream);
    end(second);
}

#[test]
fn shapes_that_share_a_private_pool_hold_little_more_than_the_largest() {
    let torch = Torch::new(c"device=host; host_capacity=2GiB; source=virtual");
    let stream = stream(torch.pool);
    capture(1, 16, stream);
    let largest = stats(torch.pool).private_bytes;
    release(1);
    let orders: [fn(usize) -> usize; 3] = [|of| 16 - of, |of| 1 + of, |of| 1 + of * 7 % 16];
    for order in orders {
        (0..16).for_each(|of| capture(7, order(of), stream));
        let held = stats(torch.pool).private_bytes;
        assert!(held * 10 <= largest * 11, "{held} bytes for 16 shapes, {largest} for the largest");
        // Nothing but its end releases it.
        ok(vrampool_trim(torch.pool, 0, Out::null()));
        ok(vrampool_set_limit(torch.pool, 1 << 20));
        ok(vrampool_set_limit(torch.pool, u64::MAX));
        assert_eq!(stats(torch.pool).private_bytes, held);
        (0..16).for_each(|_| release(7));
        assert_eq!((stats(torch.pool).private_bytes, stats(torch.pool).reserved_bytes), (0, 0));
    }
}

/// A limit of less than a page leaves no arena for it.
#[test]
fn a_private_pool_without_an_arena_keeps_its_blocks_as_they_are() {
    let torch = Torch::new(c"device=host; source=virtual");
    let stream = stream(torch.pool);
    ok(vrampool_set_limit(torch.pool, MIB as u64));
    begin(7);
    let block = allocate(MIB / 4, stream);
    free(block, MIB / 4, stream);
    assert_eq!(allocate(MIB / 4, stream), block);
    end(7);
    release(7);
    free(block, MIB / 4, stream);
    ok(vrampool_trim(torch.pool, 0, Out::null()));
    assert_eq!(stats(torch.pool).held_bytes, 0);
}
