//! Clients that have ended: CuBIE's `TestDeadInstanceRelease`, by the names of its tests. Where CuBIE's
//! registry finds an instance collected, our handle is dropped.

use super::{MIB, broker, device};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vrampool::host::HostDevice;
use vrampool_broker::{ArrayRequest, Broker, Client, ClientHandle, Share};

/// A client whose callbacks count how often they are called.
fn counting(broker: &Broker<HostDevice>, name: &str) -> (ClientHandle<HostDevice>, [Arc<AtomicU64>; 2]) {
    let counts = [(); 2].map(|()| Arc::new(AtomicU64::new(0)));
    let [invalidated, ready] = counts.clone();
    let client = Client::new(name)
        .group(name)
        .on_invalidate(move || _ = invalidated.fetch_add(1, Relaxed))
        .on_ready(move |_| _ = ready.fetch_add(1, Relaxed));
    (broker.register(client).expect("a client"), counts)
}

#[test]
fn test_registry_does_not_pin_instances() {
    let (broker, _) = broker(&device(MIB));
    let (client, counts) = counting(&broker, "former");
    client.set_share(Share::Fixed(0.4)).expect("a share");
    assert_eq!(counts.each_ref().map(Arc::strong_count), [2, 2], "the callbacks hold them");
    let id = client.id();
    drop(client);
    assert_eq!(counts.each_ref().map(Arc::strong_count), [1, 1], "and end with the client");
    assert_eq!(broker.shares().fixed, 0.0);
    assert!(broker.clients().iter().all(|client| client.id != id));
}

/// The callbacks that were given are those that are called, each by what it is for.
#[test]
fn test_bound_method_hooks_compare_equal() {
    let (broker, _) = broker(&device(MIB));
    let (client, [invalidated, ready]) = counting(&broker, "client");
    client.queue(ArrayRequest::scratch("x", [1000], 1)).expect("queued");
    broker.commit("client").expect("it fits");
    assert_eq!((invalidated.load(Relaxed), ready.load(Relaxed)), (0, 1));
    broker.evict_all().expect("idle");
    assert_eq!((invalidated.load(Relaxed), ready.load(Relaxed)), (1, 1));
}

#[test]
fn test_dead_hooks_are_noops() {
    let (broker, _) = broker(&device(MIB));
    let (client, [invalidated, ready]) = counting(&broker, "former");
    client.queue(ArrayRequest::scratch("x", [1000], 1)).expect("queued");
    broker.commit("former").expect("it fits");
    drop(client);
    broker.evict_all().expect("idle");
    assert!(broker.commit("former").is_err());
    assert_eq!((invalidated.load(Relaxed), ready.load(Relaxed)), (0, 1));
}
