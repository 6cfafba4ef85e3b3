//! The race detector finds what it should: scenes run with one wait of a stream left out.

use crate::Simulated;
use crate::scenes::SCENES;

/// Operations are held up at random by at most so much, so that a wait that is missing shows in contents.
const LAG_MICROSECONDS: u64 = 3000;
const RUNS: usize = 4;

#[test]
fn a_wait_that_is_left_out_is_reported_wherever_it_was_needed() {
    let Some(simulated) = Simulated::open() else { return };
    let simulator = simulated.simulator;
    let (mut scenes, mut spoilt, mut reported_of_spoilt, mut reported) = (0, 0, 0, 0);
    for scene in &SCENES {
        let before = simulator.waits();
        assert!((scene.run)(&simulated.device).expect(scene.name), "{}", scene.name);
        let waits = simulator.waits() - before;
        if waits == 0 {
            continue;
        }
        scenes += 1;
        let (mut found, mut needed) = (0, 0);
        for nth in 1..=waits {
            for _ in 0..RUNS {
                let reports = simulator.expect_reports();
                simulator.set_lag(LAG_MICROSECONDS);
                simulator.ignore_wait(nth);
                let right = (scene.run)(&simulated.device).expect(scene.name);
                simulator.ignore_wait(0);
                simulator.set_lag(0);
                let is_reported = reports.end() > 0;
                found += usize::from(is_reported);
                needed += usize::from(!right);
                reported_of_spoilt += usize::from(!right && is_reported);
            }
        }
        println!(
            "{}: {waits} waits, {RUNS} runs each: {found} reported, contents wrong in {needed}",
            scene.name
        );
        spoilt += needed;
        reported += found;
    }
    println!("{reported} runs reported; of {spoilt} with wrong contents {reported_of_spoilt}");
    assert!(scenes >= 5, "{scenes} scenes have waits");
    assert!(spoilt > 0, "no wait was needed");
    assert!(reported_of_spoilt * 100 >= spoilt * 95, "{reported_of_spoilt} of {spoilt}");
}
