//! Results on their way home: CuBIE's tests of its watcher, by the names of those that are not about its
//! thread.

use super::{MIB, Squarer, broker, device, floats, numbers};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vrampool::Backend;
use vrampool::host::Call;
use vrampool_broker::{ArrayRequest, Broker, Client};

const KIB: u64 = 1 << 10;

/// When a run returns all its results are there, whatever its streams have to do before.
#[test]
fn test_wait_all_polls_until_complete() {
    let (broker, _) = broker(&device(200_000));
    let squarer = Squarer::new(&broker, Client::new("client"), 100_000);
    broker.set_streams("default", 3).expect("idle");
    let plan = broker.commit("default").expect("it fits in parts");
    let done = AtomicU64::new(0);
    let (numbers, mut squares) = (numbers(100_000), vec![0; 400_000]);
    let execution =
        plan.execution().upload(squarer.from, &numbers[..]).download(squarer.to, &mut squares[..]);
    let report = execution
        .on_progress(|progress| _ = done.fetch_add(progress.range.end - progress.range.start, Relaxed))
        .run(|chunk, stream| squarer.work(chunk, stream))
        .expect("a run");
    assert_eq!((done.load(Relaxed), report.runs), (100_000, 100_000));
    assert!(floats(&numbers).zip(floats(&squares)).all(|(from, to)| to == from * from));
}

#[test]
fn test_wait_all_returns_immediately_when_no_pending() {
    let device = device(MIB);
    let (broker, _) = broker(&device);
    let client = broker.register(Client::new("client")).expect("a client");
    client.queue(ArrayRequest::scratch("x", [1000], 1)).expect("queued");
    let plan = broker.commit("default").expect("it fits");
    plan.run(|_, _| Ok(())).expect("a run");
    let copies = device.faults().calls(Call::Copy);
    plan.run(|_, _| Ok(())).expect("a run");
    assert_eq!((device.faults().calls(Call::Copy), copies, broker.stats().staging_bytes), (0, 0, 0));
}

#[test]
fn test_multiple_tasks_all_complete() {
    let device = device(MIB);
    let broker = Broker::builder(&device).staging(64 * KIB, 64 * KIB).build().expect("a broker");
    let client = broker.register(Client::new("client")).expect("a client");
    let arrays = [1_u8, 2, 3].map(|value| {
        (client.queue(ArrayRequest::output(value.to_string(), [70_000], 1)).expect("queued"), value)
    });
    let plan = broker.commit("default").expect("it fits");
    let mut places = [(); 3].map(|()| vec![0_u8; 70_000]);
    let execution = arrays
        .iter()
        .zip(&mut places)
        .fold(plan.execution(), |execution, (&(array, _), place)| execution.download(array, &mut place[..]));
    execution
        .run(|chunk, stream| {
            for (array, value) in arrays {
                device.fill(stream, chunk.region_mut(array)?, value)?;
            }
            Ok(())
        })
        .expect("a run");
    for ((_, value), place) in arrays.iter().zip(&places) {
        assert!(place.iter().all(|byte| byte == value));
    }
}

/// One chunk, all of an array.
#[test]
fn test_process_task_copies_full_buffer_when_no_data_shape() {
    let (broker, _) = broker(&device(MIB));
    let squarer = Squarer::new(&broker, Client::new("client"), 10_000);
    assert_eq!(squarer.run(&broker.commit("default").expect("it fits")).expect("a run").chunks, 1);
}

/// The last chunk has fewer runs than its memory is for: no more of it is copied than there are.
#[test]
fn test_process_task_copies_sliced_buffer_when_data_shape_provided() {
    let (broker, _) = broker(&device(MIB));
    let squarer = Squarer::new(&broker, Client::new("client"), 10_001);
    broker.set_chunk_runs("default", 4_000).expect("idle");
    let plan = broker.commit("default").expect("it fits");
    let report = squarer.run(&plan).expect("a run");
    assert_eq!((report.chunks, plan.partition().chunk(2)), (3, 8_000..10_001));
    assert_eq!(report.copied_bytes, 2 * 40_004);
}

#[test]
fn test_process_task_releases_buffer_to_pool() {
    let device = device(MIB);
    let broker = Broker::builder(&device).staging(64 * KIB, 128 * KIB).build().expect("a broker");
    let squarer = Squarer::new(&broker, Client::new("client"), 50_000);
    let plan = broker.commit("default").expect("it fits");
    for _ in 0..3 {
        squarer.run(&plan).expect("a run");
        let stats = broker.stats();
        assert_eq!((stats.pinned_live_bytes, stats.pinned_retained_bytes), (0, stats.staging_bytes));
        assert!(stats.staging_bytes > 0 && stats.staging_bytes <= 128 * KIB);
    }
}
