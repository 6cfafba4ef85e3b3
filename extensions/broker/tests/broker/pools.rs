//! A broker is a client of a pool: its memory is a child of the pool, on every source.

use super::{MIB, device};
use crate::detached::detach;
use vrampool::arena::DeviceArena;
use vrampool::host::HostDevice;
use vrampool::{Backend, Buffer, Error, Pool, SizeClasses, Source};
use vrampool_broker::{ArrayRequest, Broker, BrokerError, Client};

const LIMIT: u64 = 8 * MIB;

/// Calls `test` with a pool of each source that this device has, whose limit is half of the device.
fn on_each_source(test: impl Fn(&HostDevice, Pool<HostDevice>)) {
    for &source in Source::ALL {
        let device = HostDevice::builder().memory_limit(2 * LIMIT).granularity(64 << 10).build();
        if source != Source::Virtual || device.virtual_memory().is_some() {
            let pool = Pool::builder(&device)
                .source(source)
                .size_classes(SizeClasses::EXACT)
                .limit(LIMIT)
                .build()
                .expect("a pool");
            test(&device, pool);
        }
    }
}

#[test]
fn a_broker_and_its_pool_are_within_one_limit() {
    on_each_source(|device, pool| {
        let (source, stream) = (pool.source(), device.create_stream().expect("a stream"));
        let own = pool.allocate(4 * MIB, &stream).expect("memory");
        let broker = Broker::builder(&pool).build().expect("a broker");
        let client = broker.register(Client::new("client")).expect("a client");
        let commit = || {
            client.queue(ArrayRequest::scratch("x", [20 * MIB], 1)).expect("queued");
            let plan = broker.commit("default").expect("it fits in chunks");
            let (held, stats) = (client.stats().held_bytes, pool.stats());
            assert_eq!(plan.partition().chunk_len(), held, "{source}");
            assert_eq!(
                (broker.pool().stats().live_bytes, pool.own_stats().live_bytes),
                (held, stats.live_bytes - held)
            );
            held
        };
        assert_eq!(commit(), 4 * MIB, "{source}: what the pool's own memory leaves");
        assert_eq!(broker.stats().counts.retries, 0, "{source}");
        assert!(pool.allocate(64 << 10, &stream).is_err_and(|error| error.is_out_of_memory()), "{source}");
        // Idle memory of each serves the other.
        broker.evict_all().expect("idle");
        let more = pool.allocate(2 * MIB, &stream).expect("what the broker left");
        assert_eq!(commit(), 2 * MIB, "{source}");
        drop((own, more));
        assert_eq!(commit(), LIMIT, "{source}");
        pool.close();
        client.queue(ArrayRequest::scratch("x", [10 * MIB], 1)).expect("queued");
        let closed = broker.commit("default").expect_err("its pool is closed");
        assert!(matches!(closed, BrokerError::Memory(Error::Closed)), "{source}: {closed}");
        drop((client, broker, pool));
        assert_eq!(device.memory_info().expect("figures").free_bytes, 2 * LIMIT, "{source}");
    });
}

