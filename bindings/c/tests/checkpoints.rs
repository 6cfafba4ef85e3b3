//! Private pools without requests, what they have, and their return to an earlier state, as graph trees of PyTorch use
//! them.

mod calls;

use calls::{Torch, ok, stats};
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use vrampool_c::boundary::{Numbers, Out};
use vrampool_c::*;

const MIB: usize = 1 << 20;
const ID: MempoolId = MempoolId { first: 0, second: 9 };

const OPTIONS: &CStr = c"device=host; host_capacity=64MiB; source=virtual; limit=16MiB";

fn allocate(bytes: usize) -> u64 {
    let address = vrampool_torch_alloc_or_null(bytes, 0, ptr::null_mut());
    assert!(!address.is_null(), "{}", last_error_text());
    address as u64
}

fn free(address: u64) {
    let mut place = std::sync::atomic::AtomicPtr::new(address as *mut c_void);
    ok(vrampool_free_at((&place).into(), boundary::Given::null()));
    assert!(place.get_mut().is_null());
}

/// Allocates in the private pool.
fn within<T>(act: impl FnOnce() -> T) -> T {
    vrampool_torch_begin_allocate_to_pool(0, ID, CppFunction::null());
    let done = act();
    vrampool_torch_end_allocate_to_pool(0, ID);
    vrampool_torch_release_pool(0, ID);
    done
}

fn uses() -> u64 {
    let mut uses = 0;
    ok(vrampool_torch_pool_uses(0, ID, Out::from(&mut uses)));
    uses
}

fn spans(is_live_only: bool) -> Vec<Span> {
    extern "C-unwind" fn add(user: *mut c_void, span: &Span) {
        // SAFETY: the vector below, which nothing else uses during the call.
        let spans = unsafe { &mut *user.cast::<Vec<Span>>() };
        spans.push(*span);
    }
    let mut found: Vec<Span> = Vec::new();
    let user = (&raw mut found).cast();
    ok(vrampool_torch_visit(0, c_int::from(is_live_only), Some(add), user));
    found
}

/// The live blocks of the private pool.
fn live() -> Vec<u64> {
    let of_pool =
        spans(true).into_iter().filter(|span| (span.pool_first, span.pool_second) == (0, ID.second));
    let mut live: Vec<u64> = of_pool.map(|span| span.address).collect();
    live.sort_unstable();
    live
}

fn restore(blocks: &[u64], bytes: u64) -> Status {
    let (requested, streams) = (vec![bytes; blocks.len()], vec![0; blocks.len()]);
    let (blocks, count) = (Numbers::of(blocks), blocks.len());
    vrampool_torch_pool_restore(0, ID, blocks, Numbers::of(&requested), Numbers::of(&streams), count)
}

#[test]
fn a_private_pool_returns_to_an_earlier_state() {
    let alone = Torch::new(OPTIONS);
    assert_eq!(restore(&[], 0), Status::INVALID_ARGUMENT, "there is none");
    assert_eq!((vrampool_torch_pool_create(0, ID), uses()), (Status::OK, 1));
    let mut state = within(|| vec![allocate(MIB), allocate(MIB)]);
    state.sort_unstable();
    let outside = allocate(MIB);
    assert_eq!(live(), state);
    free(state[0]);
    let later = within(|| [allocate(MIB), allocate(2 * MIB)]);
    assert_eq!(later[0], state[0], "the pool has its memory");
    ok(restore(&state, MIB as u64));
    assert_eq!(live(), state);
    vrampool_torch_memory_fraction(2.5 / 64.0, 0);
    let refused = || stats(alone.pool).failed_by_limit;
    let before = refused();
    assert_eq!(restore(&state, MIB as u64), Status::OUT_OF_MEMORY, "1 MiB is live outside");
    assert_eq!(refused(), before + 1);
    let text = last_error_text();
    assert!(
        text.contains("is 2.5 MiB, of which other pools use 1.0 MiB") && text.contains("have it together"),
        "{text}"
    );
    assert_eq!(restore(&state, u64::MAX), Status::OUT_OF_MEMORY, "their sum overflows");
    assert_eq!(live(), state);
    vrampool_torch_memory_fraction(3.0 / 64.0, 0);
    ok(restore(&state, MIB as u64));
    vrampool_torch_memory_fraction(0.25, 0);
    assert_eq!(within(|| allocate(2 * MIB)), later[1], "what was not live in that state is idle");
    assert_eq!(restore(&[outside], MIB as u64), Status::INVALID_POINTER);
    assert_eq!(live(), [0; 0]);
    let listed = spans(false);
    let is_private = |span: &&Span| span.pool_second == ID.second;
    assert!(listed.iter().filter(is_private).all(|span| span.is_live == 0 && span.requested == 0));
    assert_eq!(listed.iter().filter(is_private).map(|span| span.bytes).sum::<u64>(), 4 << 20);
    vrampool_torch_release_pool(0, ID);
    assert_eq!(uses(), 0);
    free(outside);
}

#[test]
fn idle_memory_of_a_private_pool_serves_others_only_if_it_may() {
    let _alone = Torch::new(OPTIONS);
    assert_eq!(vrampool_torch_pool_use_on_oom(0, ID, 1), Status::INVALID_ARGUMENT, "there is none");
    ok(vrampool_torch_pool_create(0, ID));
    within(|| free(allocate(12 * MIB)));
    assert!(vrampool_torch_alloc_or_null(8 * MIB, 0, ptr::null_mut()).is_null());
    ok(vrampool_torch_pool_use_on_oom(0, ID, 1));
    free(allocate(8 * MIB));
    vrampool_torch_release_pool(0, ID);
}

#[test]
fn blocks_of_any_source_return_to_their_addresses() {
    for options in [c"device=host; source=direct", c"device=host; source=arena; limit=16MiB"] {
        let _alone = Torch::new(options);
        ok(vrampool_torch_pool_create(0, ID));
        let mut state = within(|| vec![allocate(MIB), allocate(MIB), allocate(MIB)]);
        state.sort_unstable();
        free(state[1]);
        within(|| [allocate(MIB), allocate(2 * MIB), allocate(MIB)]);
        for _ in 0..2 {
            ok(restore(&state, MIB as u64));
            assert_eq!(live(), state);
        }
        assert_eq!(restore(&[state[0] + 1], MIB as u64), Status::INVALID_POINTER);
        vrampool_torch_release_pool(0, ID);
    }
}
