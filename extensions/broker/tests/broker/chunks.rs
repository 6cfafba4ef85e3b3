//! How requests become one partition.

use super::{MANY_CHUNKS, MIB, broker, device, pool};
use vrampool::backend::AllocationRequest;
use vrampool::backend::DeviceKind;
use vrampool::host::HostDevice;
use vrampool::{Backend, Event, Placement};
use vrampool_broker::{ArrayRequest, Broker, BrokerError, ChunkError, Client, Share};
use vrampool_test_support::close_gate;

fn bytes(label: &str, count: u64) -> ArrayRequest {
    ArrayRequest::scratch(label, [count], 1)
}

#[test]
fn test_get_chunk_parameters_unchunkable_exceeds_memory() {
    let (broker, _) = broker(&device(MIB));
    let client = broker.register(Client::new("client")).expect("a client");
    client.queue(bytes("whole", 2 * MIB).chunk_axis(None)).expect("queued");
    let error = broker.commit("default").expect_err("nothing can be cut");
    assert!(matches!(error, BrokerError::Chunk(ChunkError::AllUnchunkable { .. })), "{error}");
    // One run is none that could be cut either.
    client.queue(bytes("one", 1)).expect("queued");
    let error = broker.commit("default").expect_err("nothing can be cut");
    assert!(error.to_string().contains("unchunkable"), "{error}");
    assert!(error.is_out_of_memory() && client.stats().queued == 2 && client.stats().held_bytes == 0);
}

/// Unlike the case above, there is something to be cut.
#[test]
fn test_get_chunk_parameters_unchunkable_alone_exceeds_memory() {
    let (broker, _) = broker(&device(MIB));
    let client = broker.register(Client::new("client")).expect("a client");
    client.queue(bytes("whole", 2 * MIB).chunk_axis(None)).expect("queued");
    client.queue(bytes("cut", 1000)).expect("queued");
    let error = broker.commit("default").expect_err("what cannot be cut is too large");
    assert!(matches!(error, BrokerError::Chunk(ChunkError::UnchunkableTooLarge { .. })), "{error}");
    assert!(error.to_string().contains("Unchunkable arrays require"), "{error}");
    assert!(error.is_out_of_memory() && client.stats().queued == 2 && client.stats().held_bytes == 0);
    assert!(client.forget("whole").expect("registered"));
    client.queue(bytes("cut", 1000)).expect("queued");
    assert!(broker.commit("default").is_ok());
}

#[test]
fn test_get_chunk_parameters_warns_and_raises_when_unfittable() {
    let (broker, warnings) = broker(&device(1000));
    let client = broker.register(Client::new("client")).expect("a client");
    client.queue(ArrayRequest::scratch("large", [10, 5000], 1)).expect("queued");
    let error = broker.commit("default").expect_err("not even one run fits");
    assert!(matches!(error, BrokerError::Chunk(ChunkError::SingleRunTooLarge { .. })), "{error}");
    assert_eq!((warnings.count(MANY_CHUNKS), warnings.count("")), (1, 1));
}

/// CuBIE's estimate did not count what a pool rounds up to, so that an exact fit could run out of memory.
#[test]
fn an_exact_fit_never_runs_out_of_memory() {
    for granularity in [1, 512, 4096, 65536] {
        for arrays in 1..6 {
            for capacity in [300_000, 524_288, 1_000_001] {
                let device = device(capacity);
                let broker =
                    Broker::builder(&pool(&device)).granularity(granularity).build().expect("a broker");
                let client = broker.register(Client::new("client")).expect("a client");
                for array in 0..arrays {
                    let request = ArrayRequest::scratch(format!("{array}"), [1000, 500 + 3 * array], 1);
                    client.queue(request).expect("queued");
                }
                let plan = match broker.commit("default") {
                    Ok(plan) => plan,
                    Err(error) => {
                        assert!(granularity * arrays > capacity, "{error}");
                        continue;
                    }
                };
                assert!(device.memory_info().expect("figures").free_bytes <= capacity, "no overflow");
                assert!(client.stats().held_bytes <= capacity && plan.partition().chunk_len() > 0);
            }
        }
    }
}

