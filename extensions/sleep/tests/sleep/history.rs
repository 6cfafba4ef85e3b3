//! Random histories against a naive twin that keeps what each block holds.

use crate::{MIB, Setup, address, discrete, finish, integrated};
use proptest::prelude::*;
use vrampool::arena::ArenaBuffer;
use vrampool_sleep::{Offload, SleepState};

#[derive(Debug, Clone)]
enum Step {
    Allocate(u64),
    Write(prop::sample::Index),
    Free(prop::sample::Index),
    Sleep(Offload),
    Wake,
    Release,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => prop_oneof![1..4096u64, 1..MIB, MIB..6 * MIB].prop_map(Step::Allocate),
        2 => any::<prop::sample::Index>().prop_map(Step::Write),
        3 => any::<prop::sample::Index>().prop_map(Step::Free),
        2 => prop_oneof![3 => Just(Offload::Pinned), 2 => Just(Offload::Pageable), 1 => Just(Offload::Discard)].prop_map(Step::Sleep),
        3 => Just(Step::Wake),
        1 => Just(Step::Release),
    ]
}

/// A block, where it is, and what it holds: `None` for undefined.
struct Block {
    buffer: ArenaBuffer<vrampool::host::HostDevice>,
    address: u64,
    seed: Option<u64>,
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 24 } else { 200 }))]
    #[test]
    fn contents_are_those_of_a_twin_that_never_sleeps(
        steps in prop::collection::vec(step(), 1..60),
        is_discrete in any::<bool>(),
        piece in prop_oneof![Just(u64::MAX), Just(2 * MIB)],
    ) {
        let setup = Setup::with(if is_discrete { discrete() } else { integrated() }, |builder| builder.limit(40 * MIB).piece_bytes(piece));
        let before = setup.free();
        let mut blocks: Vec<Block> = Vec::new();
        let mut is_asleep = false;
        let mut seeds = 0;
        for step in steps {
            match step {
                Step::Allocate(bytes) => match setup.arena.allocate(bytes, &setup.stream) {
                    Ok(mut buffer) => {
                        prop_assert!(!is_asleep);
                        seeds += 1;
                        buffer.write(&crate::pattern(seeds, bytes), &setup.stream).expect("awake");
                        blocks.push(Block { address: address(&buffer), buffer, seed: Some(seeds) });
                    }
                    Err(error) => prop_assert!(is_asleep || error.is_out_of_memory(), "{}", error),
                },
                Step::Write(index) if !blocks.is_empty() => {
                    let place = index.index(blocks.len());
                    let block = &mut blocks[place];
                    seeds += 1;
                    let written = block.buffer.write(&crate::pattern(seeds, block.buffer.len()), &setup.stream);
                    prop_assert_eq!(written.is_err(), is_asleep);
                    if !is_asleep {
                        block.seed = Some(seeds);
                    }
                }
                Step::Free(index) if !blocks.is_empty() => {
                    drop(blocks.swap_remove(index.index(blocks.len())));
                }
                Step::Sleep(offload) => {
                    let report = setup.sleep.sleep(offload).expect("no fault");
                    prop_assert_eq!(report.no_op, is_asleep);
                    if !is_asleep && offload == Offload::Discard {
                        blocks.iter_mut().for_each(|block| block.seed = None);
                    }
                    is_asleep = true;
                }
                Step::Wake => {
                    let report = setup.sleep.wake().expect("memory");
                    prop_assert_eq!(report.no_op, !is_asleep);
                    is_asleep = false;
                }
                Step::Release => {
                    let _ = setup.arena.release(0).expect("no fault");
                }
                Step::Write(_) | Step::Free(_) => {}
            }
            prop_assert_eq!(setup.sleep.state() == SleepState::Asleep, is_asleep);
            prop_assert_eq!(setup.arena.used(), blocks.iter().map(|block| block.buffer.capacity()).sum::<u64>());
            let mapped = setup.arena.reserved_bytes();
            let bounds = if is_asleep { 0..=0 } else { setup.arena.used()..=40 * MIB };
            prop_assert!(bounds.contains(&mapped), "{} bytes are mapped", mapped);
            for block in &blocks {
                prop_assert_eq!(address(&block.buffer), block.address);
                if let (false, Some(seed)) = (is_asleep, block.seed) {
                    prop_assert!(setup.holds(&block.buffer, seed));
                }
            }
            finish_releases(&setup, is_asleep);
            let pinned = if is_discrete { setup.sleep.backup_bytes() } else { 0 };
            let taken = before - setup.free();
            prop_assert!(taken >= mapped && taken <= mapped + pinned, "{} bytes are taken, {} mapped", taken, mapped);
        }
        let _ = setup.sleep.wake().expect("memory");
        drop(blocks);
        let _ = setup.arena.release(0).expect("no fault");
        finish(&setup.sleep);
        prop_assert_eq!((setup.free(), setup.arena.reserved_bytes()), (before, 0));
        prop_assert_eq!(setup.device.races(), 0);
    }
}

fn finish_releases(setup: &Setup, is_asleep: bool) {
    if !is_asleep {
        finish(&setup.sleep);
    }
}
