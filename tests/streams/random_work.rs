//! Random work on four streams never sees data of others. Without the waits it does.

use super::{Device, Stream, contents, device, result_memory, sources};
use proptest::prelude::*;
use std::collections::VecDeque;
use vrampool::{Backend, Pool, RegionMut, Source};
use vrampool_test_support::{close_gate, streams};

#[derive(Debug, Clone)]
struct Lease {
    stream: usize,
    bytes: u64,
    /// A further stream that reads it too.
    reader: Option<usize>,
    /// A further stream that reads it too, which is only recorded in the pool: the program has its own order.
    recorded: Option<usize>,
    /// A further stream that writes it after the first.
    second_writer: Option<usize>,
    /// Whether it stays live for a while.
    kept: bool,
}

fn lease() -> impl Strategy<Value = Lease> {
    let bytes = prop_oneof![1u64..5000, Just(16 * 1024)];
    let further = || proptest::option::of(0..4usize);
    (0..4usize, bytes, further(), further(), further(), any::<bool>()).prop_map(
        |(stream, bytes, reader, recorded, second_writer, kept)| Lease {
            stream,
            bytes,
            reader,
            recorded,
            second_writer,
            kept,
        },
    )
}

/// Queues all leases while every stream is held back, lets them go at once, and counts results that are not
/// their own. Some buffers stay live for a while, and an arena is compacted now and then.
fn wrong_results(device: &Device, source: Source, leases: &[Lease]) -> usize {
    let builder = Pool::builder(device).source(source).limit(16 << 20);
    let pool = builder.max_buffers_per_bucket(2).build().expect("a pool");
    let mut kept = VecDeque::new();
    let streams: [Stream; 4] = streams(device);
    let gates: Vec<_> = streams.iter().map(close_gate).collect();
    let mut results = Vec::new();
    for (n, lease) in leases.iter().enumerate() {
        let value = (n % 251) as u8 + 1;
        let stream = &streams[lease.stream];
        let mut buffer = pool.allocate(lease.bytes, stream).expect("memory");
        for noise in [0, value ^ 0xFF, value] {
            device.fill(stream, buffer.on_mut(stream).expect("a region"), noise).expect("queued");
        }
        if let Some(second) = lease.second_writer {
            device
                .fill(&streams[second], buffer.on_mut(&streams[second]).expect("a region"), value)
                .expect("queued");
        }
        if let Some(reader) = lease.recorded.map(|reader| &streams[reader]) {
            let writer = buffer.stream().clone();
            device.wait(reader, &device.record(&writer).expect("an event")).expect("queued");
            let (waits, result) = (pool.stats().stream_waits, result_memory(device, lease.bytes));
            buffer.record_stream(reader).expect("no fault");
            assert_eq!(pool.stats().stream_waits, waits, "the program did");
            let region = buffer.on(&writer).expect("a region").for_stream(reader);
            device.copy(reader, region, RegionMut::whole(&result, reader)).expect("queued");
            results.push((result, reader.clone(), value));
        }
        let mut copy_out = |reader: &Stream| {
            let result = result_memory(device, lease.bytes);
            let region = buffer.on(reader).expect("a region");
            device.copy(reader, region, RegionMut::whole(&result, reader)).expect("queued");
            results.push((result, reader.clone(), value));
        };
        copy_out(stream);
        if let Some(reader) = lease.reader {
            copy_out(&streams[reader]);
        }
        if lease.kept {
            kept.push_back((buffer, value));
        }
        if kept.len() > 8 || n % 7 == 6 {
            kept.pop_front();
        }
        if n % 10 == 9 {
            pool.compact(20_000, &streams[n / 10 % 4], |_| {}).expect("no fault");
        }
    }
    for (n, (buffer, value)) in kept.iter().enumerate() {
        // On any stream, wherever the buffer is by now.
        let (stream, result) = (&streams[n % 4], result_memory(device, buffer.len()));
        let region = buffer.on(stream).expect("a region");
        device.copy(stream, region, RegionMut::whole(&result, stream)).expect("queued");
        results.push((result, stream.clone(), *value));
    }
    drop(gates);
    results
        .iter()
        .filter(|(result, stream, value)| contents(device, stream, result).iter().any(|byte| byte != value))
        .count()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn random_work_on_four_streams_never_sees_anothers_data(
        leases in prop::collection::vec(lease(), 1..120),
        source in prop::sample::select(sources()),
    ) {
        let device = device();
        prop_assert_eq!(wrong_results(&device, source, &leases), 0);
        prop_assert_eq!(device.inner().races(), 0, "two streams met on one range");
    }
}

/// The law above is able to fail: without the waits the same kind of work sees others' data.
#[test]
fn random_work_without_waits_sees_anothers_data() {
    let mut random = fastrand::Rng::with_seed(7);
    for source in sources() {
        let seen = (0..50).any(|_| {
            let device = device();
            device.remove_waits();
            let mut lease = || {
                let (stream, reader) = (random.usize(..4), Some(random.usize(..4)));
                let kept = random.bool();
                Lease { stream, bytes: 16 * 1024, reader, recorded: None, second_writer: None, kept }
            };
            let leases: Vec<_> = (0..120).map(|_| lease()).collect();
            wrong_results(&device, source, &leases) > 0 || device.inner().races() > 0
        });
        assert!(seen, "neither wrong data nor a race in 50 rounds without waits, {source}");
    }
}
