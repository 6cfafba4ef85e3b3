//! Other users of the device. A second process on a GPU: `tests/cuda_second_process.rs`.

use super::{MIB, Squarer, Warnings, device, pool};
use std::sync::Mutex;
use vrampool::backend::AllocationRequest;
use vrampool::{Backend, Placement};
use vrampool_broker::{ArrayRequest, Broker, Client, Progress};

#[test]
fn a_reserve_is_left_to_others() {
    let device = device(10 * MIB);
    let others = device.allocate(&AllocationRequest::new(2 * MIB, Placement::Device)).expect("memory");
    let broker = Broker::builder(&pool(&device)).reserve(3 * MIB).build().expect("a broker");
    let client = broker.register(Client::new("client")).expect("a client");
    client.queue(ArrayRequest::scratch("x", [20 * MIB], 1)).expect("queued");
    assert_eq!(broker.commit("default").expect("it fits").partition().chunk_len(), 5 * MIB);
    assert_eq!(device.memory_info().expect("figures").free_bytes, 3 * MIB);
    drop(others);
    client.queue(ArrayRequest::scratch("x", [20 * MIB], 1)).expect("queued");
    assert_eq!(broker.commit("default").expect("it fits").partition().chunk_len(), 7 * MIB);
}

/// Another process allocates memory during a run: the broker releases some, continues with finer chunks,
/// and completes.
#[test]
fn memory_that_others_take_in_the_middle_makes_chunks_finer() {
    for streams in [1, 2, 3] {
        let device = device(4 * MIB);
        let builder = Broker::builder(&pool(&device)).staging(64 << 10, 64 << 10).reserve(MIB);
        let (broker, warnings) = Warnings::of(builder);
        let squarer = Squarer::new(&broker, Client::new("client"), 4_000_000);
        broker.set_streams("default", streams).expect("idle");
        let plan = broker.commit("default").expect("it fits");
        let before = plan.partition().chunk_len();
        let grabbed = Mutex::new(Vec::new());
        let grab = |progress: &Progress| {
            // As much as there is, up to 2 MiB in all.
            let mut grabbed = grabbed.lock().expect("no panic");
            if progress.chunks_done >= 2 && grabbed.len() < 8 {
                grabbed.extend(device.allocate(&AllocationRequest::new(MIB / 4, Placement::Device)));
            }
        };
        let report = squarer.run_with(&plan, grab, |_, _| Ok(())).expect("a run");
        assert_eq!(grabbed.lock().expect("no panic").len(), 8, "others got what they need");
        assert!(report.shrinks > 0 && report.chunk_len < before, "{report:?}");
        assert!(report.chunks > plan.partition().chunks());
        assert_eq!(warnings.count("the group `default` goes on with") as u64, report.shrinks);
        // The next run takes the memory that is available then.
        drop(grabbed);
        assert!(squarer.run(&plan).expect("a run").chunk_len > report.chunk_len);
        assert_eq!(device.races(), 0);
    }
}
