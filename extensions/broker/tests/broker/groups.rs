//! Groups of clients while they work. Tests of membership and streams are in `stream_groups`.

use super::{MIB, Squarer, broker, device};
use vrampool::Stream;
use vrampool_broker::{Allocator, ArrayRequest, BrokerError, Chunk, Client, Share};

#[test]
fn test_reinit_streams() {
    let (broker, _) = broker(&device(MIB));
    let ids = || ["solver", "other"].map(|group| broker.stream(group).expect("a stream").id());
    let clients = ["solver", "other"]
        .map(|group| broker.register(Client::new("client").group(group)).expect("a client"));
    let members = || broker.clients().into_iter().map(|client| (client.id, client.group)).collect::<Vec<_>>();
    let (before, registered) = (ids(), members());
    broker.renew_streams();
    assert!(before.iter().all(|old| !ids().contains(old)));
    assert_eq!((members(), registered.len()), (registered, 2));
    drop(clients);
    // Memory that was used on the old ones is used on the new ones, in order.
    let squarer = Squarer::new(&broker, Client::new("client").group("solver"), 100_000);
    squarer.run(&broker.commit("solver").expect("it fits")).expect("a run");
    broker.renew_streams();
    squarer.run(&broker.commit("solver").expect("it fits")).expect("a run");
    assert_eq!(broker.device().races(), 0);
}

#[test]
fn a_group_that_runs_is_left_alone() {
    let (broker, _) = broker(&device(MIB));
    let squarer = Squarer::new(&broker, Client::new("client").group("solver"), 1000);
    let plan = broker.commit("solver").expect("it fits");
    let refused = |_: &Chunk<'_, _>, _: &_| {
        assert!(matches!(broker.commit("solver"), Err(BrokerError::Busy { .. })));
        assert!(matches!(plan.run(|_, _| Ok(())), Err(BrokerError::Busy { .. })));
        assert!(matches!(squarer.client.move_to("other"), Err(BrokerError::Busy { .. })));
        assert!(matches!(broker.set_streams("solver", 2), Err(BrokerError::Busy { .. })));
        Ok(())
    };
    squarer.run_with(&plan, |_| (), refused).expect("a run");
    assert!(squarer.client.move_to("other").is_ok());
}

/// #561: a change of allocator closed the context, and everything with it.
#[test]
fn the_allocator_changes_and_everybodys_state_stays() {
    let device = device(4 * MIB);
    let (broker, _) = broker(&device);
    let squarer = Squarer::new(&broker, Client::new("client").share(Share::Fixed(0.5)), 1_000_000);
    let plan = broker.commit("default").expect("it fits");
    assert_eq!(plan.partition().chunks(), 4);
    for &allocator in Allocator::ALL {
        broker.set_allocator(allocator).expect("the host has all");
        let waiting = broker.register(Client::new("waiting").group("other")).expect("a client");
        waiting.queue(ArrayRequest::scratch("x", [1000], 1)).expect("queued");
        broker.set_allocator(allocator).expect("the same again");
        assert_eq!((broker.allocator(), waiting.stats().queued), (allocator, 1));
        assert_eq!((squarer.client.stats().cap_bytes, squarer.client.stats().proportion), (2 * MIB, 0.5));
        assert_eq!(squarer.run(&plan).expect("a run").runs, 1_000_000);
        // Asked for anew it comes from the new one.
        squarer.client.queue(ArrayRequest::scratch("more", [1_000_000], 1)).expect("queued");
        squarer.run(&broker.commit("default").expect("it fits")).expect("a run");
    }
    for (text, allocator) in
        [("cupy", Allocator::Pool), ("cupy_async", Allocator::DriverPool), ("default", Allocator::Default)]
    {
        assert_eq!(text.parse::<Allocator>().expect("a name"), allocator);
    }
    assert!("cuda".parse::<Allocator>().is_err_and(|error| error.to_string().contains("driver-pool")));
}
