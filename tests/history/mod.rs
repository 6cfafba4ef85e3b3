//! An arena and its naive twin, driven by one history of operations. The twin is a list of what is taken,
//! kept without any cleverness; what it does not list is free. The fuzz target in `fuzz/` includes this file
//! as well.

mod compare;
mod operation;

pub(crate) use operation::Operation;

use std::ops::Range;
use vrampool::arena::{Arena, ArenaError, ArenaLayout, BlockId, Move, Zone};

#[derive(Debug, Clone)]
struct Live {
    block: BlockId,
    range: Range<u64>,
    region: Zone,
    /// Where it moves.
    to: Option<u64>,
}

#[derive(Debug)]
pub(crate) struct History {
    pub(crate) arena: Arena,
    alignment: u64,
    stable: u64,
    capacity: u64,
    taken: Vec<Live>,
    /// Ranges that are neither live nor free.
    held: Vec<Range<u64>>,
    freed: Vec<BlockId>,
    peak: u64,
    foreign: BlockId,
}

impl History {
    pub(crate) fn new(capacity: u64, stable: u64, alignment: u64) -> Self {
        let arena = |bytes| Arena::new(ArenaLayout::new(bytes).stable_bytes(stable).alignment(alignment));
        let foreign = Arena::new(ArenaLayout::new(1 << 20)).unwrap().allocate(1, Zone::Dynamic).unwrap();
        Self {
            arena: arena(capacity).unwrap(),
            alignment,
            stable: stable.next_multiple_of(alignment),
            capacity: capacity / alignment * alignment,
            taken: Vec::new(),
            held: Vec::new(),
            freed: Vec::new(),
            peak: 0,
            foreign,
        }
    }

    /// Does it to both, and compares them.
    pub(crate) fn apply(&mut self, operation: Operation) {
        match operation {
            Operation::Allocate { bytes, region } => self.allocate(bytes, region),
            Operation::Free { which } => self.free(which),
            Operation::FreeStale { which } => {
                assert_eq!(self.arena.free(self.foreign), Err(ArenaError::ForeignBlock));
                assert_eq!(self.arena.offset(self.foreign), Err(ArenaError::ForeignBlock));
                if let Some(&block) = self.freed.get(which % self.freed.len().max(1)) {
                    assert_eq!(self.arena.free(block), Err(ArenaError::StaleBlock));
                    assert_eq!(self.arena.offset(block), Err(ArenaError::StaleBlock));
                    assert_eq!(self.arena.begin_move(block), Err(ArenaError::StaleBlock));
                }
            }
            Operation::Begin { which } => {
                if let Some(live) = pick(&mut self.taken, which) {
                    let block = live.block;
                    self.begin(block);
                }
            }
            Operation::Commit { which } => self.end_any_move(which, true),
            Operation::Cancel { which } => self.end_any_move(which, false),
            Operation::Pass { budget, fails_at } => self.pass(budget, fails_at),
            Operation::Reset => {
                self.arena.reset();
                self.freed.extend(self.taken.drain(..).map(|live| live.block));
                self.held.clear();
            }
        }
        self.compare();
    }

    fn region(&self, region: Zone) -> Range<u64> {
        match region {
            Zone::Stable => 0..self.stable,
            Zone::Dynamic => self.stable..self.capacity,
        }
    }

    /// Returns the unused ranges, in order of addresses.
    fn gaps(&self, region: Zone) -> Vec<Range<u64>> {
        let Range { start, end } = self.region(region);
        let mut taken: Vec<Range<u64>> = self.taken.iter().map(|live| live.range.clone()).collect();
        taken.extend(self.held.iter().cloned());
        taken.retain(|range| start <= range.start && range.start < end);
        taken.sort_by_key(|range| range.start);
        let (mut gaps, mut at) = (Vec::new(), start);
        for range in taken {
            assert!(at <= range.start, "{range:?} overlaps what ends at {at}");
            gaps.push(at..range.start);
            at = range.end;
        }
        gaps.push(at..end);
        gaps.retain(|gap| !gap.is_empty());
        gaps
    }

