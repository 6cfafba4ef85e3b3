//! Copy callbacks that call the library again: what waits for a sleep, a wake or a copy is BUSY, everything else is
//! served.
#![cfg(target_os = "linux")]

mod calls;

use calls::{Segment, allocate, ok, pool, stream};
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_c::boundary::{Numbers, Out, Text, Texts};
use vrampool_c::*;

const MIB: u64 = 1 << 20;

/// PyTorch's pool and what callbacks find here are the process's.
static ALONE: Mutex<()> = Mutex::new(());
static SCENE: Mutex<Option<Scene>> = Mutex::new(None);
static CALLS: AtomicU64 = AtomicU64::new(0);

/// All of it numbers.
#[derive(Debug, Clone, Copy)]
struct Scene {
    pool: u64,
    /// Another pool, which is awake.
    other: u64,
    /// A stream of each.
    streams: [usize; 2],
    /// A block whose pool falls asleep, and one that the first call frees.
    kept: usize,
    freed: usize,
    segment: Segment,
}

/// Requires that a function without a status is refused so.
fn refused(status: Status, call: impl FnOnce()) {
    vrampool_clear_error();
    call();
    assert_eq!(vrampool_last_error_code(), status, "{}", last_error_text());
}

extern "C" fn call_again(_: *mut c_void, copied: u64, total: u64) {
    assert!(copied <= total);
    let scene = SCENE.lock().expect("no panic").expect("a scene");
    let Scene { pool, other, streams: [own, foreign], kept, freed, segment } = scene;
    let (own, foreign) = (own as *mut c_void, foreign as *mut c_void);
    let (tags, user) = ([Text::from(c"kept")], ptr::null_mut());
    let (tags, number, numbers) = (Texts::of(&tags), segment.number, [segment.number]);
    let numbers = Numbers::of(&numbers);
    let of_pools = [pool, other].into_iter().flat_map(|pool| {
        [
            ("sleep", vrampool_sleep(pool, tags, 1, Some(call_again), user, Out::null())),
            ("sleep_tags", vrampool_sleep_tags(pool, tags, 1, 1, None, user, Out::null())),
            ("wake", vrampool_wake(pool, tags, 1, None, user, Out::null())),
            ("wake", vrampool_wake(pool, Texts::null(), 0, None, user, Out::null())),
            ("set_limit", vrampool_set_limit(pool, 64 * MIB)),
            ("destroy", vrampool_destroy(pool)),
        ]
    });
    let of_segments = [
        ("shutdown", vrampool_torch_shutdown()),
        ("set_log_callback", vrampool_set_log_callback(None, 0, user)),
        ("unmap_and_release", segment.unmap()),
        ("create_and_map", segment.map()),
        ("tag", vrampool_segment_tag(number, c"weights".into())),
        ("save", vrampool_segments_save(numbers, 1, None, user)),
        ("restore", vrampool_segments_restore(numbers, 1, None, user)),
        ("forget", vrampool_segments_forget(numbers, 1, 1)),
        ("saved", vrampool_segment_saved(number, Out::from(&mut ptr::null_mut()), Out::null())),
    ];
    for (name, status) in of_pools.chain(of_segments) {
        assert_eq!(status, Status::BUSY, "{name}: {}", last_error_text());
    }
    refused(Status::BUSY, || vrampool_torch_memory_fraction(0.5, 0));
    let mut is_asleep = 0;
    let known = vrampool_is_asleep(pool, c"kept".into(), Out::from(&mut is_asleep));
    ok(known);
    let mut there = ptr::null_mut();
    let allocated = vrampool_allocate_tagged(pool, c"kept".into(), 4 * MIB, own, Out::from(&mut there));
    match is_asleep {
        0 => ok(vrampool_free(pool, there, own)),
        _ => assert_eq!(allocated, Status::ASLEEP, "{}", last_error_text()),
    }
    let is_first = CALLS.fetch_add(1, Ordering::Relaxed) == 0;
    for pool in [pool, other] {
        for status in [
            vrampool_trim(pool, 0, Out::null()),
            vrampool_decay(pool, Out::null()),
            vrampool_reset_peaks(pool),
            vrampool_tag_begin(pool, c"kept".into()),
            vrampool_tag_end(pool),
            vrampool_memory_info(pool, Out::null(), Out::null()),
        ] {
            ok(status);
        }
        for ask in [vrampool_get_stats_json, vrampool_snapshot] {
            let mut text = ptr::null_mut();
            ok(ask(pool, Out::from(&mut text)));
            ok(vrampool_string_free(text));
        }
    }
    ok(vrampool_free(other, allocate(other, 4 * MIB, foreign), foreign));
    ok(vrampool_record_stream(kept as *mut c_void, own));
    if is_first {
        ok(vrampool_free(pool, freed as *mut c_void, own));
    }
    refused(Status::OK, || {
        let another = vrampool_segment_alloc(2 << 20, 0, ptr::null_mut());
        vrampool_segment_free(another, 2 << 20, 0, ptr::null_mut());
    });
}

