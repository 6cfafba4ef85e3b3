//! What changes between a commit and a run, or in the middle of either.

use super::{MIB, Squarer, broker, device, pool};
use std::time::{Duration, Instant};
use vrampool::backend::AllocationRequest;
use vrampool::host::Call;
use vrampool::{Backend, BackendError, Placement};
use vrampool_broker::{ArrayRequest, Broker, BrokerError, Client, HostBacking, Share};

#[test]
fn shares_that_are_enforced_count_from_the_next_commit_on() {
    let (broker, _) = broker(&device(MIB));
    let client = broker.register(Client::new("a").group("a")).expect("a client");
    let other = broker.register(Client::new("b").group("b")).expect("a client");
    client.queue(ArrayRequest::scratch("x", [MIB], 1)).expect("queued");
    let plan = broker.commit("a").expect("it fits");
    assert_eq!(client.stats().held_bytes, MIB);
    other.set_share(Share::Fixed(0.25)).expect("a share");
    plan.run(|_, _| Ok(())).expect("a run");
    assert!(client.stats().held_bytes <= client.stats().cap_bytes, "{:?}", client.stats());
}

#[test]
fn a_reserve_that_others_took_is_restored_by_a_commit() {
    const KIB: u64 = 1 << 10;
    let device = device(MIB);
    let broker = Broker::builder(&pool(&device)).reserve(256 * KIB).build().expect("a broker");
    let client = broker.register(Client::new("a")).expect("a client");
    let queue = || client.queue(ArrayRequest::scratch("x", [700 * KIB], 1)).expect("queued");
    queue();
    broker.commit("default").expect("it fits");
    let _others = device.allocate(&AllocationRequest::new(300 * KIB, Placement::Device)).expect("memory");
    queue();
    broker.commit("default").expect("it fits in chunks");
    assert!(device.memory_info().expect("figures").free_bytes >= 256 * KIB);
}

#[test]
fn a_commit_that_fails_on_a_later_attempt_holds_nothing() {
    let device = device(MIB);
    let (broker, _) = broker(&device);
    let client = broker.register(Client::new("a")).expect("a client");
    for label in ["x", "y"] {
        client.queue(ArrayRequest::scratch(label, [256 << 10], 1)).expect("queued");
    }
    // A pool asks three times; the first array is there by then, and the figures fail.
    for nth in 2..=4 {
        let error = BackendError::out_of_memory(0, None);
        device.faults().fail_nth_with(Call::Allocate, nth, error);
    }
    let mut has_failed = false;
    for nth in 1..12 {
        device.faults().fail_nth(Call::MemoryInfo, nth);
        if broker.commit("default").is_err() {
            has_failed = true;
            assert_eq!(client.stats().held_bytes, 0, "failure {nth}");
        }
        device.faults().clear();
        broker.evict_all().expect("idle");
        assert_eq!(broker.stats().held_bytes, 0);
        client.queue(ArrayRequest::scratch("x", [256 << 10], 1)).expect("queued");
        for nth in 2..=4 {
            let error = BackendError::out_of_memory(0, None);
            device.faults().fail_nth_with(Call::Allocate, nth, error);
        }
    }
    assert!(has_failed);
}

#[test]
fn any_name_of_a_group_will_do() {
    let (broker, _) = broker(&device(MIB));
    for group in ["a\0b", "\0", "\u{1F980}"] {
        let squarer = Squarer::new(&broker, Client::new("a").group(group), 100_000);
        broker.set_streams(group, 3).expect("idle");
        let plan = broker.commit(group).expect("it fits");
        for _ in 0..2 {
            squarer.run(&plan).expect("a run");
        }
        assert!(squarer.client.stats().held_bytes > 0);
        broker.evict_all().expect("idle");
        assert_eq!(squarer.client.stats().held_bytes, 0);
    }
}

/// A group of former clients has no streams: what would be found is a new one.
#[test]
fn a_group_goes_with_its_last_client_also_in_the_middle_of_a_run() {
    let (broker, _) = broker(&device(MIB));
    let client = broker.register(Client::new("a").group("a")).expect("a client");
    client.queue(ArrayRequest::scratch("x", [1000], 1)).expect("queued");
    broker.set_chunk_runs("a", 10).expect("idle");
    let plan = broker.commit("a").expect("it fits");
    let handle = std::sync::Mutex::new(Some(client));
    plan.run(|_, _| {
        drop(handle.lock().expect("no panic").take());
        Ok(())
    })
    .expect("a run");
    let again = broker.register(Client::new("a").group("a")).expect("a client");
    again.queue(ArrayRequest::scratch("x", [1000], 1)).expect("queued");
    assert_eq!(
        broker.commit("a").expect("it fits").partition().chunk_len(),
        1000,
        "its settings went with it"
    );
}

#[test]
fn a_pinned_array_of_nothing_is_refused_as_that() {
    let (broker, _) = broker(&device(MIB));
    let error = broker.host_array_in(0, HostBacking::Pinned).expect_err("nothing to pin");
    assert!(!error.is_out_of_memory(), "{error}");
    assert!(broker.host_array(0).expect("an array").is_empty());
}

