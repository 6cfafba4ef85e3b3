//! Groups of clients while they work. Tests of membership and streams are in `stream_groups`.

use super::{MIB, Squarer, broker, device};
use vrampool_broker::{BrokerError, Chunk, Client};

#[test]
fn a_group_that_runs_is_left_alone() {
    let (broker, _) = broker(&device(MIB));
    let squarer = Squarer::new(&broker, Client::new("client").group("solver"), 1000);
    let plan = broker.commit("solver").expect("it fits");
    let refused = |_: &Chunk<'_, _>, _: &_| {
        assert!(matches!(broker.commit("solver"), Err(BrokerError::Busy { .. })));
        assert!(matches!(plan.run(|_, _| Ok(())), Err(BrokerError::Busy { .. })));
        assert!(matches!(broker.set_streams("solver", 2), Err(BrokerError::Busy { .. })));
        Ok(())
    };
    squarer.run_with(&plan, |_| (), refused).expect("a run");
    assert!(broker.set_streams("solver", 2).is_ok());
}
