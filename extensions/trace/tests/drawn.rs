//! A recorded trace whose sizes are all drawn anew: no block fits where another one was.

use fastrand::Rng;
use std::collections::HashMap;
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool, SizeClasses, Source};
use vrampool_trace::{Op, Trace};

/// What the limit is of the most that is live.
const LIMIT: f64 = 1.04;

/// A block's pass and number, and how many bytes are asked for; none where it is freed.
type Event = ((u64, u64), Option<u64>);

/// The events of so many passes with sizes 30 % around the recorded ones, and the most bytes that are live.
fn drawn(trace: &Trace, passes: u64, seed: u64) -> (Vec<Event>, u64) {
    let mut random = Rng::with_seed(seed);
    let (mut events, mut sizes, mut live, mut peak) = (Vec::new(), HashMap::new(), 0, 0);
    for pass in 0..passes {
        for event in trace.events() {
            let id = (pass, event.id);
            if event.op == Op::Free {
                live -= sizes.remove(&id).expect("a free of something live");
                events.push((id, None));
                continue;
            }
            let bytes = (event.size * random.u64(700..=1300) / 1000).max(1);
            sizes.insert(id, bytes);
            live += bytes;
            peak = live.max(peak);
            events.push((id, Some(bytes)));
        }
    }
    (events, peak)
}

#[test]
fn little_more_than_what_is_live_serves_sizes_that_never_repeat() {
    if HostDevice::new().virtual_memory().is_none() {
        vrampool_test_support::skipped("the host has no virtual memory on this system");
        return;
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/traces/serve_mixed.csv.gz");
    let trace = Trace::read(path).expect("recorded");
    for seed in 0..6 {
        let (events, peak) = drawn(&trace, 2, seed);
        let device = HostDevice::builder().memory_limit(1 << 40).granularity(2 << 20).build();
        let stream = device.create_stream().expect("a stream");
        let limit = (peak as f64 * LIMIT) as u64;
        let pool =
            Pool::builder(&device).source(Source::Virtual).size_classes(SizeClasses::Tight).limit(limit);
        let pool = pool.build().expect("a pool");
        let mut live = HashMap::new();
        for (id, bytes) in events {
            match bytes {
                Some(bytes) => match pool.allocate(bytes, &stream) {
                    Ok(buffer) => _ = live.insert(id, buffer),
                    Err(error) => panic!("seed {seed}, {id:?}, a limit of {limit}: {error}"),
                },
                None => drop(live.remove(&id)),
            }
        }
    }
}
