//! The race detector finds what it should: scenes run with one wait of a stream left out.

use crate::each_wait::leave_out_each_wait;
use crate::scenes::SCENES;
use crate::simulated::Simulated;

#[test]
fn a_wait_that_is_left_out_is_reported_wherever_it_was_needed() {
    let Some(simulated) = Simulated::open() else { return };
    let found = leave_out_each_wait(&simulated, &SCENES);
    assert!(found.scenes >= 5, "{found:?}");
    assert!(found.spoilt > 0, "no wait was needed");
    assert!(found.reported_of_spoilt * 100 >= found.spoilt * 95, "{found:?}");
}
