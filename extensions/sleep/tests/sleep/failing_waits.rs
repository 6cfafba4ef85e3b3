//! Sleeps and wakes whose waits on the host fail, once or again and again: no copy of theirs is pending where the
//! program, or the next sleep, uses the memory.

use crate::setup::{Block, Tags};
use crate::{MIB, Setup, pattern};
use std::time::Duration;
use vrampool::backend::BackendError;
use vrampool::host::{Backend, Call, DeviceKind, HostBuilder, HostDevice};
use vrampool_sleep::Offload;

const KIB: u64 = 1 << 10;

/// Number of random sequences. Under load, and in a release build: 100,000 by `VRAMPOOL_TEST_SEQUENCES`.
fn sequences() -> u64 {
    let count = std::env::var("VRAMPOOL_TEST_SEQUENCES").ok().and_then(|count| count.parse().ok());
    count.unwrap_or(if cfg!(debug_assertions) { 150 } else { 1000 })
}

fn builder() -> HostBuilder {
    HostDevice::builder().memory_limit(64 * MIB).kind(DeviceKind::Discrete).granularity(4 * KIB)
}

/// No other error is injected.
fn arena_error(error: vrampool_sleep::Error) -> vrampool::Error {
    error.of_arena().expect("an arena's").clone()
}

const TAGS: [&str; 2] = ["weights", "cache"];

/// One random sequence. Returns whether a wait failed.
fn sequence(seed: u64) -> u64 {
    let mut random = fastrand::Rng::with_seed(seed);
    let device = builder().build();
    let offload = [Offload::Pinned, Offload::Pinned, Offload::Pageable][random.usize(..3)];
    let tags = Tags::with(device, &TAGS, offload, |builder| builder.limit(8 * MIB).piece_bytes(64 * KIB));
    let other = tags.device.create_stream().expect("a stream");
    let mut blocks: Vec<(Block, u64)> = Vec::new();
    let mut failures = 0;
    for step in 0..24 {
        let faults = tags.device.faults();
        match random.u64(..4) {
            0 => faults.fail_nth(Call::Synchronize, 1 + random.u64(..3)),
            1 => {
                let first = 1 + random.u64(..3);
                (0..2 + random.u64(..2)).for_each(|more| faults.fail_nth(Call::Synchronize, first + more));
            }
            _ => {}
        }
        let tag = TAGS[random.usize(..2)];
        let stream = if random.u64(..2) == 0 { &tags.stream } else { &other };
        let outcome = match random.u64(..6) {
            0 | 1 => tags.of(tag).pool.allocate(1 + random.u64(..200 * KIB), stream).map(|mut block| {
                if block.write(&pattern(step, block.len()), stream).is_ok() {
                    blocks.push((block, step));
                }
            }),
            2 if !blocks.is_empty() => {
                let index = random.usize(..blocks.len());
                let (block, seed) = &mut blocks[index];
                let written = block.write(&pattern(step, block.len()), stream);
                if written.is_ok() {
                    *seed = step;
                }
                written
            }
            3 => tags.sleep(&TAGS).map(drop).map_err(arena_error),
            _ => tags.wake_up().map(drop).map_err(arena_error),
        };
        failures += u64::from(outcome.is_err_and(|error| error.to_string().contains("injected")));
        faults.clear();
        if random.u64(..8) == 0 && !blocks.is_empty() {
            blocks.swap_remove(random.usize(..blocks.len()));
        }
    }
    let _ = tags.wake_up().expect("no fault");
    for (block, seed) in &blocks {
        assert!(tags.holds(block, *seed), "sequence {seed}: contents differ");
    }
    drop(blocks);
    for stream in [&tags.stream, &other] {
        tags.device.synchronize(stream).expect("no fault");
    }
    assert_eq!(tags.device.races(), 0, "sequence {seed}");
    failures
}

#[test]
fn random_sequences_with_failing_waits_have_no_race() {
    let begin = std::env::var("VRAMPOOL_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(0);
    let failures: u64 = (begin..begin + sequences()).map(sequence).sum();
    assert!(failures > 0, "no wait failed");
}

/// A copy of a failed sleep or wake is complete when the call returns, although every wait fails.
#[test]
fn no_copy_is_pending_after_a_failed_call() {
    for wakes in [false, true] {
        let device = builder().work_latency(Duration::from_millis(20)).build();
        let setup = Setup::with(device, |builder| builder.limit(16 * MIB).piece_bytes(MIB));
        let mut block = setup.filled(MIB, 1);
        if wakes {
            let _ = setup.sleep.sleep(Offload::Pinned).expect("no fault");
        } else {
            setup.device.synchronize(&setup.stream).expect("no fault");
        }
        let injected = BackendError::driver("synchronize", -1, "injected fault");
        // The waits for the program's streams succeed.
        let own = u64::from(!wakes);
        for nth in 0..100 {
            setup.device.faults().fail_nth_with(Call::Synchronize, 1 + own + nth, injected.clone());
        }
        let refused =
            if wakes { setup.sleep.wake().map(drop) } else { setup.sleep.sleep(Offload::Pinned).map(drop) };
        assert!(refused.expect_err("a wait fails").to_string().contains("injected"));
        setup.device.faults().clear();
        if wakes {
            let _ = setup.sleep.wake().expect("no fault");
        }
        let work = block.on_mut(&setup.stream).expect("awake");
        // Holds the block longer than a copy is delayed.
        let hold = |[]: [&[u8]; 0], [bytes]: [&mut [u8]; 1]| {
            std::thread::sleep(Duration::from_millis(60));
            bytes.fill(7);
        };
        setup.stream.launch([], [work], hold).expect("queued");
        setup.device.synchronize(&setup.stream).expect("no fault");
        assert_eq!(setup.device.races(), 0, "wakes: {wakes}");
    }
}
