//! Arenas, brokers and sleepers in a forked child: every call fails typed or reports nothing, drops do
//! nothing, and nobody waits. `forks` has pools, `forked_drivers` objects of drivers.
#![cfg(all(feature = "host", target_os = "linux"))]

use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use vrampool::arena::{DeviceArena, Zone};
use vrampool::backend::fork::ForkArc;
use vrampool::broker::{
    ArrayRequest, Broker, BrokerError, BrokerStats, Client, HostBacking, LimitMode, ShareSums,
};
use vrampool::host::HostDevice;
use vrampool::sleep::{BlockState, SleepState};
use vrampool::sleep::{SleepUsage, Sleeper, Wake};
use vrampool::{Backend, GraphMemory, Pool, Stager};
use vrampool_test_support::{assert_forked, end_at_once, in_child_that_ends};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn assert_broker_forked<T>(outcome: Result<T, BrokerError>) {
    assert!(matches!(outcome, Err(BrokerError::Memory(error)) if error.is_forked()));
}

/// Runs `work` again and again on three threads, and `in_the_middle` so many times while they are at it.
fn while_busy(work: impl Fn(u64) + Sync, times: usize, mut in_the_middle: impl FnMut()) {
    let (goes_on, rounds) = (AtomicBool::new(true), AtomicU64::new(0));
    thread::scope(|scope| {
        for thread in 0..3 {
            let (goes_on, rounds, work) = (&goes_on, &rounds, &work);
            scope.spawn(move || {
                while goes_on.load(Ordering::Relaxed) {
                    work(thread);
                    rounds.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for _ in 0..times {
            let before = rounds.load(Ordering::Relaxed);
            while rounds.load(Ordering::Relaxed) < before + 5 {
                thread::yield_now();
            }
            in_the_middle();
        }
        goes_on.store(false, Ordering::Relaxed);
    });
}

/// Notes its drop.
struct Noted<'a>(&'a AtomicBool);

impl Drop for Noted<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_child_drops_no_value_of_a_fork_handle() {
    let device = HostDevice::new();
    let _stream = device.create_stream().expect("a stream");
    let is_dropped = AtomicBool::new(false);
    let mut handle = Some(ForkArc::new(Noted(&is_dropped)));
    let act = || {
        drop(handle.take());
        assert!(!is_dropped.load(Ordering::Relaxed));
    };
    in_child_that_ends(act, end_at_once);
    drop(handle.expect("the parent's"));
    assert!(is_dropped.load(Ordering::Relaxed));
}

#[test]
fn an_arena_reports_nothing_in_a_child() {
    for is_growing in [false, true] {
        let device = HostDevice::builder().memory_limit(64 * MIB).build();
        let stream = device.create_stream().expect("a stream");
        let builder = DeviceArena::builder(&device).limit(16 * MIB);
        let arena = if is_growing { builder.growing() } else { builder }.build().expect("an arena");
        let mut mine = ManuallyDrop::new((arena.allocate(MIB, &stream).expect("memory"), arena.clone()));
        let work = |_| drop(arena.allocate(KIB, &stream).map(|block| (block.offset(), arena.used())));
        while_busy(work, 20, || {
            let act = || {
                let (block, arena) = &mut *mine;
                let bytes = [arena.capacity(), arena.used(), arena.peak_used(), arena.reserved_bytes()];
                assert_eq!(bytes, [0; 4]);
                let more =
                    [arena.highest_end(), arena.address_bytes(), arena.mappings(), arena.backup_bytes()];
                assert_eq!(more, [0; 4]);
                let of_region = [DeviceArena::capacity_of, DeviceArena::used_in, DeviceArena::available];
                assert_eq!(of_region.map(|figure| figure(arena, Zone::Dynamic)), [0; 3]);
                assert_eq!((arena.alignment(), arena.align_up(5), arena.base()), (1, Some(5), None));
                assert_eq!((arena.state(), arena.is_growing()), (SleepState::Asleep, false));
                assert!(arena.blocks().is_empty() && arena.mapped().is_empty());
                assert_forked(block.offset());
                assert_forked(block.resize(2 * MIB, &stream));
                assert_forked(arena.compact(1, &stream, |_| {}));
                assert_forked(arena.resize(MIB));
                assert_eq!((block.parts(), block.state()), (Vec::new(), BlockState::AsleepDiscarded));
                // SAFETY: this process drops them here and ends, and the parent drops its own.
                unsafe { ManuallyDrop::drop(&mut mine) };
            };
            in_child_that_ends(act, end_at_once);
        });
        let (block, _) = ManuallyDrop::into_inner(mine);
        assert_eq!(arena.used(), block.capacity());
    }
}

#[test]
fn a_broker_refuses_a_child() {
    let device = HostDevice::builder().memory_limit(64 * MIB).build();
    let stream = device.create_stream().expect("a stream");
    let broker = Broker::builder(&device).build().expect("a broker");
    let client = broker.register(Client::new("solver").group("solver")).expect("a client");
    let array = client.queue(ArrayRequest::in_out("numbers", [KIB], 4).chunk_axis(0)).expect("a request");
    let plan = broker.commit("solver").expect("memory");
    let pageable = broker.host_array_in(KIB, HostBacking::Pageable).expect("memory");
    let file = broker.host_array_in(KIB, HostBacking::File).expect("a file");
    let mut mine = ManuallyDrop::new((broker.clone(), client, plan, pageable, file));
    let work = |thread: u64| {
        let group = format!("group {thread}");
        let client = broker.register(Client::new("other").group(&group)).expect("a client");
        client.queue(ArrayRequest::scratch("numbers", [KIB], 4)).expect("a request");
        drop(broker.commit(&group).expect("memory"));
        assert!(broker.stats().clients > 0);
    };
    while_busy(work, 20, || {
        let act = || {
            let (broker, client, plan, pageable, file) = &mut *mine;
            assert_broker_forked(Broker::builder(&device).build());
            assert_broker_forked(broker.register(Client::new("third")));
            assert_broker_forked(broker.commit("solver"));
            assert_broker_forked(broker.available("solver"));
            assert_broker_forked(broker.set_streams("solver", 2));
            assert_broker_forked(broker.set_chunk_runs("solver", 2));
            assert_broker_forked(broker.stream("solver"));
            assert_broker_forked(broker.evict_all());
            assert_broker_forked(broker.set_allocator(broker.allocator()));
            assert_broker_forked(broker.host_array(KIB));
            broker.renew_streams();
            broker.set_limit_mode(LimitMode::Active);
            assert_eq!(broker.stats(), BrokerStats::default());
            assert!(broker.clients().is_empty() && broker.shares() == ShareSums::default());
            assert_forked(broker.pool().allocate(KIB, &stream));
            assert_broker_forked(client.queue(ArrayRequest::scratch("more", [KIB], 4)));
            assert_broker_forked(client.withdraw());
            assert_broker_forked(client.forget("numbers"));
            assert_broker_forked(client.move_to("other"));
            assert_broker_forked(client.begin_work());
            assert_broker_forked(client.end_work(&stream));
            assert!(client.group().is_empty() && client.stats().held_bytes == 0);
            assert_broker_forked(plan.run(|_, _| Ok(())));
            for array in [pageable, file] {
                assert_broker_forked(array.read_at(&mut [0], 0));
                assert_broker_forked(array.write_at(&[1], 0));
            }
            // SAFETY: this process drops them here and ends, and the parent drops its own.
            unsafe { ManuallyDrop::drop(&mut mine) };
        };
        in_child_that_ends(act, end_at_once);
    });
    let (_, client, plan, _, file) = ManuallyDrop::into_inner(mine);
    let mut bytes = vec![7; 4 * KIB as usize];
    plan.execution().exchange(array, &mut bytes[..]).run(|_, _| Ok(())).expect("the parent's works");
    let mut read = [1];
    file.read_at(&mut read, 0).expect("no fault");
    assert_eq!(read, [0]);
    drop((client, plan, file));
    assert_eq!((broker.stats().clients, broker.stats().held_bytes), (0, 0));
}

#[test]
fn a_sleeper_refuses_a_child_and_so_do_a_stager_and_the_memory_of_a_graph() {
    for has_virtual_memory in [true, false] {
        let device = HostDevice::builder().memory_limit(64 * MIB).virtual_memory(has_virtual_memory).build();
        let stream = device.create_stream().expect("a stream");
        let freed = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&freed);
        let builder = Sleeper::builder(&device).on_free(move |_| _ = count.fetch_add(1, Ordering::Relaxed));
        let sleeper = builder.build().expect("a sleeper");
        let block = sleeper.allocate_tagged(MIB, "weights", &stream).expect("memory");
        let pool = Pool::shared(&device).expect("a pool");
        let graph = GraphMemory::new(&pool, &stream);
        let of_graph = graph.allocate(KIB).expect("memory");
        let stager = Stager::new(&device);
        let mut target = pool.allocate(MIB, &stream).expect("memory");
        let mut mine = ManuallyDrop::new((sleeper.clone(), block, graph, of_graph, pool.clone()));
        let work = |thread: u64| {
            let tag = format!("tag {thread}");
            drop(sleeper.allocate_tagged(KIB, &tag, &stream).expect("memory"));
            let _ = (sleeper.usage(), sleeper.trim());
        };
        while_busy(work, 10, || {
            let before = freed.load(Ordering::Relaxed);
            let act = || {
                let before = freed.load(Ordering::Relaxed).max(before);
                let (sleeper, block, graph, _, _) = &mut *mine;
                assert_forked(sleeper.allocate(KIB, &stream));
                assert_forked(sleeper.sleep(&["weights"]));
                assert_forked(sleeper.discard(&["weights"]));
                assert_forked(sleeper.wake_up(Wake::All));
                assert_forked(sleeper.trim());
                drop(sleeper.tag("weights"));
                assert_eq!((sleeper.usage(), sleeper.usage_of("weights")), Default::default());
                assert!(sleeper.tags().is_empty() && sleeper.usage() == SleepUsage::default());
                assert_eq!(sleeper.state_of("weights"), SleepState::Asleep);
                assert_forked(block.access().map(drop));
                assert_forked(block.access_mut().map(drop));
                assert_forked(block.write(&[1], &stream));
                assert_forked(block.read(&mut [1], &stream));
                assert_eq!((block.state(), block.address()), (BlockState::AsleepDiscarded, None));
                assert_forked(graph.allocate(KIB));
                assert_forked(graph.used_on(&stream));
                assert_forked(Pool::shared(&device));
                assert_eq!((graph.idle_bytes(), stager.pinned_bytes(), stager.trim()), (0, 0, 0));
                assert_forked(target.on_mut(&stream).map(drop));
                // SAFETY: this process drops them here and ends, and the parent drops its own.
                unsafe { ManuallyDrop::drop(&mut mine) };
                assert_eq!(freed.load(Ordering::Relaxed), before, "no callback");
            };
            in_child_that_ends(act, end_at_once);
        });
        let (_, block, graph, of_graph, _) = ManuallyDrop::into_inner(mine);
        let _ = sleeper.sleep(&["weights"]).expect("the parent's works");
        drop((block, of_graph));
        assert_eq!((sleeper.usage().live_bytes, sleeper.usage().asleep_bytes), (0, 0));
        assert_eq!(graph.idle_bytes(), KIB);
    }
}
