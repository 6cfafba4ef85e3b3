//! Random histories against a naive twin that keeps what each block holds.

use crate::setup::Tags;
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

const TAGS: [&str; 3] = ["weights", "kv_cache", "default"];

#[derive(Debug, Clone)]
enum TagStep {
    Allocate(usize, u64),
    Write(prop::sample::Index),
    Free(prop::sample::Index),
    /// Keeps the tags of this mask.
    Sleep(usize),
    Discard(usize),
    Wake(usize),
}

fn tag_step() -> impl Strategy<Value = TagStep> {
    prop_oneof![
        5 => (0..3usize, prop_oneof![1..4096u64, 1..3 * MIB]).prop_map(|(tag, bytes)| TagStep::Allocate(tag, bytes)),
        2 => any::<prop::sample::Index>().prop_map(TagStep::Write),
        2 => any::<prop::sample::Index>().prop_map(TagStep::Free),
        2 => (0..8usize).prop_map(TagStep::Sleep),
        1 => (0..8usize).prop_map(TagStep::Discard),
        4 => (0..8usize).prop_map(TagStep::Wake),
    ]
}

fn masked(mask: usize) -> Vec<&'static str> {
    (0..3).filter(|tag| mask >> tag & 1 == 1).map(|tag| TAGS[tag]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 24 } else { 200 }))]
    /// The twin knows which tags are asleep, and what each block holds.
    #[test]
    fn tags_are_as_a_twin_has_them(steps in prop::collection::vec(tag_step(), 1..50)) {
        let tags = Tags::with(integrated(), &TAGS, Offload::Pageable, |builder| builder.limit(48 * MIB));
        let before = tags.free();
        let mut blocks: Vec<(usize, crate::setup::Block, Option<u64>)> = Vec::new();
        let (mut asleep, mut seeds) = ([false; 3], 0);
        for step in steps {
            match step {
                TagStep::Allocate(tag, bytes) => match tags.all[tag].pool.allocate(bytes, &tags.stream) {
                    Ok(mut block) => {
                        prop_assert!(!asleep[tag]);
                        seeds += 1;
                        block.write(&crate::pattern(seeds, bytes), &tags.stream).expect("awake");
                        blocks.push((tag, block, Some(seeds)));
                    }
                    Err(error) => prop_assert!(asleep[tag] || error.is_out_of_memory(), "{}", error),
                },
                TagStep::Write(index) if !blocks.is_empty() => {
                    let place = index.index(blocks.len());
                    let (tag, block, seed) = &mut blocks[place];
                    seeds += 1;
                    let written = block.write(&crate::pattern(seeds, block.len()), &tags.stream);
                    prop_assert_eq!(written.is_err(), asleep[*tag]);
                    if !asleep[*tag] {
                        *seed = Some(seeds);
                    }
                }
                TagStep::Free(index) if !blocks.is_empty() => {
                    drop(blocks.swap_remove(index.index(blocks.len())));
                }
                TagStep::Sleep(mask) => {
                    let _ = tags.sleep(&masked(mask)).expect("no fault");
                    for (tag, _, seed) in &mut blocks {
                        if !asleep[*tag] && mask >> *tag & 1 == 0 {
                            *seed = None;
                        }
                    }
                    asleep = [true; 3];
                }
                TagStep::Discard(mask) => {
                    let _ = tags.discard(&masked(mask)).expect("no fault");
                    for (tag, _, seed) in &mut blocks {
                        if !asleep[*tag] && mask >> *tag & 1 == 1 {
                            *seed = None;
                        }
                    }
                    (0..3).for_each(|tag| asleep[tag] |= mask >> tag & 1 == 1);
                }
                TagStep::Wake(mask) => {
                    match tags.wake(&masked(mask)) {
                        Ok(_) => (0..3).for_each(|tag| asleep[tag] &= mask >> tag & 1 == 0),
                        Err(error) => prop_assert!(error.is_out_of_memory(), "{}", error),
                    }
                }
                TagStep::Write(_) | TagStep::Free(_) => {}
            }
            for (tag, block, seed) in &blocks {
                prop_assert_eq!(tags.all[*tag].arena.state() == SleepState::Asleep, asleep[*tag]);
                if let (false, Some(seed)) = (asleep[*tag], seed) {
                    prop_assert!(tags.holds(block, *seed));
                }
            }
            tags.finish();
            let (mapped, taken) = (tags.pool.stats().reserved_bytes, before - tags.free());
            prop_assert!(taken == mapped && mapped <= 48 * MIB, "{} bytes are taken, {} mapped", taken, mapped);
        }
        drop(blocks);
        let _ = tags.wake_up().expect("nothing is needed");
        let _ = tags.pool.trim().expect("no fault");
        tags.finish();
        prop_assert_eq!((tags.free(), tags.device.races()), (before, 0));
    }
}
