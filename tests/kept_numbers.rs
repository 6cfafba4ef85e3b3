//! A hook keeps a number with a request until its free, knows the streams of both, and gets only the calls that it
//! needs.
#![cfg(feature = "host")]

use std::sync::{Arc, Mutex};
use vrampool::backend::StreamId;
use vrampool::hooks::{Hook, HookCalls, Outcome};
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool, Stream};
use vrampool_test_support::Tap;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    call: HookCalls,
    id: u64,
    stream: StreamId,
    kept: Option<u64>,
}

/// A hook that keeps a number with each request, and what it finds of it.
fn keeper(name: &'static str, owner: u64, calls: HookCalls) -> (impl Hook + 'static, Arc<Mutex<Vec<Seen>>>) {
    let notes = Arc::<Mutex<Vec<_>>>::default();
    let seen = Arc::clone(&notes);
    let hook = Tap::new(name, calls, move |call, event| {
        if (HookCalls::BEFORE_ALLOCATION | HookCalls::AFTER_ALLOCATION).contains(call) {
            return;
        }
        if call == HookCalls::AFTER_REQUEST && event.outcome == Outcome::Done {
            event.keep(owner, owner * 1000 + event.requested_bytes);
        }
        let seen = Seen { call, id: event.id, stream: event.stream, kept: event.kept(owner) };
        notes.lock().expect("no panic").push(seen);
    });
    (hook, seen)
}

#[test]
fn a_number_is_kept_with_each_live_block_until_its_free() {
    for calls in [HookCalls::all(), HookCalls::AFTER_REQUEST | HookCalls::BEFORE_FREE] {
        let device = HostDevice::new();
        let [one, other] = [(); 2].map(|()| device.create_stream().expect("a stream"));
        let (hook, seen) = keeper("keeper", 7, calls);
        let pool = Pool::builder(&device).hook(hook).build().expect("a pool");
        let live =
            [(10, &one), (20, &other)].map(|(bytes, stream)| pool.allocate(bytes, stream).expect("memory"));
        drop(live);
        drop(pool.allocate(30, &one).expect("memory"));
        let seen = seen.lock().expect("no panic");
        assert!(seen.iter().all(|seen| calls.contains(seen.call)), "{seen:?}");
        for (bytes, stream) in [(10, one.id()), (20, other.id()), (30, one.id())] {
            let of: Vec<_> = seen.iter().filter(|seen| seen.kept == Some(7000 + bytes)).collect();
            let expected = if calls == HookCalls::all() { 3 } else { 2 };
            assert_eq!(of.len(), expected, "{bytes}: after the request, and around the free: {seen:?}");
            assert!(of.iter().all(|seen| (seen.id, seen.stream) == (of[0].id, stream)), "{bytes}: {of:?}");
        }
    }
}

#[test]
fn one_owner_keeps_a_number() {
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let [(first, of_first), (second, of_second)] =
        [("first", 1), ("second", 2)].map(|(name, owner)| keeper(name, owner, HookCalls::all()));
    let builder = Pool::builder(&device).hook(first).hook(second);
    drop(builder.build().expect("a pool").allocate(10, &stream).expect("memory"));
    let [first, second] = [of_first, of_second].map(|seen| seen.lock().expect("no panic").clone());
    assert_eq!(first.iter().filter(|seen| seen.kept == Some(1010)).count(), 3);
    assert!(second.len() == 4 && second.iter().all(|seen| seen.kept.is_none()));
}

#[test]
fn a_request_that_fails_keeps_nothing() {
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let (hook, seen) = keeper("keeper", 7, HookCalls::all());
    let pool = Pool::builder(&device).limit(4096).hook(hook).build().expect("a pool");
    assert!(pool.allocate(8192, &stream).is_err());
    drop(pool.allocate(10, &stream).expect("memory"));
    let seen = seen.lock().expect("no panic");
    assert!(seen[..2].iter().all(|seen| seen.kept.is_none()), "{seen:?}");
    assert_ne!(seen[0].id, seen[2].id);
}
