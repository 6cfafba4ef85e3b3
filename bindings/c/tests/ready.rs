//! Calls that do not wait: served by idle memory alone, and freed once, by either call.

use std::ffi::CStr;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use vrampool_c::boundary::{Given, Out, Place, Text, Texts};
use vrampool_c::ready::{self, Freed};
use vrampool_c::*;

mod calls;
use calls::{allocate, free, ok, pool, stats};

/// A pool that ends lets all threads forget their streams: the next call of each may wait.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const HOST: &CStr = c"device=host; host_capacity=64MiB";
/// A class of each kind: of magazines, and of the depot alone, which a virtual source has none of.
const SIZES: [u64; 3] = [1000, 9000, 5 << 20];

#[test]
fn idle_memory_serves_and_is_kept_again() {
    let _alone = alone();
    for (options, sizes) in [
        (HOST, &SIZES[..2]),
        (c"device=host; host_capacity=64MiB; source=direct", &SIZES),
        (c"device=host; host_capacity=64MiB; source=direct; size_classes=exact:4KiB", &SIZES),
        (c"device=host; host_capacity=64MiB; source=direct; magazine_bytes=0", &SIZES),
    ] {
        let pool = pool(options);
        for &bytes in sizes {
            assert!(ready::allocate(pool, None, bytes, 0).is_none(), "nothing is idle");
            free(allocate(pool, bytes, ptr::null_mut()));
            let before = stats(pool);
            for round in 1..=3 {
                let Some(address) = ready::allocate(pool, None, bytes, 0) else {
                    panic!("{options:?}: {bytes} bytes are idle");
                };
                let now = stats(pool);
                assert_eq!((now.live_buffers, now.requested_bytes), (1, bytes));
                assert_eq!(
                    (now.served_by_bucket, now.source_allocations),
                    (before.served_by_bucket + round, before.source_allocations)
                );
                let place = AtomicPtr::new(address);
                assert!(matches!(ready::free_at(&place), Freed::Done), "{options:?}: {bytes} bytes are kept");
                assert!(place.load(Ordering::Relaxed).is_null());
                assert_eq!(stats(pool).live_buffers, 0);
                assert!(matches!(ready::free_at(&place), Freed::No), "it is free");
            }
        }
        ok(vrampool_destroy(pool));
        assert!(ready::allocate(pool, None, 1000, 0).is_none());
    }
}

#[test]
fn what_may_wait_is_left_to_the_caller() {
    let _alone = alone();
    let pool = pool(c"device=host; host_capacity=64MiB; source=direct; max_cached_bytes=0; magazine_bytes=0");
    for bytes in SIZES {
        let address = allocate(pool, bytes, ptr::null_mut());
        let place = AtomicPtr::new(address);
        let Freed::Later(later) = ready::free_at(&place) else { panic!("nothing is kept") };
        assert!(stats(pool).reserved_bytes >= bytes, "it is not released yet");
        assert!(matches!(ready::free_at(&place), Freed::No), "it has an owner");
        assert_eq!(vrampool_free(0, address, ptr::null_mut()), Status::INVALID_POINTER);
        drop(later);
        let now = stats(pool);
        assert_eq!((now.live_buffers, now.reserved_bytes), (0, 0));
    }
    ok(vrampool_destroy(pool));
}

#[test]
fn an_address_that_is_none_stays_where_it_is() {
    let _alone = alone();
    let mut own = 0u64;
    let wrong = (&raw mut own).cast();
    let place = AtomicPtr::new(wrong);
    assert!(matches!(ready::free_at(&place), Freed::No));
    assert_eq!(place.load(Ordering::Relaxed), wrong);
    assert_eq!(vrampool_free_at(Place::from(&place), Given::null()), Status::INVALID_POINTER);
}

#[test]
fn tags_are_separate_and_serve_nothing_while_asleep() {
    let _alone = alone();
    let pool = pool(HOST);
    let tag = Some("weights");
    free(allocate(pool, 1000, ptr::null_mut()));
    assert!(ready::allocate(pool, tag, 1000, 0).is_none(), "no such tag");
    ok(vrampool_tag_create(pool, Text::from(c"weights")));
    assert!(ready::allocate(pool, tag, 1000, 0).is_none(), "nothing of the tag is idle");
    ok(vrampool_tag_begin(pool, Text::from(c"weights")));
    free(allocate(pool, 1000, ptr::null_mut()));
    let of_scope = ready::allocate(pool, None, 1000, 0).expect("it is idle");
    assert!(ready::allocate(pool, tag, 1000, 0).is_none(), "the scope's tag has it");
    free(of_scope);
    ok(vrampool_tag_end(pool));
    free(ready::allocate(pool, tag, 1000, 0).expect("it is idle"));
    ok(vrampool_sleep(pool, Texts::null(), 0, None, ptr::null_mut(), Out::null()));
    assert!(ready::allocate(pool, tag, 1000, 0).is_none(), "it is asleep");
    assert!(ready::allocate(pool, None, 1000, 0).is_none(), "it is asleep");
    ok(vrampool_wake(pool, Texts::null(), 0, None, ptr::null_mut(), Out::null()));
    ok(vrampool_destroy(pool));
}

#[test]
fn a_recording_has_each_call_once() {
    let _alone = alone();
    use std::{ffi::CString, fs, path::Path};
    use vrampool_c::{vrampool_record_start, vrampool_record_stop, vrampool_trace_free, vrampool_trace_save};
    use vrampool_trace::{Op, Trace};
    let pool = pool(HOST);
    free(allocate(pool, 1000, ptr::null_mut()));
    ok(vrampool_record_start(pool, 1 << 20));
    for _ in 0..5 {
        let place = AtomicPtr::new(ready::allocate(pool, None, 1000, 0).expect("it is idle"));
        assert!(matches!(ready::free_at(&place), Freed::No), "a recorded block is freed by the other call");
        ok(vrampool_free_at(Place::from(&place), Given::null()));
    }
    let mut trace = 0;
    ok(vrampool_record_stop(pool, Out::from(&mut trace), Out::null()));
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("ready-{}.csv", std::process::id()));
    let name = CString::new(path.to_str().expect("a name")).expect("no 0");
    ok(vrampool_trace_save(trace, name.as_c_str().into(), c"csv".into()));
    ok(vrampool_trace_free(trace));
    let recorded = Trace::read(&path).expect("a trace");
    fs::remove_file(&path).expect("it is there");
    let frees = recorded.events().iter().filter(|event| event.op == Op::Free).count();
    assert_eq!((recorded.events().len(), frees), (10, 5));
    ok(vrampool_destroy(pool));
}

#[test]
fn of_many_threads_one_frees_a_block() {
    let _alone = alone();
    let pool = pool(HOST);
    let (rounds, freed) = (2000, AtomicUsize::new(0));
    let places: Vec<_> = (0..rounds).map(|_| AtomicPtr::new(allocate(pool, 4096, ptr::null_mut()))).collect();
    thread::scope(|scope| {
        for thread in 0..4 {
            let (places, freed) = (&places, &freed);
            scope.spawn(move || {
                for place in places {
                    let is_freed = match thread % 2 {
                        0 => !matches!(ready::free_at(place), Freed::No),
                        _ => vrampool_free_at(Place::from(place), Given::null()) == Status::OK,
                    };
                    freed.fetch_add(usize::from(is_freed), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(freed.into_inner(), rounds);
    assert_eq!(stats(pool).live_buffers, 0);
    places.iter().for_each(|place| vrampool_drop_at(Place::from(place)));
    ok(vrampool_destroy(pool));
}