/// The pool's own blocks come and go between commits, and where memory sleeps, those of another child fall asleep: the
/// device never gives more than the limit. A commit is not refused what the limits leave, and its chunks are as long.
#[test]
fn commits_get_what_the_limits_leave_and_no_more() {
    const BUDGET: u64 = 6 * MIB;
    /// Bytes of an arena that no array may get: in pages that are used in part, or between blocks.
    const UNUSABLE: u64 = 2 * MIB;
    on_each_source(|device, pool| {
        let (mut rng, stream) = (fastrand::Rng::with_seed(7), device.create_stream().expect("a stream"));
        let broker = Broker::builder(&pool).budget(BUDGET).build().expect("a broker");
        let clients =
            ["one", "two"].map(|name| broker.register(Client::new(name).group(name)).expect("a client"));
        let (source, sleeper) = (pool.source(), pool.child("sleeper").build().expect("a pool"));
        let (is_whole, mut is_asleep) = ([Source::Direct, Source::Driver].contains(&source), false);
        let unusable = if is_whole { 0 } else { UNUSABLE };
        let bytes = |blocks: &[Buffer<_>]| blocks.iter().map(Buffer::capacity).sum::<u64>();
        let (mut own, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..1000 {
            let awake = if is_asleep { 0 } else { bytes(&theirs) };
            match rng.u8(..8) {
                0 | 1 => own.extend(pool.allocate(rng.u64(1..2 * MIB), &stream)),
                2 if !own.is_empty() => drop(own.swap_remove(rng.usize(..own.len()))),
                3 if bytes(&theirs) < 3 * MIB => theirs.extend(sleeper.allocate(rng.u64(1..MIB), &stream)),
                3 => theirs.clear(),
                4 if source == Source::Virtual && !is_asleep => {
                    detach(sleeper.arena().expect("it is virtual")).expect("no fault");
                    is_asleep = true;
                }
                4 if is_asleep => {
                    let wake = || sleeper.arena().expect("it is virtual").attach();
                    let woken = wake().or_else(|_| {
                        // Idle memory, and that of the broker's clients.
                        broker.evict_all().expect("idle");
                        pool.trim().expect("a trim");
                        wake()
                    });
                    is_asleep = match woken {
                        Ok(attaching) => attaching.map(|attaching| attaching.commit()).is_none(),
                        Err(error) => {
                            assert!(bytes(&own) + bytes(&theirs) + unusable > LIMIT, "{error}");
                            true
                        }
                    };
                }
                _ => {
                    let which = rng.usize(..2);
                    let (client, other, run) = (&clients[which], &clients[1 - which], rng.u64(1..100_000));
                    let footprint = |len: u64| broker.pool().class_of(run * len).expect("a class");
                    let rest = LIMIT.saturating_sub(bytes(&own) + awake);
                    client.queue(ArrayRequest::scratch("x", [64, run], 1)).expect("queued");
                    match broker.commit(client.name()) {
                        Ok(plan) => {
                            let (len, room) =
                                (plan.partition().chunk_len(), rest.min(BUDGET) - other.stats().held_bytes);
                            assert!(
                                len == 64 || footprint(len + 1) + unusable > room,
                                "{source}: {len} of {room}"
                            );
                        }
                        Err(error) => {
                            assert!(error.is_out_of_memory(), "{error}");
                            assert!(
                                footprint(1) + unusable > rest.min(BUDGET),
                                "{source}, of {rest}: {error}"
                            );
                        }
                    }
                }
            }
            let used = 2 * LIMIT - device.memory_info().expect("figures").free_bytes;
            let (stats, broker) = (pool.stats(), broker.stats());
            let (held, retries) = (broker.held_bytes, broker.counts.retries);
            assert!(used <= LIMIT && held <= BUDGET, "{used}, {held}: {stats}");
            assert!(stats.held_bytes <= LIMIT || is_asleep, "{stats}");
            assert_eq!(stats.live_bytes, bytes(&own) + bytes(&theirs) + held, "{source}");
            assert!(retries == 0 || !is_whole, "{source}: it knew what there was");
        }
    });
}

#[test]
fn the_budget_is_the_childs_limit() {
    let pool = Pool::new(&device(MIB)).expect("a pool");
    let broker = Broker::builder(&pool).name("half").budget(MIB / 2).build().expect("a broker");
    assert_eq!((broker.pool().limit(), broker.stats().budget_bytes), (Some(MIB / 2), Some(MIB / 2)));
    let stream = broker.stream("default").expect("a stream");
    let error = broker.pool().allocate(MIB, &stream).expect_err("it is above the limit");
    assert!(error.is_out_of_memory() && error.to_string().contains("limit is 512.0 KiB"), "{error}");
}

#[test]
fn a_child_over_an_arena_has_a_broker() {
    let device = device(2 * LIMIT);
    let arena = DeviceArena::builder(&device).limit(LIMIT).build().expect("an arena");
    // Without a limit the arena's size is the bound.
    let pool = Pool::builder(&device).arena(&arena).build().expect("a pool");
    let child = pool.child("tenant").build().expect("a child");
    // The arena has its memory already.
    let broker = Broker::builder(&child).reserve(2 * LIMIT).build().expect("a broker");
    let client = broker.register(Client::new("client")).expect("a client");
    client.queue(ArrayRequest::scratch("x", [4 * MIB], 1)).expect("queued");
    let plan = broker.commit("default").expect("it fits");
    assert_eq!((plan.partition().runs(), client.stats().held_bytes), (4 * MIB, 4 * MIB));
    assert_eq!(broker.stats().reserve_bytes, 0);
    client.queue(ArrayRequest::scratch("x", [100 * MIB], 1)).expect("queued");
    let plan = broker.commit("default").expect("it fits in chunks");
    assert!(plan.partition().chunk_len() > LIMIT / 2, "{:?}", plan.partition());
    assert_eq!(broker.stats().counts.retries, 0);
}

/// What a limit above keeps for another child is no room.
#[test]
fn idle_clients_are_evicted_where_a_limit_above_leaves_less() {
    on_each_source(|_, pool| {
        let other = pool.child("other").share(4 * MIB).build().expect("a share");
        let broker = Broker::builder(&pool).build().expect("a broker");
        let commit = |group: &'static str| {
            let client = broker.register(Client::new(group).group(group)).expect("a client");
            client.queue(ArrayRequest::scratch("x", [4 * MIB], 1).chunk_axis(None)).expect("queued");
            broker.commit(group).expect("the idle one gives way");
            client
        };
        let (first, second) = (commit("one"), commit("two"));
        assert_eq!((first.stats().held_bytes, second.stats().held_bytes), (0, 4 * MIB), "{}", pool.source());
        assert_eq!(broker.stats().counts.retries, 0);
        drop(other);
    });
}
