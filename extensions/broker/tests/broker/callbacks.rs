//! Callbacks that call the broker, change it, or panic.

use super::{MIB, broker, device, pool};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use vrampool::Pool;
use vrampool::host::HostDevice;
use vrampool_broker::{ArrayRequest, Broker, BrokerError, BrokerWarning, Client, ClientHandle, Share};

/// The most warnings that a test's hook answers: one more would be a commit without end.
const MANY: u64 = 1000;

type Shared<T> = Arc<OnceLock<T>>;

/// A broker whose hook answers each warning, up to [`MANY`], and the number of warnings.
fn answering(
    answer: impl Fn(u64, &BrokerWarning) + Send + Sync + 'static,
) -> (Broker<HostDevice>, Arc<AtomicU64>) {
    let warnings = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&warnings);
    let hook = move |warning: &BrokerWarning| {
        let nth = seen.fetch_add(1, SeqCst);
        if nth < MANY {
            answer(nth, warning);
        }
    };
    (Broker::builder(&pool(&device(MIB))).on_warning(hook).build().expect("a broker"), warnings)
}

/// Answers a warning of many chunks with a share.
fn answering_by_share(share: impl Fn(u64) -> Share + Send + Sync + 'static) -> u64 {
    let client: Shared<ClientHandle<HostDevice>> = Arc::default();
    let theirs = Arc::clone(&client);
    let (broker, warnings) = answering(move |nth, warning| {
        if let (BrokerWarning::ManyChunks { .. }, Some(client)) = (warning, theirs.get()) {
            client.set_share(share(nth)).expect("a share");
        }
    });
    let handle = broker.register(Client::new("a").share(Share::Fixed(0.25))).expect("a client");
    let client = client.get_or_init(|| handle);
    client.queue(ArrayRequest::scratch("x", [64 * MIB], 1)).expect("queued");
    broker.commit("default").expect("it fits in chunks").run(|_, _| Ok(())).expect("a run");
    let stats = client.stats();
    assert!(stats.held_bytes > 0 && stats.held_bytes <= stats.cap_bytes, "{stats:?}");
    warnings.load(SeqCst)
}

#[test]
fn a_warning_that_is_answered_by_the_same_share_comes_once() {
    assert_eq!(answering_by_share(|_| Share::Fixed(0.25)), 1);
}

#[test]
fn a_warning_that_is_answered_by_another_share_comes_once() {
    assert_eq!(answering_by_share(|nth| Share::Fixed([0.1, 0.25][nth as usize % 2])), 1);
}

/// Each new plan of so many chunks gives a warning.
#[test]
fn an_equal_share_changes_no_plan() {
    let (broker, warnings) = broker(&device(MIB));
    let is_of_plan = |warning: &&BrokerWarning| matches!(warning, BrokerWarning::ManyChunks { .. });
    let plans = || warnings.lock().expect("no panic").iter().filter(is_of_plan).count();
    for (nth, share) in [Share::Auto, Share::Fixed(0.5), Share::Bytes(MIB / 4)].into_iter().enumerate() {
        let client = broker.register(Client::new("a").share(share)).expect("a client");
        client.queue(ArrayRequest::scratch("x", [64 * MIB], 1)).expect("queued");
        let plan = broker.commit("default").expect("it fits");
        for _ in 0..3 {
            client.set_share(share).expect("it has it");
            plan.run(|_, _| Ok(())).expect("a run");
        }
        assert_eq!(plans(), 2 * nth + 1, "{share:?}: one plan");
        client.set_share(Share::Fixed(0.75)).expect("a share");
        plan.run(|_, _| Ok(())).expect("a run");
        assert_eq!(plans(), 2 * nth + 2, "{share:?}: another share");
    }
}

/// Another thread changes a share all the time: each commit returns, with a plan or an error that says so.
#[test]
fn shares_that_change_all_the_time_end_no_commit_in_a_loop() {
    // Another share is another length of chunks, and so another allocation, for so long that the other thread runs.
    let slow = HostDevice::builder().memory_limit(MIB).allocation_latency(Duration::from_millis(20)).build();
    let pool = Pool::builder(&slow).max_cached_bytes(0).build().expect("a pool");
    let broker = Broker::builder(&pool).build().expect("a broker");
    let client = broker.register(Client::new("a").share(Share::Bytes(MIB / 4))).expect("a client");
    let (mut is_seen, is_over) = (false, AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for nth in (0..256).cycle() {
                if is_over.load(SeqCst) {
                    break;
                }
                client.set_share(Share::Bytes(MIB / 4 + nth * 1024)).expect("a share");
            }
        });
        while !is_seen {
            client.queue(ArrayRequest::scratch("x", [64 * MIB], 1)).expect("queued");
            if let Err(error) = broker.commit("default") {
                assert!(matches!(error, BrokerError::Changing { .. }), "{error}");
                assert_eq!(client.stats().held_bytes, 0);
                is_seen = true;
            }
        }
        is_over.store(true, SeqCst);
    });
    broker.commit("default").expect("it is unchanged");
}

/// A client, and the number of warnings; `answer` is called with the client for each.
fn warned(
    answer: impl Fn(u64, &ClientHandle<HostDevice>) + Send + Sync + 'static,
) -> (Shared<ClientHandle<HostDevice>>, Arc<AtomicU64>) {
    let client: Shared<ClientHandle<HostDevice>> = Arc::default();
    let theirs = Arc::clone(&client);
    let (broker, warnings) = answering(move |nth, _| answer(nth, theirs.get().expect("it is registered")));
    client.get_or_init(|| broker.register(Client::new("a")).expect("a client"));
    (client, warnings)
}

/// A warning that a share leaves too little is answered by another such share.
#[test]
fn a_hook_is_not_called_for_what_it_does_itself() {
    let (client, warnings) = warned(|nth, client| {
        client.set_share(Share::Fixed(0.96 + nth as f64 / 1000.0)).expect("a share");
    });
    // Later ones come again.
    for nth in 1..=2 {
        client.get().expect("a client").set_share(Share::Fixed(0.99)).expect("a share");
        assert_eq!(warnings.load(SeqCst), nth);
    }
}

#[test]
fn a_hook_that_panicked_is_called_again() {
    let (client, warnings) = warned(|nth, _| assert_ne!(nth, 0, "of the hook's"));
    let client = client.get().expect("a client");
    assert!(catch_unwind(AssertUnwindSafe(|| client.set_share(Share::Fixed(0.99)))).is_err());
    client.set_share(Share::Fixed(0.98)).expect("a share");
    assert_eq!(warnings.load(SeqCst), 2);
}

#[test]
fn a_hook_may_queue_and_not_commit() {
    let seen = Arc::new(AtomicU64::new(0));
    let (broker, refused): (Shared<Broker<HostDevice>>, _) = (Arc::default(), Arc::clone(&seen));
    let theirs = Arc::clone(&broker);
    let (new, _) = answering(move |_, _| {
        let error = theirs.get().expect("a broker").commit("default").expect_err("it is in a commit");
        assert!(matches!(error, BrokerError::Reentrant), "{error}");
        refused.fetch_add(1, SeqCst);
    });
    let broker = broker.get_or_init(|| new);
    let client = broker.register(Client::new("a")).expect("a client");
    client.queue(ArrayRequest::scratch("x", [64 * MIB], 1)).expect("queued");
    broker.commit("default").expect("it fits in chunks");
    assert_eq!(seen.load(SeqCst), 1);
}
