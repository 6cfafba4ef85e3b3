//! Callbacks that call the broker or change it.

use super::{MANY_CHUNKS, MIB, Warnings, broker, device};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use vrampool::Pool;
use vrampool::hooks::{Hook, HookEvent};
use vrampool::host::HostDevice;
use vrampool_broker::{ArrayRequest, Broker, BrokerError, Client, ClientHandle, Share};

/// A hook that calls a function before each request of a pool, which it numbers.
struct Answering<F>(AtomicU64, F);

impl<F> fmt::Debug for Answering<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Answering").field(&self.0).finish_non_exhaustive()
    }
}

impl<F: Fn(u64) + Send + Sync> Hook for Answering<F> {
    fn name(&self) -> &str {
        "answering"
    }

    fn before_request(&self, _: &HookEvent<'_>) {
        (self.1)(self.0.fetch_add(1, SeqCst));
    }
}

/// A broker whose pool calls `answer` before each request.
fn answering(answer: impl Fn(u64) + Send + Sync + 'static) -> (Broker<HostDevice>, Warnings) {
    let pool = Pool::builder(&device(MIB)).hook(Answering(AtomicU64::new(0), answer)).build();
    Warnings::of(Broker::builder(&pool.expect("a pool")))
}

/// The requests of a commit are answered by these shares, one each. Returns the number of warnings.
fn answered_by_shares(shares: &'static [f64]) -> usize {
    let client: Arc<OnceLock<ClientHandle<HostDevice>>> = Arc::default();
    let theirs = Arc::clone(&client);
    let (broker, warnings) = answering(move |nth| {
        if let (Some(&share), Some(client)) = (shares.get(nth as usize), theirs.get()) {
            client.set_share(Share::Fixed(share)).expect("a share");
        }
    });
    let handle = broker.register(Client::new("a").share(Share::Fixed(0.25))).expect("a client");
    let client = client.get_or_init(|| handle);
    client.queue(ArrayRequest::scratch("x", [64 * MIB], 1)).expect("queued");
    broker.commit("default").expect("it fits in chunks").run(|_, _| Ok(())).expect("a run");
    let stats = client.stats();
    assert!(stats.held_bytes > 0 && stats.held_bytes <= stats.cap_bytes, "{stats:?}");
    warnings.count(MANY_CHUNKS)
}

#[test]
fn a_warning_that_is_answered_by_the_same_share_comes_once() {
    assert_eq!(answered_by_shares(&[0.25]), 1);
}

#[test]
fn a_warning_that_is_answered_by_another_share_comes_once() {
    assert_eq!(answered_by_shares(&[0.1, 0.25, 0.1]), 1);
}

/// Each new plan of so many chunks gives a warning.
#[test]
fn an_equal_share_changes_no_plan() {
    let (broker, warnings) = broker(&device(MIB));
    let plans = || warnings.count(MANY_CHUNKS);
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

#[test]
fn a_callback_of_a_commit_may_ask_and_not_commit() {
    let seen = Arc::new(AtomicU64::new(0));
    let (broker, refused): (Arc<OnceLock<Broker<HostDevice>>>, _) = (Arc::default(), Arc::clone(&seen));
    let theirs = Arc::clone(&broker);
    let (new, _) = answering(move |_| {
        let broker = theirs.get().expect("a broker");
        let error = broker.commit("default").expect_err("it is in a commit");
        assert!(matches!(error, BrokerError::Reentrant), "{error}");
        refused.fetch_add(broker.stats().clients as u64, SeqCst);
    });
    let broker = broker.get_or_init(|| new);
    let client = broker.register(Client::new("a")).expect("a client");
    client.queue(ArrayRequest::scratch("x", [64 * MIB], 1)).expect("queued");
    broker.commit("default").expect("it fits in chunks");
    assert_eq!(seen.load(SeqCst), 1);
}