/// A pool in which the tag `kept` has two blocks, and a segment with another; all of them can sleep.
fn scene() -> Scene {
    ok(vrampool_torch_shutdown());
    ok(vrampool_torch_configure(c"device=host; host_capacity=64MiB".into()));
    const OPTIONS: &CStr = c"device=host; host_capacity=128MiB; source=virtual; limit=100MiB";
    let pools = [pool(OPTIONS), pool(OPTIONS)];
    let streams = pools.map(|pool| stream(pool) as usize);
    for pool in pools {
        ok(vrampool_tag_create(pool, c"kept".into()));
    }
    let [kept, freed] = [8 * MIB, 4 * MIB].map(|bytes| {
        let mut block = ptr::null_mut();
        let stream = streams[0] as *mut c_void;
        let status = vrampool_allocate_tagged(pools[0], c"kept".into(), bytes, stream, Out::from(&mut block));
        ok(status);
        block as usize
    });
    let segment = Segment::new(4 << 20, ptr::null_mut());
    ok(vrampool_segment_callbacks(None, None, ptr::null_mut()));
    let scene = Scene { pool: pools[0], other: pools[1], streams, kept, freed, segment };
    *SCENE.lock().expect("no panic") = Some(scene);
    CALLS.store(0, Ordering::Relaxed);
    scene
}

fn finish(scene: Scene) {
    assert!(CALLS.load(Ordering::Relaxed) > 0, "nothing was copied");
    ok(scene.segment.free(ptr::null_mut()));
    ok(vrampool_free(scene.pool, scene.kept as *mut c_void, ptr::null_mut()));
    for (pool, stream) in [scene.pool, scene.other].into_iter().zip(scene.streams) {
        ok(vrampool_stream_destroy(pool, stream as *mut c_void));
        ok(vrampool_destroy(pool));
    }
    ok(vrampool_torch_shutdown());
}

#[test]
fn a_callback_of_a_sleep_or_a_wake_calls_every_function() {
    let _alone = ALONE.lock().expect("no panic");
    let scene = scene();
    let (tags, user, again) = ([Text::from(c"kept")], ptr::null_mut(), Some(call_again as CopyCallback));
    for wakes_some in [0, 1] {
        let tags = Texts::of(&tags);
        let slept = match wakes_some {
            0 => vrampool_sleep(scene.pool, tags, 1, again, user, Out::null()),
            _ => vrampool_sleep_tags(scene.pool, tags, 1, 1, again, user, Out::null()),
        };
        ok(slept);
        let woken = vrampool_wake(scene.pool, tags, wakes_some, again, user, Out::null());
        ok(woken);
    }
    finish(scene);
}

#[test]
fn a_callback_of_a_copy_of_segments_calls_every_function() {
    let _alone = ALONE.lock().expect("no panic");
    let scene = scene();
    let (numbers, user, again) = ([scene.segment.number], ptr::null_mut(), Some(call_again as CopyCallback));
    let saved = vrampool_segments_save(Numbers::of(&numbers), 1, again, user);
    ok(saved);
    let restored = vrampool_segments_restore(Numbers::of(&numbers), 1, again, user);
    ok(restored);
    finish(scene);
}