    fn allocate(&mut self, bytes: u64, region: Zone) {
        let size = bytes.next_multiple_of(self.alignment);
        let gaps = self.gaps(region);
        let block = match self.arena.allocate(bytes, region) {
            Ok(block) => block,
            Err(ArenaError::NoStableZone) => return assert!(region == Zone::Stable && self.stable == 0),
            Err(ArenaError::NoSpace { available_bytes: available, largest_bytes: largest, .. }) => {
                assert_eq!(gaps.iter().find(|gap| length(gap) >= size), None, "{size} bytes fit");
                assert_eq!(available, gaps.iter().map(|gap| gap.end - gap.start).sum());
                return assert_eq!(largest, longest(&gaps));
            }
            Err(error) => panic!("{error}"),
        };
        let offset = self.arena.offset(block).unwrap();
        let range = offset..offset + size;
        assert!(offset.is_multiple_of(self.alignment));
        let home = gaps.iter().find(|gap| gap.start <= range.start && range.end <= gap.end);
        let home = home.expect("a block comes from a gap of its region");
        let end = self.region(region).end;
        let holes = gaps.iter().filter(|gap| gap.end < end).map(length);
        match holes.filter(|&bytes| bytes >= size).min() {
            Some(best) => assert_eq!(length(home), best, "the smallest hole that fits"),
            None => assert_eq!(home.end, end, "the free end where no hole does"),
        }
        assert!(self.taken.iter().all(|live| live.block != block) && !self.freed.contains(&block));
        self.taken.push(Live { block, range, region, to: None });
    }

    fn free(&mut self, which: usize) {
        let Some(live) = pick(&mut self.taken, which) else { return };
        let block = live.block;
        let answer = self.arena.free(block);
        if live.to.is_some() {
            return assert_eq!(answer, Err(ArenaError::Moving));
        }
        assert_eq!(answer, Ok(()));
        self.taken.retain(|live| live.block != block);
        self.freed.push(block);
    }

    fn begin(&mut self, block: BlockId) -> Option<Move> {
        let live = self.taken.iter().find(|live| live.block == block)?.clone();
        let wrong =
            [(live.to.is_some(), ArenaError::Moving), (live.region == Zone::Stable, ArenaError::Stable)];
        if let Some((_, error)) = wrong.into_iter().find(|&(is, _)| is) {
            assert_eq!(self.arena.begin_move(block), Err(error));
            return None;
        }
        let ends = self.taken.iter().map(|other| &other.range).chain(&self.held).map(|range| range.end);
        let to = ends.filter(|&end| end <= live.range.start).max().unwrap_or(0).max(self.stable);
        let began = self.arena.begin_move(block).unwrap();
        if to >= live.range.start {
            assert_eq!(began, None);
            return None;
        }
        let began = began.expect("there is a hole in front");
        assert_eq!(
            (began.block, began.from, began.to, began.bytes),
            (block, live.range.start, to, length(&live.range))
        );
        assert_eq!(began.overlaps(), to + began.bytes > began.from);
        self.held.push(to..live.range.start);
        self.taken.iter_mut().find(|live| live.block == block)?.to = Some(to);
        Some(began)
    }

    fn end_any_move(&mut self, which: usize, commits: bool) {
        let moving = self.taken.iter().filter(|live| live.to.is_some()).map(|live| live.block);
        let moving: Vec<BlockId> = moving.collect();
        match moving.get(which % moving.len().max(1)) {
            Some(&block) => self.end(block, commits),
            None => {
                if let Some(live) = pick(&mut self.taken, which) {
                    assert_eq!(self.arena.commit_move(live.block), Err(ArenaError::NotMoving));
                    assert_eq!(self.arena.cancel_move(live.block), Err(ArenaError::NotMoving));
                }
            }
        }
    }

    fn end(&mut self, block: BlockId, commits: bool) {
        let live = self.taken.iter_mut().find(|live| live.block == block).unwrap();
        let (from, to) = (live.range.clone(), live.to.take().unwrap());
        let answer = if commits { self.arena.commit_move(block) } else { self.arena.cancel_move(block) };
        assert_eq!(answer, Ok(()));
        if commits {
            live.range = to..to + length(&from);
        }
        self.held.retain(|range| range.start != to);
    }

    /// A pass of compaction in which the copy of one move fails.
    fn pass(&mut self, budget: u64, fails_at: usize) {
        let planned: Vec<Move> = self.arena.plan(budget).collect();
        assert!(planned.iter().map(|planned| planned.bytes).sum::<u64>() <= budget);
        assert!(planned.is_sorted_by_key(|planned| planned.to));
        for (count, planned) in planned.iter().enumerate() {
            let began = self.begin(planned.block).expect("a planned move can be begun");
            if count < fails_at {
                assert_eq!(began, *planned, "as long as each is carried out");
            }
            self.end(planned.block, count != fails_at);
            self.compare();
            if count == fails_at {
                return;
            }
        }
    }
}

fn pick(taken: &mut [Live], which: usize) -> Option<&mut Live> {
    let count = taken.len().max(1);
    taken.get_mut(which % count)
}

fn length(range: &Range<u64>) -> u64 {
    range.end - range.start
}

fn longest(gaps: &[Range<u64>]) -> u64 {
    gaps.iter().map(length).max().unwrap_or(0)
}
