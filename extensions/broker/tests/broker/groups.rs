//! Groups of clients while they work. Tests of membership and streams are in `stream_groups`.

use super::{MIB, Squarer, broker, device};
use vrampool::Stream;
use vrampool_broker::{BrokerError, Chunk, Client};

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
