//! Each driver call of each scene fails once, with out-of-memory and with an unknown error: nothing is lost,
//! nothing races, and the next run works.

use crate::each_call::fail_each_call;
use crate::scenes::SCENES;
use crate::simulated::Simulated;

#[test]
fn a_call_that_fails_loses_nothing() {
    let Some(simulated) = Simulated::open() else { return };
    let faults = fail_each_call(&simulated, &SCENES);
    assert!(faults > 1000, "{faults}");
}
