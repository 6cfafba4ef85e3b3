//! Pinned blocks that copies go through: nothing waits for one that does not come.

use super::{MIB, Squarer, device, numbers, pool};
use std::sync::mpsc;
use std::time::Duration;
use vrampool::BackendError;
use vrampool::host::{Call, HostDevice};
use vrampool_broker::{ArrayRequest, Broker, Client};

const KIB: u64 = 1 << 10;

/// Fails where `test` does not end.
fn ends(test: impl FnOnce() + Send + 'static) {
    let (done, wait) = mpsc::channel();
    let thread = std::thread::spawn(move || {
        test();
        let _ = done.send(());
    });
    let outcome = wait.recv_timeout(Duration::from_secs(60));
    assert!(outcome != Err(mpsc::RecvTimeoutError::Timeout), "it waits for ever");
    thread.join().expect("no panic");
}

fn upload(broker: &Broker<HostDevice>, bytes: u64) {
    let client = broker.register(Client::new("client")).expect("a client");
    let array = client.queue(ArrayRequest::input("x", [bytes], 1)).expect("queued");
    let plan = broker.commit("default").expect("it fits");
    let data = numbers(bytes / 4);
    plan.execution().upload(array, &data[..]).run(|_, _| Ok(())).expect("a run");
}

/// A broker with these limits on a block, on all blocks, and on pinned bytes.
fn staged(device: &HostDevice, [block, all]: [u64; 2], pinned: u64) -> Broker<HostDevice> {
    Broker::builder(&pool(device)).staging(block, all).pinned_max(pinned).build().expect("a broker")
}

/// The block of 128 KiB is idle and all that the ledger grants, and the rest needs one of 64 KiB.
#[test]
fn an_idle_block_of_another_size_goes_where_the_ledger_refuses() {
    ends(|| {
        let device = HostDevice::new();
        let broker = staged(&device, [128 * KIB, 64 * MIB], 128 * KIB);
        upload(&broker, 192 * KIB);
        assert_eq!((broker.stats().staging_bytes, broker.stats().pinned_live_bytes), (64 * KIB, 0));
    });
}

/// The same where it is the driver that refuses.
#[test]
fn an_idle_block_of_another_size_goes_where_the_driver_refuses() {
    ends(|| {
        // The array, and 128 KiB.
        let device = device(320 * KIB);
        let broker = staged(&device, [128 * KIB, 64 * MIB], 64 * MIB);
        upload(&broker, 192 * KIB);
        assert_eq!(broker.stats().staging_bytes, 64 * KIB);
    });
}

#[test]
fn a_landing_that_fails_leaks_no_block() {
    ends(|| {
        for nth in 1..=4 {
            let device = HostDevice::new();
            let broker = staged(&device, [128 * KIB, 256 * KIB], MIB);
            let client = broker.register(Client::new("client")).expect("a client");
            let arrays = ["a", "b", "c", "d"]
                .map(|label| client.queue(ArrayRequest::output(label, [64 * KIB], 1)).expect("queued"));
            let plan = broker.commit("default").expect("it fits");
            let run = || {
                let mut places = [(); 4].map(|()| vec![0; 64 << 10]);
                let execution =
                    arrays.iter().zip(&mut places).fold(plan.execution(), |execution, (&array, place)| {
                        execution.download(array, &mut place[..])
                    });
                execution.run(|_, _| Ok(()))
            };
            for _ in 0..4 {
                device.faults().fail_nth(Call::Mapped, nth);
                assert!(run().is_err());
                device.faults().clear();
                assert_eq!(broker.stats().pinned_live_bytes, 0, "failure {nth}");
            }
            run().expect("the next one has blocks");
            broker.evict_all().expect("idle");
            assert_eq!(broker.stats().staging_bytes, 0);
        }
    });
}

/// A copy of which the device cannot say whether it is done.
#[test]
fn a_block_that_cannot_be_asked_for_is_dropped() {
    ends(|| {
        let device = HostDevice::new();
        let broker = staged(&device, [64 * KIB, 64 * KIB], MIB);
        for nth in 1..=3 {
            device.faults().fail_nth(Call::Query, nth);
            upload(&broker, 256 * KIB);
            device.faults().clear();
        }
        broker.evict_all().expect("idle");
        assert_eq!((broker.stats().staging_bytes, broker.stats().pinned_retained_bytes), (0, 0));
    });
}

#[test]
fn staging_stays_within_its_bound() {
    let device = device(16 * MIB);
    for (most, streams) in [(64 << 10, 3), (128 << 10, 3), (1 << 20, 2)] {
        let broker = Broker::builder(&pool(&device))
            .staging(64 << 10, most)
            .budget(2 * MIB)
            .build()
            .expect("a broker");
        let squarer = Squarer::new(&broker, Client::new("client"), 1_000_000);
        broker.set_streams("default", streams).expect("idle");
        let plan = broker.commit("default").expect("it fits");
        squarer.run(&plan).expect("a run");
        let peak = broker.stats().peak_staging_bytes;
        assert!(peak > 0 && peak <= most, "{peak} of {most}");
        assert_eq!(broker.stats().pinned_retained_bytes, broker.stats().staging_bytes);
        assert_eq!(broker.stats().pinned_live_bytes, 0);
    }
    // Without any pinned memory it goes by the pageable way.
    let broker = Broker::builder(&pool(&device))
        .staging(64 << 10, 0)
        .pinned_max(0)
        .budget(MIB)
        .build()
        .expect("a broker");
    let squarer = Squarer::new(&broker, Client::new("client"), 1_000_000);
    let error = BackendError::out_of_memory(0, None);
    let plan = broker.commit("default").expect("it fits");
    for nth in 1..100 {
        device.faults().fail_nth_with(Call::Allocate, nth, error.clone());
    }
    squarer.run(&plan).expect("a run");
    device.faults().clear();
    assert_eq!(broker.stats().staging_bytes, 0);
}
