//! Random work on a captured stream and others.

use crate::{Device, KIB, scene};
use proptest::prelude::*;
use vrampool::{Buffer, Error, Source};

#[derive(Debug, Clone)]
enum Step {
    Allocate { kib: u64, stream: usize },
    Use { which: usize, stream: usize },
    Read { which: usize, stream: usize },
    Drop { which: usize },
    Capture { on: bool },
    Trim,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..20u64, 0..3usize).prop_map(|(kib, stream)| Step::Allocate { kib, stream }),
        2 => (any::<usize>(), 0..3usize).prop_map(|(which, stream)| Step::Use { which, stream }),
        2 => (any::<usize>(), 0..3usize).prop_map(|(which, stream)| Step::Read { which, stream }),
        5 => any::<usize>().prop_map(|which| Step::Drop { which }),
        1 => any::<bool>().prop_map(|on| Step::Capture { on }),
        1 => Just(Step::Trim),
    ]
}

proptest! {
    #[test]
    fn no_call_is_made_for_a_captured_stream_and_nothing_is_lost(
        source in prop::sample::select(Source::ALL.to_vec()),
        steps in prop::collection::vec(step(), 0..80),
    ) {
        let scene = scene(source);
        let mut live: Vec<Buffer<Device>> = Vec::new();
        let (mut is_captured, mut requests) = (false, 0);
        for step in steps {
            let at = |which: usize| (!live.is_empty()).then(|| which % live.len());
            // Of the captured stream's: a refusal, or no call at all.
            let (outcome, stream) = match step {
                Step::Allocate { kib, stream } => {
                    requests += 1;
                    let calls = scene.calls();
                    let outcome = scene.pool.allocate(kib * KIB, &scene.streams[stream]);
                    prop_assert!(!is_captured || stream != 0 || scene.calls() == calls);
                    (outcome.map(|buffer| live.push(buffer)), stream)
                }
                Step::Use { which, stream } => match at(which) {
                    Some(which) => (live[which].on_mut(&scene.streams[stream]).map(drop), stream),
                    None => continue,
                },
                Step::Read { which, stream } => match at(which) {
                    Some(which) => (live[which].used_on(&scene.streams[stream]), stream),
                    None => continue,
                },
                Step::Drop { which } => {
                    drop(at(which).map(|which| live.swap_remove(which)));
                    continue;
                }
                Step::Capture { on } => {
                    is_captured = on;
                    let captured = [&scene.streams[0]];
                    scene.device.capture(if on { &captured } else { &[] });
                    continue;
                }
                Step::Trim => {
                    scene.pool.trim().expect("a trim");
                    continue;
                }
            };
            prop_assert_eq!(scene.device.forbidden(), 0);
            match outcome {
                Ok(()) => {}
                Err(Error::Capture { .. }) => prop_assert!(is_captured),
                Err(error) => prop_assert!(error.is_out_of_memory() && !(is_captured && stream == 0), "{error}"),
            }
        }
        let stats = scene.pool.stats();
        prop_assert_eq!(stats.served.total() + stats.failed.total(), requests);
        prop_assert_eq!(stats.live_bytes, live.iter().map(Buffer::capacity).sum::<u64>());
        scene.device.capture(&[]);
        live.clear();
        scene.pool.trim().expect("a trim");
        prop_assert_eq!(scene.pool.stats().held_bytes, 0);
        let arena = scene.pool.arena().map_or(0, |arena| arena.capacity());
        prop_assert_eq!(scene.device.taken(), arena);
    }
}
