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
    assert_eq!((unnamed.group().as_str(), empty.group().as_str()), (DEFAULT_GROUP, "default"));
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

#[test]
fn test_add_instance_with_int() {
    let (broker, _) = broker(&device(MIB));
    let client = register(&broker, "g1");
    assert_eq!(members(&broker, "g1"), [client.id()]);
    assert!(client.id().to_string().starts_with("client "), "a number");
}

#[test]
fn test_add_instance_with_object() {
    let (broker, _) = broker(&device(MIB));
    let (one, other) = (register(&broker, "g1"), register(&broker, "g1"));
    // Of one name; it is the handle that distinguishes them.
    one.queue(ArrayRequest::scratch("x", [100], 1)).expect("queued");
    let plan = broker.commit("g1").expect("it fits");
    assert_eq!((plan.response(&one).arrays.len(), plan.response(&other).arrays.len()), (1, 0));
}

#[test]
fn test_add_instance_creates_new_group() {
    let (broker, _) = broker(&device(MIB));
    assert!(members(&broker, "new group").is_empty());
    let client = register(&broker, "new group");
    client.queue(ArrayRequest::scratch("x", [100], 1)).expect("queued");
    assert_eq!(members(&broker, "new group"), [client.id()]);
    assert_eq!(broker.commit("new group").expect("it is there").streams(), 1);
}

#[test]
fn test_add_instance_appends_to_existing() {
    let (broker, _) = broker(&device(MIB));
    let (first, second) = (register(&broker, "g1"), register(&broker, "g1"));
    assert_eq!(members(&broker, "g1"), [first.id(), second.id()]);
}

#[test]
fn test_get_group_returns_correct_group() {
    let (broker, _) = broker(&device(MIB));
    let (alpha, beta) = (register(&broker, "alpha"), register(&broker, "beta"));
    let group_of =
        |id| broker.clients().into_iter().find(|client| client.id == id).map(|client| client.group);
    assert_eq!(group_of(alpha.id()).as_deref(), Some("alpha"));
    assert_eq!(group_of(beta.id()).as_deref(), Some("beta"));
}

#[test]
fn test_get_group_handles_object() {
    let (broker, _) = broker(&device(MIB));
    assert_eq!(
        (register(&broker, "beta").group(), register(&broker, "gamma").group()),
        ("beta".into(), "gamma".into())
    );
}

/// One stream for each group, and never that of another.
#[test]
fn test_get_group_stream_creates_dedicated_stream() {
    let device = device(MIB);
    let (broker, _) = broker(&device);
    let (one, other) = (stream(&broker, "default"), stream(&broker, "other"));
    assert_ne!(one.id(), other.id());
    assert_eq!((stream(&broker, "default").id(), stream(&broker, "other").id()), (one.id(), other.id()));
    assert_eq!(device.faults().calls(Call::CreateStream), 2, "made when first asked for");
}

#[test]
fn test_get_group_stream_backfills_group_without_stream() {
    let device = device(MIB);
    let (broker, _) = broker(&device);
    let _client = register(&broker, "default");
    assert_eq!(device.faults().calls(Call::CreateStream), 0);
    let first = stream(&broker, "default").id();
    assert_eq!((stream(&broker, "default").id(), device.faults().calls(Call::CreateStream)), (first, 1));
}

/// A client that comes later works on the stream that its group has.
#[test]
fn test_add_instance_shares_group_stream() {
    let (broker, _) = broker(&device(MIB));
    let before = stream(&broker, "default").id();
    let client = register(&broker, "default");
    client.queue(ArrayRequest::scratch("x", [100], 1)).expect("queued");
    let plan = broker.commit("default").expect("it fits");
    plan.run(|_, stream| {
        assert_eq!(stream.id(), before);
        Ok(())
    })
    .expect("a run");
}

