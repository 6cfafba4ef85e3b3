//! Each driver call of each scene fails once. Tests of other crates include this file.

use crate::scene::Scene;
use crate::simulated::Simulated;
use std::collections::BTreeMap;
use vrampool::Backend;
use vrampool::cuda::{CudaStream, DriverPool, PoolHandle};
use vrampool_cuda_simulator_control::{OUT_OF_MEMORY, UNKNOWN};

/// How many things a fault in `call` may leave: the driver has them, and nothing could release them.
fn most_left(call: &str) -> usize {
    match call {
        // Calls that release one thing.
        "cuMemFree_v2" | "cuMemFreeHost" | "cuMemFreeAsync" | "cuMemRelease" | "cuMemAddressFree"
        | "cuMemPoolDestroy" | "cuModuleUnload" | "cuEventDestroy_v2" | "cuStreamDestroy_v2"
        // `cudarc`'s calls.
        | "cuGraphDestroy" | "cuGraphExecDestroy"
        // One of those is behind it.
        | "cuCtxPushCurrent_v2" => 1,
        // Addresses, and the two pieces of memory that are mapped there in these scenes.
        "cuMemUnmap" => 3,
        _ => 0,
    }
}

/// The objects that are not released, and the free memory of the device.
#[derive(Debug, PartialEq)]
struct Left {
    /// How often there is a thing of each name.
    things: BTreeMap<String, usize>,
    free: u64,
}

const EVENTS: &str = "events";

/// How often there is a thing of each name that is not released.
fn things(simulated: &Simulated) -> BTreeMap<String, usize> {
    let mut things = BTreeMap::new();
    for line in simulated.simulator.leaks() {
        // Each memory has a line, other kinds have one with their number.
        let counted = line.split_once(' ').filter(|_| !line.contains(" bytes "));
        let counted = counted.and_then(|(count, name)| Some((count.parse().ok()?, name.to_owned())));
        let (count, name) = counted.unwrap_or((1, line));
        *things.entry(name).or_default() += count;
    }
    things
}

impl Left {
    /// Memory that the driver's own pool keeps until the host waits is released first. Events that the device keeps
    /// for reuse do not count.
    fn of(simulated: &Simulated, stream: &CudaStream) -> Self {
        simulated.device.context().synchronize().expect("no fault");
        let pool = DriverPool::new(&simulated.device, PoolHandle::Current).expect("a pool");
        pool.trim_to(0).expect("no fault");
        drop(pool);
        let mut things = things(simulated);
        // With as many events as there are in use, those beyond are unused.
        let events = things.get(EVENTS).copied().unwrap_or(0);
        let all: Vec<_> = (0..events).map(|_| simulated.device.record(stream).expect("an event")).collect();
        let beyond = self::things(simulated).get(EVENTS).copied().unwrap_or(0) - events;
        drop(all);
        things.insert(EVENTS.into(), beyond);
        Self { things, free: simulated.device.memory_info().expect("figures").free_bytes }
    }

    /// The name of each thing that was not there `before`.
    fn beyond(&self, before: &Self) -> Vec<String> {
        let had = |name: &String| before.things.get(name).copied().unwrap_or(0);
        let more = |(name, count): (&String, &usize)| vec![name.clone(); count.saturating_sub(had(name))];
        self.things.iter().flat_map(more).collect()
    }
}

/// Fails each driver call of the scenes once, with out-of-memory and with an unknown error: nothing is lost, nothing
/// races, and the next run works. Returns the number of faults.
pub(crate) fn fail_each_call(simulated: &Simulated, scenes: &[Scene]) -> u64 {
    let simulator = simulated.simulator;
    let stream = simulated.device.create_stream().expect("a stream");
    let (mut faults, mut failed, mut leaks) = (0, 0, 0);
    for scene in scenes {
        // Twice, so that what is kept for later is there.
        for _ in 0..2 {
            assert!((scene.run)(&simulated.device).expect(scene.name), "{}", scene.name);
        }
        let before = simulator.calls();
        assert!((scene.run)(&simulated.device).expect(scene.name), "{}", scene.name);
        let calls = simulator.calls() - before;
        let mut left = Left::of(simulated, &stream);
        for nth in 0..calls {
            for code in [OUT_OF_MEMORY, UNKNOWN] {
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
                assert!((scene.run)(&simulated.device).expect(&what), "{what}: the next run");
                let (now, most) = (Left::of(simulated, &stream), most_left(&call));
                let more = now.beyond(&left);
                assert!(more.len() <= most, "{what}: {more:?} are left");
                assert!(!more.is_empty() || now == left, "{what}: {left:?} became {now:?}");
                leaks += usize::from(!more.is_empty());
                left = now;
                assert_eq!(simulator.reports(), (0, String::new()), "{what}");
            }
        }
    }
    println!(
        "{faults} faults: {failed} runs failed, the others made up for it; {leaks} left what was refused"
    );
    faults
}
