//! A broker and a stager in a forked child: every call fails typed or reports nothing, drops do nothing, and nothing
//! waits.
#![cfg(target_os = "linux")]

use std::mem::ManuallyDrop;
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool};
use vrampool_broker::{ArrayRequest, Broker, BrokerError, BrokerStats, Client, HostBacking, Stager};
use vrampool_test_support::{assert_forked, end_at_once, in_child_that_ends, while_busy};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn assert_broker_forked<T>(outcome: Result<T, BrokerError>) {
    assert!(matches!(outcome, Err(BrokerError::Memory(error)) if error.is_forked()));
}

#[test]
fn a_broker_refuses_a_child() {
    let device = HostDevice::builder().memory_limit(64 * MIB).build();
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::new(&device).expect("a pool");
    let broker = Broker::builder(&pool).build().expect("a broker");
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
            assert_broker_forked(Broker::builder(&pool).build());
            assert_broker_forked(broker.register(Client::new("third")));
            assert_broker_forked(broker.commit("solver"));
            assert_broker_forked(broker.set_streams("solver", 2));
            assert_broker_forked(broker.set_chunk_runs("solver", 2));
            assert_broker_forked(broker.stream("solver"));
            assert_broker_forked(broker.evict_all());
            assert_broker_forked(broker.host_array(KIB));
            assert_eq!(broker.stats(), BrokerStats::default());
            assert!(broker.clients().is_empty());
            assert_forked(broker.pool().allocate(KIB, &stream));
            assert_broker_forked(client.queue(ArrayRequest::scratch("more", [KIB], 4)));
            assert_broker_forked(client.forget("numbers"));
            assert_eq!(client.stats().held_bytes, 0);
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
fn a_stager_refuses_a_child() {
    let device = HostDevice::builder().memory_limit(64 * MIB).build();
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::new(&device).expect("a pool");
    let stager = Stager::new(&device);
    let mut target = pool.allocate(MIB, &stream).expect("memory");
    let bytes = vec![1; MIB as usize];
    let _ = stager.upload(&bytes, target.on_mut(&stream).expect("a region"), &stream).expect("queued");
    device.synchronize(&stream).expect("no fault");
    let act = || {
        assert_eq!((stager.pinned_bytes(), stager.trim()), (0, 0));
        assert_forked(target.on_mut(&stream).map(drop));
    };
    in_child_that_ends(act, end_at_once);
    assert_eq!(stager.trim(), MIB);
}