#[test]
fn what_was_committed_can_be_forgotten() {
    let (broker, _) = broker(&device(MIB));
    let client = broker.register(Client::new("a")).expect("a client");
    client.queue(ArrayRequest::input("old", [100], 4)).expect("queued");
    broker.commit("default").expect("it fits");
    assert!(client.forget("old").expect("registered") && !client.forget("old").expect("registered"));
    assert_eq!(client.stats().held_bytes, 0);
    assert!(matches!(broker.commit("default"), Err(BrokerError::NothingQueued { .. })));
    // Of another length, which would not go together with the old one.
    client.queue(ArrayRequest::scratch("new", [200], 4)).expect("queued");
    assert_eq!(broker.commit("default").expect("it fits").partition().runs(), 200);
}

/// The last chunk's progress is reported, others take all memory then, and there is nothing left that would need
/// any.
#[test]
fn nothing_is_fitted_when_nothing_is_left() {
    let device = device(4 * MIB);
    let broker = Broker::builder(&pool(&device)).reserve(MIB).build().expect("a broker");
    let client = broker.register(Client::new("a")).expect("a client");
    client.queue(ArrayRequest::scratch("x", [8 * MIB], 1)).expect("queued");
    let plan = broker.commit("default").expect("it fits");
    let taken = std::sync::Mutex::new(Vec::new());
    let report = plan
        .execution()
        .on_progress(|progress| {
            if progress.runs_done == progress.runs {
                taken
                    .lock()
                    .expect("no panic")
                    .extend(device.allocate(&AllocationRequest::new(MIB - 512, Placement::Device)));
            }
        })
        .run(|_, _| Ok(()))
        .expect("a run");
    assert_eq!((taken.lock().expect("no panic").len(), report.shrinks), (1, 0));
}

/// The first client holds all of the device when shares are turned on, and idles.
#[test]
fn an_idle_client_keeps_nothing_past_its_share_that_another_wants() {
    let (broker, _) = broker(&device(MIB));
    let idle = broker.register(Client::new("a").group("a")).expect("a client");
    idle.queue(ArrayRequest::scratch("x", [MIB], 1)).expect("queued");
    broker.commit("a").expect("it fits");
    let other = broker.register(Client::new("b").group("b").share(Share::Fixed(0.5))).expect("a client");
    other.queue(ArrayRequest::scratch("x", [2 * MIB], 1)).expect("queued");
    let chunk = broker.commit("b").expect("it fits").partition().chunk_len();
    assert_eq!((chunk, idle.stats().evictions), (MIB / 2, 1));
    // Within its share it keeps what it has.
    broker.commit("a").expect("it fits in chunks");
    other.queue(ArrayRequest::scratch("x", [2 * MIB], 1)).expect("queued");
    broker.commit("b").expect("it fits");
    assert_eq!((idle.stats().evictions, idle.stats().held_bytes), (1, MIB / 2));
}

/// One of two streams finds no memory for any chunk after others took theirs: the other goes on, and has all
/// that it had.
#[test]
fn a_stream_that_is_out_keeps_no_memory() {
    const KIB: u64 = 1 << 10;
    const OWN: u64 = 256 * KIB;
    let device = device(4 * MIB);
    let broker = Broker::builder(&pool(&device)).reserve(MIB).build().expect("a broker");
    let client = broker.register(Client::new("a")).expect("a client");
    for label in ["x", "y"] {
        client.queue(ArrayRequest::scratch(label, [64, 128 * KIB], 1)).expect("queued");
    }
    client.queue(ArrayRequest::scratch("z", [OWN], 1).chunk_axis(None)).expect("queued");
    broker.set_streams("default", 2).expect("idle");
    let plan = broker.commit("default").expect("it fits");
    let of_a_stream = plan.partition().chunk_len() * 2 * 128 * KIB + OWN;
    assert_eq!(client.stats().held_bytes, 2 * of_a_stream);
    let others = std::sync::Mutex::new(None);
    let both = std::sync::Barrier::new(2);
    let report = plan
        .execution()
        .on_progress(|progress| {
            if progress.chunk == 0 {
                let memory = device
                    .allocate(&AllocationRequest::new(MIB * 3 / 4, Placement::Device))
                    .expect("the reserve");
                *others.lock().expect("no panic") = Some(memory);
                // The first array is always there, the second one never: a pool asks three times.
                for nth in (1..100).filter(|nth| nth % 4 != 1) {
                    let error = BackendError::out_of_memory(0, None);
                    device.faults().fail_nth_with(Call::Allocate, nth, error);
                }
            }
        })
        .run(|chunk, _| {
            // Each stream has one of the first two chunks.
            if chunk.index() < 2 {
                both.wait();
            }
            // The deadline only ends a test that would fail.
            let until = Instant::now() + Duration::from_secs(90);
            while chunk.index() == 1 && client.stats().held_bytes != of_a_stream {
                assert!(Instant::now() < until, "{} of {of_a_stream}", client.stats().held_bytes);
                std::thread::yield_now();
            }
            if chunk.index() == 1 {
                device.faults().clear();
            }
            Ok(())
        })
        .expect("the other goes on");
    assert_eq!((report.runs, report.chunk_len), (64, 1));
    drop((plan, others));
    broker.evict_all().expect("idle");
    assert_eq!((client.stats().held_bytes, device.memory_info().expect("figures").free_bytes), (0, 4 * MIB));
}