/// The broker answers the very stream that work of the group is run on.
#[test]
fn test_memory_manager_get_group_stream_passthrough() {
    let (broker, _) = broker(&device(MIB));
    let client = register(&broker, "");
    client.queue(ArrayRequest::scratch("x", [100], 1)).expect("queued");
    let ran_on = std::sync::Mutex::new(None);
    let plan = broker.commit(DEFAULT_GROUP).expect("it fits");
    plan.run(|_, stream| {
        *ran_on.lock().expect("no panic") = Some(stream.id());
        Ok(())
    })
    .expect("a run");
    assert_eq!(*ran_on.lock().expect("no panic"), Some(stream(&broker, DEFAULT_GROUP).id()));
}

#[test]
fn test_get_stream_returns_group_stream() {
    let (broker, _) = broker(&device(MIB));
    let (one, other) = (register(&broker, "g1"), register(&broker, "g1"));
    let elsewhere = register(&broker, "g2");
    let of = |client: &ClientHandle<HostDevice>| stream(&broker, &client.group()).id();
    assert_eq!(of(&one), of(&other));
    assert_ne!(of(&one), of(&elsewhere));
}

#[test]
fn test_get_instances_in_group_existing() {
    let (broker, _) = broker(&device(MIB));
    let clients = ["g1", "g2", "g1"].map(|group| register(&broker, group));
    assert_eq!(members(&broker, "g1"), [clients[0].id(), clients[2].id()]);
    assert_eq!(members(&broker, "g2"), [clients[1].id()]);
}

#[test]
fn test_get_instances_in_group_nonexistent() {
    let (broker, _) = broker(&device(MIB));
    let _client = register(&broker, "g1");
    assert!(members(&broker, "no such").is_empty());
}

#[test]
fn test_change_group_moves_instance() {
    let (broker, _) = broker(&device(MIB));
    let (moving, staying) = (register(&broker, "one"), register(&broker, "one"));
    for client in [&moving, &staying] {
        client.queue(ArrayRequest::scratch("x", [1000], 1)).expect("queued");
    }
    broker.commit("one").expect("it fits");
    moving.move_to("two").expect("idle");
    assert_eq!((members(&broker, "one"), members(&broker, "two")), (vec![staying.id()], vec![moving.id()]));
    assert_eq!((moving.stats().held_bytes, moving.stats().queued), (0, 1));
    let plan = broker.commit("two").expect("what it asked for is queued there");
    assert_eq!((plan.response(&moving).arrays.len(), plan.response(&staying).arrays.len()), (1, 0));
    let plan = broker.commit("one").expect("the other's is still there");
    assert_eq!((plan.response(&moving).arrays.len(), plan.response(&staying).arrays.len()), (0, 1));
    assert_eq!(staying.stats().held_bytes, 1024);
}

#[test]
fn test_change_group_creates_target_if_missing() {
    let (broker, _) = broker(&device(MIB));
    let client = register(&broker, "source");
    let old = stream(&broker, "source").id();
    client.move_to("brand new").expect("idle");
    assert_eq!(members(&broker, "brand new"), [client.id()]);
    assert_ne!(stream(&broker, "brand new").id(), old);
}

#[test]
fn test_change_group_handles_object() {
    let (broker, _) = broker(&device(MIB));
    // Of one name, and only the one whose handle it is moves.
    let (moving, staying) = (register(&broker, "a"), register(&broker, "a"));
    moving.move_to("b").expect("idle");
    moving.move_to("b").expect("it is there already");
    assert_eq!((moving.group().as_str(), staying.group().as_str()), ("b", "a"));
}

#[test]
fn test_reinit_streams_replaces_all() {
    let (broker, _) = broker(&device(MIB));
    let (one, two) = (register(&broker, "g1"), register(&broker, "g2"));
    let ids = || ["g1", "g2"].map(|group| stream(&broker, group).id());
    let before = ids();
    broker.renew_streams();
    let after = ids();
    assert!(before.iter().all(|old| !after.contains(old)));
    assert_eq!((members(&broker, "g1"), members(&broker, "g2")), (vec![one.id()], vec![two.id()]));
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