/// A device that allocates in large pieces, as CUDA's do, has none for a share of less.
#[test]
fn arrays_take_whole_granules() {
    const GRANULE: u64 = 256 << 10;
    let builder = || HostDevice::builder().memory_limit(4 * MIB).granularity(GRANULE);
    let broker = |device| Broker::builder(&pool(&device)).build().expect("a broker");
    assert_eq!(broker(builder().kind(DeviceKind::Cpu).build()).granularity(), 1);
    let broker = broker(builder().kind(DeviceKind::Discrete).build());
    if cfg!(target_os = "linux") {
        assert_eq!(broker.granularity(), GRANULE, "of its virtual memory");
    }
    let broker = Broker::builder(&pool(broker.device())).granularity(GRANULE).build().expect("a broker");
    let client =
        broker.register(Client::new("client").share(Share::Bytes(2 * GRANULE - 1))).expect("a client");
    for label in ["x", "y"] {
        client.queue(ArrayRequest::scratch(label, [1000, 100], 1)).expect("queued");
    }
    let error = broker.commit("default").expect_err("less than a granule of each");
    assert!(matches!(error, BrokerError::Chunk(ChunkError::SingleRunTooLarge { .. })), "{error}");
    client.set_share(Share::Bytes(2 * GRANULE)).expect("a share");
    assert_eq!(broker.commit("default").expect("it fits").partition().chunks(), 1);
    assert_eq!(client.stats().held_bytes, 2 * GRANULE);
}

/// #644: a share that is too small cuts, and neither waits for the work of other clients nor evicts them.
#[test]
fn test_active_cap_chunking_leaves_unrelated_stream_running() {
    let device = device(100 * MIB);
    let (broker, _) = broker(&device);
    let blocked = broker.stream("unrelated").expect("a stream");
    let open = close_gate(&blocked);
    let behind = device.record(&blocked).expect("recorded");
    let idle =
        broker.register(Client::new("idle").group("other").share(Share::Fixed(0.85))).expect("a client");
    idle.queue(bytes("x", 80 * MIB)).expect("queued");
    broker.commit("other").expect("it fits");
    let capped = broker.register(Client::new("capped").share(Share::Fixed(0.1))).expect("a client");
    capped.queue(bytes("x", 30 * MIB)).expect("queued");
    let plan = broker.commit("default").expect("it fits in three");
    assert_eq!((plan.partition().chunks(), behind.is_complete()), (3, Ok(false)));
    assert_eq!(idle.stats().held_bytes, 80 * MIB, "a share that is too small evicts no other");
    drop(open);
    device.synchronize(&blocked).expect("no failure");
}

/// The extent of the chunk axis, and not what the first axis has.
#[test]
fn test_allocate_queue_extracts_num_runs() {
    let (broker, _) = broker(&device(100 * MIB));
    let client = broker.register(Client::new("client")).expect("a client");
    client.queue(bytes("table", 64).chunk_axis(None)).expect("queued");
    let plan = broker.commit("default").expect("it fits");
    assert_eq!((plan.partition().runs(), plan.partition().chunks()), (1, 1));
    client.queue(ArrayRequest::scratch("states", [3, 2, 500], 4).chunk_axis(2)).expect("queued");
    assert_eq!(broker.commit("default").expect("it fits").partition().runs(), 500);
}

#[test]
fn test_allocate_queue_uses_first_request_total_runs() {
    let (broker, _) = broker(&device(100 * MIB));
    let client = broker.register(Client::new("client")).expect("a client");
    // The first that says more than one.
    client.queue(bytes("table", 64).chunk_axis(None)).expect("queued");
    client.queue(ArrayRequest::scratch("states", [10, 150], 4).chunk_axis(1)).expect("queued");
    client.queue(ArrayRequest::scratch("more", [5, 150], 4).chunk_axis(1)).expect("queued");
    let plan = broker.commit("default").expect("it fits");
    assert_eq!((plan.partition().chunk_len(), plan.partition().chunks()), (150, 1));
    client.queue(ArrayRequest::scratch("odd", [7], 4)).expect("queued");
    let error = broker.commit("default").expect_err("7 are not 150");
    assert!(matches!(&error, BrokerError::Request { label, .. } if label == "odd"), "{error}");
}

