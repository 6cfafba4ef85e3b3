//! CuBIE's tests of its stream groups, by their names.
//!
//! Not here, because there is nothing that they could be said of:
//! `test_add_instance_raises_if_already_registered` (a [`ClientHandle`] *is* a registration, in one group; no
//! call adds it to a second one) and `test_get_group_raises_for_unknown` (a handle is registered for as long
//! as it is there). Where CuBIE's take a number or any object for an instance, ours take the client's number
//! or its handle.

use super::{MIB, broker, device};
use vrampool::host::{Call, HostDevice, HostStream};
use vrampool::{Backend, Stream};
use vrampool_broker::{ArrayRequest, Broker, Client, ClientHandle, ClientId, DEFAULT_GROUP};
use vrampool_test_support::close_gate;

fn register(broker: &Broker<HostDevice>, group: &str) -> ClientHandle<HostDevice> {
    broker.register(Client::new("client").group(group)).expect("a client")
}

/// Returns the members of a group, in order of arrival.
fn members(broker: &Broker<HostDevice>, group: &str) -> Vec<ClientId> {
    broker.clients().into_iter().filter(|client| client.group == group).map(|client| client.id).collect()
}

fn stream(broker: &Broker<HostDevice>, group: &str) -> HostStream {
    broker.stream(group).expect("a stream")
}

#[test]
fn test_default_group_created_when_none() {
    let (broker, _) = broker(&device(MIB));
    let unnamed = broker.register(Client::new("client")).expect("a client");
    let empty = register(&broker, "");
    assert_eq!(DEFAULT_GROUP, "default");
    assert_eq!(members(&broker, "default"), [unnamed.id(), empty.id()]);
}

/// Of CuBIE's a defect; of ours a choice: a group without clients has no stream, and a broker without clients
/// no group.
#[test]
fn test_empty_dict_default_no_post_init() {
    let device = device(MIB);
    let (broker, _) = broker(&device);
    assert!(broker.clients().is_empty() && broker.commit("default").is_err());
    assert_eq!(device.faults().calls(Call::CreateStream), 0);
}

/// CuBIE's `test_add_instance_with_int`, `_with_object`, `_creates_new_group`, `_appends_to_existing`,
/// `test_get_group_returns_correct_group`, `_handles_object`, `test_get_instances_in_group_existing` and
/// `_nonexistent`.
#[test]
fn each_group_has_its_clients_in_order_of_arrival() {
    let (broker, _) = broker(&device(MIB));
    assert!(members(&broker, "g1").is_empty());
    // Of one name; it is the handle that distinguishes them.
    let [first, elsewhere, second] = ["g1", "g2", "g1"].map(|group| register(&broker, group));
    assert!(first.id().to_string().starts_with("client "), "a number");
    assert_eq!(members(&broker, "g1"), [first.id(), second.id()]);
    assert_eq!(members(&broker, "g2"), [elsewhere.id()]);
    assert!(members(&broker, "g3").is_empty());
    let group_of =
        |id| broker.clients().into_iter().find(|client| client.id == id).map(|client| client.group);
    assert_eq!((group_of(second.id()), group_of(elsewhere.id())), (Some("g1".into()), Some("g2".into())));
    let array = first.queue(ArrayRequest::scratch("x", [100], 1)).expect("queued");
    let plan = broker.commit("g1").expect("it fits");
    assert_eq!((plan.streams(), plan.arrays().collect::<Vec<_>>()), (1, vec![array]));
}

/// One stream for each group, and never that of another. As CuBIE's
/// `test_get_group_stream_backfills_group_without_stream` and `test_get_stream_returns_group_stream`.
#[test]
fn test_get_group_stream_creates_dedicated_stream() {
    let device = device(MIB);
    let (broker, _) = broker(&device);
    let _client = register(&broker, "");
    assert_eq!(device.faults().calls(Call::CreateStream), 0);
    let (one, other) = (stream(&broker, "default"), stream(&broker, "other"));
    assert_ne!(one.id(), other.id());
    assert_eq!((stream(&broker, "default").id(), stream(&broker, "other").id()), (one.id(), other.id()));
    assert_eq!(device.faults().calls(Call::CreateStream), 2, "made when first asked for");
}

/// A client that comes later works on the stream that its group has.
#[test]
fn test_add_instance_shares_group_stream() {
    let (broker, _) = broker(&device(MIB));
    let before = stream(&broker, DEFAULT_GROUP).id();
    let client = register(&broker, "");
    client.queue(ArrayRequest::scratch("x", [100], 1)).expect("queued");
    let plan = broker.commit(DEFAULT_GROUP).expect("it fits");
    let ran_on = std::sync::Mutex::new(None);
    plan.run(|_, stream| {
        *ran_on.lock().expect("no panic") = Some(stream.id());
        Ok(())
    })
    .expect("a run");
    assert_eq!(*ran_on.lock().expect("no panic"), Some(before));
}

/// The null stream, by which CuBIE's device waits for everything, belongs to no group: work on one group's stream
/// waits for no other's.
#[test]
fn no_group_has_a_stream_that_waits_for_others() {
    let (broker, _) = broker(&device(MIB));
    let blocked = stream(&broker, "blocked");
    let open = close_gate(&blocked);
    broker.device().synchronize(&stream(&broker, DEFAULT_GROUP)).expect("no failure");
    drop(open);
    broker.device().synchronize(&blocked).expect("no failure");
}
