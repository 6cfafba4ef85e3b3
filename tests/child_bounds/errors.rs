//! Refused bounds and requests of children, and what they leave.

use crate::{Device, KIB, device_and_stream};
use std::fmt;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use vrampool::errors::{Cause, Owner};
use vrampool::hooks::HookCalls;
use vrampool::host::HostStream;
use vrampool::{Error, Pool, PoolBuilder, SizeClasses, Source};
use vrampool_test_support::{Tap, has_virtual_memory, until};

fn scene(set: impl FnOnce(PoolBuilder<Device>) -> PoolBuilder<Device>) -> (Pool<Device>, HostStream) {
    let (device, stream) = device_and_stream();
    (set(Pool::builder(&device)).build().expect("a pool"), stream)
}

/// Expects a lack of memory of this owner and cause, whose text has the remedy.
fn expect<T: fmt::Debug>(refused: Result<T, Error>, owner: Owner, cause: Cause, remedy: &str) {
    let error = refused.expect_err("too much");
    let figures = error.out_of_memory().expect("a lack of memory");
    assert_eq!((figures.owner, figures.cause()), (owner, cause), "{error}");
    assert!(error.to_string().contains(remedy), "{error}");
}

fn expect_setting<T: fmt::Debug>(refused: Result<T, Error>, setting: &str, reason: &str) {
    let error = refused.expect_err("it is invalid");
    assert!(matches!(&error, Error::Configuration(invalid) if invalid.field == setting), "{error}");
    assert!(error.to_string().contains(reason), "{error}");
}

#[test]
fn a_request_beyond_the_childs_limit_names_the_child() {
    let (pool, stream) = scene(|builder| builder.limit(1024 * KIB));
    let child = pool.child("tenant").build().expect("a pool");
    child.set_limit(64 * KIB).expect("no share");
    let request = |bytes| child.allocate(bytes, &stream);
    let refused = request(65 * KIB);
    expect(
        refused,
        Owner::Child,
        Cause::Request,
        "limit is 64.0 KiB; raise the child's limit by `Pool::set_limit`",
    );
    let live = request(10 * KIB).expect("memory");
    expect(request(50 * KIB), Owner::Child, Cause::Rounding, "round up less, or raise the child's limit");
    expect(
        request(60 * KIB),
        Owner::Child,
        Cause::Live,
        "drop live buffers of the child, or raise the child's",
    );
    assert_eq!((pool.stats().rungs.fail, pool.stats().failed.by_limit), (3, 2));
    drop(live);
    drop(request(60 * KIB).expect("16 KiB are released"));
    assert_eq!((child.stats().idle_bytes, pool.stats().held_bytes), (64 * KIB, 64 * KIB));
}

#[test]
fn shares_fit_in_the_limit_beside_live_memory() {
    let (pool, stream) = scene(|builder| builder.limit(256 * KIB));
    let [one, other] = ["one", "other"].map(|tag| pool.child(tag).build().expect("a pool"));
    drop(pool.allocate(64 * KIB, &stream).expect("memory"));
    let live = pool.allocate(64 * KIB, &stream).expect("memory");
    drop(pool.allocate(16 * KIB, &stream).expect("memory"));
    one.set_share(128 * KIB).expect("beside the live memory");
    assert_eq!(pool.stats().idle_bytes, 16 * KIB, "all of it fits");
    other.set_share(64 * KIB).expect("what is idle is released");
    assert_eq!(pool.stats().idle_bytes, 0);
    expect(other.set_share(65 * KIB), Owner::Pool, Cause::Shares, "192.0 KiB are reserved for shares");
    drop(live);
    let refused = other.set_share(129 * KIB);
    expect(
        refused,
        Owner::Pool,
        Cause::Shares,
        "192.0 KiB are reserved for shares of children; lower a share",
    );
    expect(other.set_share(257 * KIB), Owner::Pool, Cause::Request, "raise `limit`");
    assert_eq!((one.share(), other.share()), (128 * KIB, 64 * KIB), "a failed call changes nothing");
    // The rest that the pool itself may take.
    let _rest = pool.allocate(64 * KIB, &stream).expect("memory");
    expect(pool.allocate(KIB, &stream), Owner::Pool, Cause::Shares, "192.0 KiB are reserved for shares");
    let _own = one.allocate(64 * KIB, &stream).expect("half of its share");
    let refused = one.allocate(256 * KIB, &stream);
    expect(refused, Owner::Pool, Cause::Live, "drop live buffers");
    expect_setting(
        pool.set_limit(255 * KIB),
        "limit",
        "children have shares of the limit, which need 262144 bytes",
    );
    assert_eq!(pool.limit(), Some(256 * KIB));
    one.set_share(0).expect("less");
    other.set_share(0).expect("less");
    pool.set_limit(100 * KIB).expect("live memory remains above it");
    assert_eq!(pool.stats().live_bytes, 128 * KIB);
}

