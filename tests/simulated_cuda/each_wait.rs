//! Each wait of a stream of each scene is left out once. Tests of other crates include this file.

use crate::scene::Scene;
use crate::simulated::Simulated;

/// Operations are held up at random by at most so much, so that a wait that is missing shows in contents.
const LAG_MICROSECONDS: u64 = 3000;
const RUNS: usize = 4;

/// The result of runs with a wait left out.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Scenes that have waits.
    pub(crate) scenes: usize,
    /// Runs that the detector reported.
    pub(crate) reported: usize,
    /// Runs with wrong contents.
    pub(crate) spoilt: usize,
    /// The number of those that the detector reported.
    pub(crate) reported_of_spoilt: usize,
}

/// Runs the scenes with one wait of a stream left out.
pub(crate) fn leave_out_each_wait(simulated: &Simulated, scenes: &[Scene]) -> Found {
    let simulator = simulated.simulator;
    let mut found_in = Found::default();
    for scene in scenes {
        let before = simulator.waits();
        assert!((scene.run)(&simulated.device).expect(scene.name), "{}", scene.name);
        let waits = simulator.waits() - before;
        if waits == 0 {
            continue;
        }
        found_in.scenes += 1;
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
                found_in.reported_of_spoilt += usize::from(!right && is_reported);
            }
        }
        println!(
            "{}: {waits} waits, {RUNS} runs each: {found} reported, contents wrong in {needed}",
            scene.name
        );
        found_in.spoilt += needed;
        found_in.reported += found;
    }
    println!("{found_in:?}");
    found_in
}
