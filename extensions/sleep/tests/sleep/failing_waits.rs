//! Sleeps and wakes whose waits on the host fail, once or again and again: no copy of theirs is pending where the
//! program, or the next sleep, uses the memory.

use crate::setup::{Block, Tags};
use crate::{MIB, Setup, pattern};
use std::time::Duration;
use vrampool::backend::BackendError;
use vrampool::host::{Backend, Call, DeviceKind, HostBuilder, HostDevice};
use vrampool_sleep::{Offload, Wake};

const KIB: u64 = 1 << 10;

/// Number of random sequences. Under load, and in a release build: 100,000 by `VRAMPOOL_TEST_SEQUENCES`.
fn sequences() -> u64 {
    let count = std::env::var("VRAMPOOL_TEST_SEQUENCES").ok().and_then(|count| count.parse().ok());
    count.unwrap_or(if cfg!(debug_assertions) { 150 } else { 1000 })
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
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
    let mut random = Random(seed);
    let device = builder().build();
    let offload = [Offload::Pinned, Offload::Pinned, Offload::Pageable][random.below(3) as usize];
    let tags = Tags::with(device, |builder| builder.limit(8 * MIB).offload(offload).chunk_bytes(64 * KIB));
    let other = tags.device.create_stream().expect("a stream");
    // A tag that does not exist is refused.
    let mut blocks: Vec<(Block, u64)> = TAGS.iter().map(|tag| (tags.filled(tag, 100, 99), 99)).collect();
    let mut failures = 0;
    for step in 0..24 {
        let faults = tags.device.faults();
        match random.below(4) {
            0 => faults.fail_nth(Call::Synchronize, 1 + random.below(3)),
            1 => {
                let first = 1 + random.below(3);
                (0..2 + random.below(2)).for_each(|more| faults.fail_nth(Call::Synchronize, first + more));
            }
            _ => {}
        }
        let tag = TAGS[random.below(2) as usize];
        let stream = if random.below(2) == 0 { &tags.stream } else { &other };
        let outcome = match random.below(6) {
            0 | 1 => {
                tags.sleeper.allocate_tagged(1 + random.below(200 * KIB), tag, stream).map(|mut block| {
                    if block.write(&pattern(step, block.len()), stream).is_ok() {
                        blocks.push((block, step));
                    }
                })
            }
            2 if !blocks.is_empty() => {
                let index = random.below(blocks.len() as u64) as usize;
                let (block, seed) = &mut blocks[index];
                let written = block.write(&pattern(step, block.len()), stream);
                if written.is_ok() {
                    *seed = step;
                }
                written
            }
            3 => tags.sleeper.sleep(&TAGS).map(drop).map_err(arena_error),
            _ => tags.sleeper.wake_up(Wake::All).map(drop).map_err(arena_error),
        };
        failures += u64::from(outcome.is_err_and(|error| error.to_string().contains("injected")));
        faults.clear();
        if random.below(8) == 0 && !blocks.is_empty() {
            blocks.swap_remove(random.below(blocks.len() as u64) as usize);
        }
    }
    let _ = tags.sleeper.wake_up(Wake::All).expect("no fault");
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
