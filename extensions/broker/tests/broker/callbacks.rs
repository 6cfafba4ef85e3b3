//! Callbacks that call the broker, change it, or panic.

use super::{MIB, broker, device, pool};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use vrampool::Pool;
use vrampool::host::HostDevice;
use vrampool_broker::{
    ArrayRequest, Broker, BrokerError, BrokerWarning, Client, ClientHandle, Response, Share,
};

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

#[test]
fn an_equal_share_changes_no_plan() {
    let (broker, _) = broker(&device(MIB));
    for share in [Share::Auto, Share::Fixed(0.5), Share::Bytes(MIB / 4)] {
        let plans = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&plans);
        let ready = move |_: &Response| {
            seen.fetch_add(1, SeqCst);
        };
        let client = broker.register(Client::new("a").share(share).on_ready(ready)).expect("a client");
        client.queue(ArrayRequest::scratch("x", [1000], 1)).expect("queued");
        let plan = broker.commit("default").expect("it fits");
        for _ in 0..3 {
            client.set_share(share).expect("it has it");
            plan.run(|_, _| Ok(())).expect("a run");
        }
        assert_eq!(plans.load(SeqCst), 1, "{share:?}: one plan");
        client.set_share(Share::Fixed(0.75)).expect("a share");
        plan.run(|_, _| Ok(())).expect("a run");
        assert_eq!(plans.load(SeqCst), 2, "{share:?}: another share");
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

/// A warning about little headroom is answered by asking for it, which warns of it.
#[test]
fn a_hook_is_not_called_for_what_it_does_itself() {
    let broker: Shared<Broker<HostDevice>> = Arc::default();
    let theirs = Arc::clone(&broker);
    let (new, warnings) = answering(move |_, warning| {
        if let (BrokerWarning::LittleHeadroom { group, .. }, Some(broker)) = (warning, theirs.get()) {
            broker.available(group).expect("figures");
        }
    });
    let broker = broker.get_or_init(|| new);
    let client = broker.register(Client::new("a").share(Share::Bytes(1000 << 9))).expect("a client");
    client.queue(ArrayRequest::scratch("x", [1000 << 9], 1)).expect("queued");
    broker.commit("default").expect("it fits");
    assert_eq!(broker.available("default").expect("figures"), 0);
    assert_eq!(warnings.load(SeqCst), 1);
    // Later ones come again, also after a hook panicked.
    broker.available("default").expect("figures");
    assert_eq!(warnings.load(SeqCst), 2);
}

#[test]
fn a_hook_that_panicked_is_called_again() {
    let (broker, warnings) = answering(|nth, _| assert_ne!(nth, 0, "of the hook's"));
    let client = broker.register(Client::new("a").share(Share::Bytes(1000 << 9))).expect("a client");
    client.queue(ArrayRequest::scratch("x", [1000 << 9], 1)).expect("queued");
    broker.commit("default").expect("it fits");
    assert!(catch_unwind(AssertUnwindSafe(|| broker.available("default"))).is_err());
    broker.available("default").expect("figures");
    assert_eq!(warnings.load(SeqCst), 2);
}

/// A group's clients by name, each with all of a third of the device, and how often each was called.
fn three(
    broker: &Broker<HostDevice>,
    hook: impl Fn(usize) + Send + Sync + Clone + 'static,
) -> Vec<(ClientHandle<HostDevice>, Arc<AtomicU64>)> {
    let register = |index: usize| {
        let (notified, hook) = (Arc::new(AtomicU64::new(0)), hook.clone());
        let count = Arc::clone(&notified);
        let invalidate = move || {
            count.fetch_add(1, SeqCst);
            hook(index);
        };
        let group = format!("group {index}");
        let client = Client::new("a").group(&group).on_invalidate(invalidate);
        let client = broker.register(client).expect("a client");
        client.queue(ArrayRequest::scratch("x", [MIB / 4], 1).unchunkable()).expect("queued");
        broker.commit(&group).expect("it fits");
        (client, notified)
    };
    (0..3).map(register).collect()
}

/// The first of three that lose their memory panics in its callback.
#[test]
fn a_panicking_invalidation_ends_no_other_commit_and_all_are_called() {
    let (broker, _) = broker(&device(MIB));
    let evicted = three(&broker, |index| assert_ne!(index, 0, "of the first one's"));
    let other = broker.register(Client::new("other").group("other")).expect("a client");
    other.queue(ArrayRequest::scratch("y", [MIB - 1000], 1).unchunkable()).expect("queued");
    let plan = broker.commit("other").expect("its own callbacks are fine");
    plan.run(|_, _| Ok(())).expect("a run");
    for (client, notified) in &evicted {
        assert_eq!((notified.load(SeqCst), client.stats().held_bytes), (1, 0));
    }
    // It goes on in a call for the client itself, once.
    let again = catch_unwind(AssertUnwindSafe(|| broker.commit("group 0")));
    let panic = again.expect_err("its panic goes on");
    let text = panic.downcast_ref::<String>().expect("its own payload");
    assert!(text.contains("of the first one's"), "{text}");
    broker.commit("group 1").expect("it panicked not");
    broker.commit("group 0").expect("it was reported once");
}

#[test]
fn a_panic_of_an_invalidation_goes_on_in_each_call_for_the_client() {
    type Handle = ClientHandle<HostDevice>;
    type Call = fn(&Handle);
    let calls: [(&str, Call); 4] = [
        ("queue", |client| drop(client.queue(ArrayRequest::scratch("z", [1], 1)))),
        ("withdraw", |client| drop(client.withdraw())),
        ("set_share", |client| drop(client.set_share(Share::Auto))),
        ("move_to", |client| drop(client.move_to("elsewhere"))),
    ];
    for (name, call) in calls {
        let (broker, _) = broker(&device(MIB));
        let evicted = three(&broker, |index| assert_ne!(index, 0, "of the first one's"));
        assert_eq!(broker.evict_all().expect("idle"), 3 * MIB / 4, "{name}");
        assert!(evicted.iter().all(|(_, notified)| notified.load(SeqCst) == 1), "{name}");
        assert!(catch_unwind(AssertUnwindSafe(|| call(&evicted[0].0))).is_err(), "{name}");
        call(&evicted[1].0);
        call(&evicted[0].0);
    }
}

/// The callbacks of both clients of a group are called, although the first one panics.
#[test]
fn a_panic_of_a_plan_callback_goes_on_after_all_were_called() {
    let (broker, _) = broker(&device(MIB));
    let notified = Arc::new(AtomicU64::new(0));
    let register = |panics: bool| {
        let notified = Arc::clone(&notified);
        let ready = move |_: &Response| {
            assert!(notified.fetch_add(1, SeqCst) > 3 || !panics, "of the hook's");
        };
        broker.register(Client::new("a").on_ready(ready)).expect("a client")
    };
    let (first, _second) = (register(true), register(false));
    first.queue(ArrayRequest::scratch("x", [1000], 1)).expect("queued");
    for nth in 1..=2 {
        assert!(catch_unwind(AssertUnwindSafe(|| broker.commit("default"))).is_err());
        assert_eq!(notified.load(SeqCst), 2 * nth);
    }
    broker.commit("default").expect("no hook panics any more");
    assert_eq!(notified.load(SeqCst), 6);
}
