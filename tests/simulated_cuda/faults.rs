//! Each driver call of each scene fails once, with out-of-memory and with an unknown error: nothing is lost,
//! nothing races, and the next run works.

use crate::Simulated;
use crate::scenes::SCENES;
use vrampool::Backend;
use vrampool::cuda::{DriverPool, PoolHandle};
use vrampool_cuda_simulator_control::{OUT_OF_MEMORY, UNKNOWN};

/// Calls that give something back, and the one without which a peer's work cannot be awaited before. What the
/// driver refuses to take back stays its own: such a fault may leave that behind.
const GIVE_BACK: [&str; 11] = [
    "cuDevicePrimaryCtxRetain",
    "cuMemFree_v2",
    "cuMemFreeHost",
    "cuMemFreeAsync",
    "cuMemRelease",
    "cuMemUnmap",
    "cuMemAddressFree",
    "cuMemPoolDestroy",
    "cuMemPoolTrimTo",
    "cuCtxPushCurrent_v2",
    "cuModuleUnload",
];

/// What is left of memory: the lines that name bytes. What the driver's own pool keeps until the host waits
/// is given back before.
fn left(simulated: &Simulated) -> Vec<String> {
    simulated.device.context().synchronize().expect("no fault");
    let pool = DriverPool::new(&simulated.device, PoolHandle::Current).expect("a pool");
    pool.free_all_blocks(None).expect("no fault");
    simulated.simulator.leaks().into_iter().filter(|line| line.contains("bytes")).collect()
}

#[test]
fn a_call_that_fails_loses_nothing() {
    let Some(simulated) = Simulated::open() else { return };
    let simulator = simulated.simulator;
    let (mut faults, mut failed, mut refused) = (0, 0, 0);
    for scene in &SCENES {
        // Twice, so that what is kept for later is there.
        for _ in 0..2 {
            assert!((scene.run)(&simulated.device).expect(scene.name), "{}", scene.name);
        }
        let before = simulator.calls();
        assert!((scene.run)(&simulated.device).expect(scene.name), "{}", scene.name);
        let calls = simulator.calls() - before;
        for nth in 0..calls {
            for code in [OUT_OF_MEMORY, UNKNOWN] {
                let lines = left(&simulated);
                let free = simulated.device.memory_info().expect("figures").free_bytes;
                simulator.fail_next(nth, code);
                let outcome = (scene.run)(&simulated.device);
                let call = simulator.failed();
                simulator.fail_next(0, 0);
                // `cudarc` keeps an error of a destructor for its next call, which is the next run's.
                let _ = simulated.device.context().check_err();
                let what = format!("{}, call {nth} of {calls}, {call} with {code}", scene.name);
                if call.is_empty() {
                    // The run took fewer calls this time.
                    continue;
                }
                faults += 1;
                match outcome {
                    Ok(right) => assert!(right, "{what}: contents are wrong"),
                    Err(error) => {
                        failed += 1;
                        assert!(!error.to_string().is_empty(), "{what}");
                    }
                }
                if GIVE_BACK.contains(&call.as_str()) {
                    refused += 1;
                } else {
                    assert_eq!(left(&simulated), lines, "{what}");
                    let now = simulated.device.memory_info().expect("figures").free_bytes;
                    assert_eq!(now, free, "{what}");
                }
                assert_eq!(simulator.reports(), (0, String::new()), "{what}");
                assert!((scene.run)(&simulated.device).expect(&what), "{what}: the next run");
            }
        }
    }
    println!(
        "{faults} faults: {failed} runs failed, the others made up for it; {refused} in calls that give back"
    );
    assert!(faults > 1000, "{faults}");
}