#[test]
fn a_share_is_within_the_childs_limit() {
    let (pool, _) = scene(|builder| builder.limit(256 * KIB));
    let child = pool.child("tenant").build().expect("a pool");
    child.set_limit(100).expect("no share");
    expect_setting(child.set_share(101), "share", "the child's limit is lower");
    child.set_share(100).expect("its limit");
    expect_setting(child.set_limit(99), "limit", "the child's share is 100 bytes");
    assert_eq!((child.limit(), child.share()), (Some(100), 100));
    pool.close();
    assert!(matches!(child.set_share(101).and(Ok(())), Err(Error::Configuration(_))));
    child.set_limit(None).expect("any");
    assert!(matches!(child.set_share(101), Err(Error::Closed)));
}

/// A share that ends, or is used, lets a request go on that waits.
#[test]
fn a_wait_ends_with_a_share() {
    let (pool, stream) = scene(|builder| builder.limit(128 * KIB));
    let (pool, stream) = (&pool, &stream);
    for (ends, is_used) in [(false, false), (false, true), (true, false), (true, true)] {
        let child = pool.child("tenant").build().expect("a pool");
        child.set_share(100 * KIB).expect("nothing is live");
        thread::scope(|scope| {
            // It would ask again at the end, but is woken before.
            let (began, timeout) = (Instant::now(), Duration::from_secs(8));
            let waiting = scope.spawn(move || pool.allocate_timeout(64 * KIB, stream, timeout));
            until(|| pool.waiting_requests() > 0);
            let of_share =
                || child.allocate(64 * KIB, stream).expect("the request that waits has none of it");
            let own = is_used.then(of_share);
            assert!(pool.allocate(16 * KIB, stream).is_err(), "it is reserved");
            drop(own);
            match ends {
                true => drop(child),
                false => child.set_share(10 * KIB).expect("less"),
            }
            waiting.join().expect("no panic").expect("memory");
            assert!(began.elapsed() < timeout, "it was not woken");
        });
        pool.trim().expect("a trim");
    }
}

#[test]
fn a_limit_holds_shares_of_all_children() {
    let (pool, stream) = scene(|builder| builder.limit(256 * KIB));
    let within = pool.child("within").build().expect("a pool");
    drop(within.allocate(64 * KIB, &stream).expect("memory"));
    let child = pool.child("tenant").build().expect("a pool");
    child.set_share(256 * KIB).expect("the other pool's idle memory is released");
    assert_eq!(within.stats().idle_bytes, 0);
    expect(
        within.allocate(KIB, &stream),
        Owner::Pool,
        Cause::Shares,
        "the limit of a pool above it is 256.0 KiB, of which other pools use 0 B; 256.0 KiB are reserved",
    );
    expect_setting(pool.set_limit(255 * KIB), "limit", "children have shares");
    let _own = child.allocate(256 * KIB, &stream).expect("its share");
    if has_virtual_memory(pool.device()) {
        let virtual_pool = || Pool::builder(pool.device()).source(Source::Virtual);
        let root = virtual_pool().limit(64 << 20).build().expect("a pool");
        let own = root.child("tenant").build().expect("a pool");
        own.set_share(8 << 20).expect("nothing is live");
        let within = root.child("within").build().expect("a pool");
        expect(within.allocate(60 << 20, &stream), Owner::Pool, Cause::Shares, "8.0 MiB are reserved");
        let _theirs = within.allocate(56 << 20, &stream).expect("what the share leaves");
        let _own = own.allocate(8 << 20, &stream).expect("its share");
    }
}

#[test]
fn a_child_with_a_limit_borrows_no_larger_block() {
    let (pool, stream) = scene(|builder| builder.size_classes(SizeClasses::GEOMETRIC));
    let (bytes, larger) = (3 << 20, (3 << 20) + (1 << 19));
    for is_captured in [false, true] {
        drop(pool.allocate(larger, &stream).expect("memory"));
        let child = pool.child("tenant").build().expect("a pool");
        child.set_limit(bytes).expect("no share");
        let buffer = child.allocate(bytes, &stream).expect("its limit");
        assert_eq!(buffer.capacity(), bytes, "{is_captured}");
    }
}

#[test]
fn hooks_of_a_pool_see_its_children() {
    let counts = Arc::new(Mutex::new((0, 0)));
    let counted = Arc::clone(&counts);
    let calls = HookCalls::AFTER_REQUEST | HookCalls::AFTER_FREE;
    let hook = Tap::new("counts", calls, move |call, event| {
        let (served, freed) = &mut *counted.lock().expect("no panic");
        match call == HookCalls::AFTER_FREE {
            true => *freed += 1,
            false => *served += u64::from(event.address.is_some()),
        }
    });
    let (pool, stream) = scene(|builder| builder.hook(hook));
    let child = pool.child("tenant").build().expect("a pool");
    child.set_limit(4 << 20).expect("no share");
    drop(child.allocate(4 << 20, &stream).expect("memory"));
    drop(child.allocate(1 << 20, &stream).expect("memory"));
    assert_eq!(*counts.lock().expect("no panic"), (2, 2));
    assert_eq!((child.stats().idle_bytes, pool.stats().held_bytes), (1 << 20, 1 << 20));
}
