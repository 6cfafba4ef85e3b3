//! A hook keeps a number with a request until its free, knows the streams of both, and gets only the calls that it
//! needs.
#![cfg(feature = "host")]

use std::sync::{Arc, Mutex};
use vrampool::backend::StreamId;
use vrampool::hooks::{Hook, HookCalls, HookEvent, Outcome};
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool, Stream};
use vrampool_test_support as _;

/// Keeps a number with each request, and notes what it finds of it.
#[derive(Debug)]
struct Keeper {
    name: &'static str,
    owner: u64,
    calls: HookCalls,
    seen: Mutex<Vec<Seen>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Seen {
    call: HookCalls,
    id: u64,
    stream: StreamId,
    kept: Option<u64>,
}

impl Keeper {
    fn new(name: &'static str, owner: u64, calls: HookCalls) -> Arc<Self> {
        Arc::new(Self { name, owner, calls, seen: Mutex::default() })
    }

    fn see(&self, call: HookCalls, event: &HookEvent<'_>) {
        let seen = Seen { call, id: event.id, stream: event.stream, kept: event.kept(self.owner) };
        self.seen.lock().expect("no panic").push(seen);
    }

    fn seen(&self) -> Vec<Seen> {
        self.seen.lock().expect("no panic").clone()
    }
}

impl Hook for Keeper {
    fn name(&self) -> &str {
        self.name
    }

    fn calls(&self) -> HookCalls {
        self.calls
    }

    fn before_request(&self, event: &HookEvent<'_>) {
        self.see(HookCalls::BEFORE_REQUEST, event);
    }

    fn after_request(&self, event: &HookEvent<'_>) {
        if event.outcome == Outcome::Done {
            event.keep(self.owner, self.owner * 1000 + event.requested_bytes);
        }
        self.see(HookCalls::AFTER_REQUEST, event);
    }

    fn before_free(&self, event: &HookEvent<'_>) {
        self.see(HookCalls::BEFORE_FREE, event);
    }

    fn after_free(&self, event: &HookEvent<'_>) {
        self.see(HookCalls::AFTER_FREE, event);
    }
}

#[test]
fn a_number_is_kept_with_each_live_block_until_its_free() {
    for calls in [HookCalls::all(), HookCalls::AFTER_REQUEST | HookCalls::BEFORE_FREE] {
        let device = HostDevice::new();
        let [one, other] = [(); 2].map(|()| device.create_stream().expect("a stream"));
        let hook = Keeper::new("keeper", 7, calls);
        let pool = Pool::builder(&device).hook(Arc::clone(&hook)).build().expect("a pool");
        let live =
            [(10, &one), (20, &other)].map(|(bytes, stream)| pool.allocate(bytes, stream).expect("memory"));
        drop(live);
        drop(pool.allocate(30, &one).expect("memory"));
        let seen = hook.seen();
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
    let [first, second] =
        [("first", 1), ("second", 2)].map(|(name, owner)| Keeper::new(name, owner, HookCalls::all()));
    let builder = Pool::builder(&device).hook(Arc::clone(&first)).hook(Arc::clone(&second));
    drop(builder.build().expect("a pool").allocate(10, &stream).expect("memory"));
    assert_eq!(first.seen().iter().filter(|seen| seen.kept == Some(1010)).count(), 3);
    assert!(second.seen().len() == 4 && second.seen().iter().all(|seen| seen.kept.is_none()));
}

#[test]
fn a_request_that_fails_keeps_nothing() {
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    let hook = Keeper::new("keeper", 7, HookCalls::all());
    let pool = Pool::builder(&device).limit(4096).hook(Arc::clone(&hook)).build().expect("a pool");
    assert!(pool.allocate(8192, &stream).is_err());
    drop(pool.allocate(10, &stream).expect("memory"));
    let seen = hook.seen();
    assert!(seen[..2].iter().all(|seen| seen.kept.is_none()), "{seen:?}");
    assert_ne!(seen[0].id, seen[2].id);
}