/// #568: without it a second solve went on with what was there, cut for another.
#[test]
fn test_allocate_queue_empty_rebroadcasts_chunk_parameters() {
    let device = device(MIB);
    let (broker, _) = broker(&device);
    let client = broker.register(Client::new("client")).expect("a client");
    assert!(matches!(broker.commit("default"), Err(BrokerError::NothingQueued { .. })));
    client.queue(bytes("x", 3 * MIB)).expect("queued");
    let first = broker.commit("default").expect("it fits in three");
    let again = broker.commit("default").expect("nothing is new");
    assert_eq!(first.partition(), again.partition());
    // Others took memory meanwhile: what is there stays as it is.
    let allocations = device.faults().calls(vrampool::host::Call::Allocate);
    broker.commit("default").expect("nothing is new");
    assert_eq!(device.faults().calls(vrampool::host::Call::Allocate), allocations);
}

#[test]
fn test_allocate_queue_multiple_instances_group_limit() {
    let (broker, _) = broker(&device(100 * MIB));
    let register = |name, share| {
        let client = Client::new(name).group("solver").share(Share::Fixed(share));
        broker.register(client).expect("a client")
    };
    let (one, two) = (register("one", 0.1), register("two", 0.2));
    one.queue(bytes("x", 40 * MIB)).expect("queued");
    two.queue(ArrayRequest::scratch("y", [40 * MIB / 2, 2], 1).chunk_axis(None)).expect("queued");
    assert!(broker.commit("solver").is_err(), "40 MiB that cannot be cut are more than both have");
    two.queue(bytes("y", 40 * MIB)).expect("queued");
    let plan = broker.commit("solver").expect("it fits in three");
    assert_eq!(plan.partition().chunks(), 3);
    assert_eq!(one.stats().held_bytes + two.stats().held_bytes, 30 * MIB);
}

/// What a device allocates in one piece bounds a chunk too.
#[test]
fn no_array_of_a_chunk_is_larger_than_the_device_allocates() {
    let device = HostDevice::builder().memory_limit(100 * MIB).max_allocation(8 * MIB).build();
    assert!(device.allocate(&AllocationRequest::new(8 * MIB + 1, Placement::Device)).is_err());
    let (broker, _) = broker(&device);
    let client = broker.register(Client::new("client")).expect("a client");
    for label in ["x", "y"] {
        client.queue(ArrayRequest::scratch(label, [20, MIB], 1)).expect("queued");
    }
    let plan = broker.commit("default").expect("40 MiB would fit in one");
    assert_eq!((plan.partition().chunk_len(), client.stats().held_bytes), (8, 16 * MIB));
}

#[test]
fn more_streams_hold_more_and_smaller_chunks() {
    let (broker, _): (Broker<HostDevice>, _) = broker(&device(12 * MIB));
    let client = broker.register(Client::new("client")).expect("a client");
    client.queue(bytes("x", 48 * MIB)).expect("queued");
    broker.set_streams("default", 3).expect("idle");
    let plan = broker.commit("default").expect("it fits");
    assert_eq!((plan.streams(), plan.partition().chunk_len()), (3, 4 * MIB));
    assert_eq!(client.stats().held_bytes, 12 * MIB);
    // Where not even one run fits on each, fewer are used.
    client.queue(ArrayRequest::scratch("x", [5, 5 * MIB], 1)).expect("queued");
    let plan = broker.commit("default").expect("it fits on two");
    assert_eq!((plan.streams(), plan.partition().chunk_len()), (2, 1));
    assert!(matches!(broker.set_streams("default", 0), Err(BrokerError::Setting { .. })));
    let error = broker.set_streams("default", 1_000_000_000).expect_err("no thread for each");
    assert!(error.to_string().contains("1 to 1024 streams, not 1000000000"), "{error}");
    broker.set_streams("default", 1024).expect("idle");
}

#[test]
fn chunks_are_as_short_as_a_group_asks_for_though_all_would_fit() {
    let (broker, _) = broker(&device(12 * MIB));
    let client = broker.register(Client::new("client")).expect("a client");
    client.queue(bytes("x", 6 * MIB)).expect("queued");
    broker.set_streams("default", 3).expect("idle");
    assert_eq!(broker.commit("default").expect("it fits").streams(), 1);
    broker.set_chunk_runs("default", MIB).expect("idle");
    let plan = broker.commit("default").expect("it fits");
    assert_eq!((plan.streams(), plan.partition().chunk_len(), plan.partition().chunks()), (3, MIB, 6));
    assert_eq!(client.stats().held_bytes, 3 * MIB);
    assert!(matches!(broker.set_chunk_runs("default", 0), Err(BrokerError::Setting { .. })));
}
