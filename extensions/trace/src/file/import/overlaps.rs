//! Detection of live allocations that overlap, in the order of events.

use super::budget::Budget;
use crate::error::TraceFault;

/// Addresses of one word.
const WORD: usize = u64::BITS as usize;

/// Live ranges by the ranks of their addresses, of which all are known before. A set of ranks as a tree of
/// words: each bit of a level says whether a word of the level below has any. So neighbours are found in a
/// few steps, whatever is live.
#[derive(Debug)]
pub(super) struct Overlaps {
    /// All addresses, sorted.
    starts: Vec<u64>,
    /// Where the range that is live at each ends.
    ends: Vec<u64>,
    /// From the ranks up.
    levels: Vec<Vec<u64>>,
}

impl Overlaps {
    /// Of these addresses; some may be there more than once.
    pub(super) fn new(mut starts: Vec<u64>, budget: &mut Budget) -> Result<Self, TraceFault> {
        starts.sort_unstable();
        starts.dedup();
        let mut ends = Vec::new();
        budget.room(&mut ends, starts.len())?;
        ends.resize(starts.len(), 0);
        let (mut levels, mut bits) = (Vec::new(), starts.len());
        loop {
            bits = bits.div_ceil(WORD).max(1);
            let mut level = Vec::new();
            budget.room(&mut level, bits)?;
            level.resize(bits, 0);
            levels.push(level);
            if bits == 1 {
                return Ok(Self { starts, ends, levels });
            }
        }
    }

    /// A range becomes live. Returns the address of a neighbour that it overlaps. While none did before, none
    /// is missed.
    pub(super) fn allocate(&mut self, address: u64, size: u64) -> Option<u64> {
        let rank = self.rank(address)?;
        if size == 0 {
            return None;
        }
        let end = address.saturating_add(size);
        let before = self.before(rank).filter(|&before| self.ends[before] > address);
        let behind = self.behind(rank).filter(|&behind| self.starts[behind] < end);
        self.ends[rank] = end;
        self.set(rank);
        before.or(behind).map(|rank| self.starts[rank])
    }

    pub(super) fn free(&mut self, address: u64) {
        if let Some(rank) = self.rank(address) {
            let mut place = rank;
            for level in &mut self.levels {
                level[place / WORD] &= !(1 << (place % WORD));
                if level[place / WORD] != 0 {
                    break;
                }
                place /= WORD;
            }
        }
    }

    pub(super) fn dropped(&self, budget: &mut Budget) {
        budget.dropped(&self.starts);
        budget.dropped(&self.ends);
        self.levels.iter().for_each(|level| budget.dropped(level));
    }

    fn rank(&self, address: u64) -> Option<usize> {
        self.starts.binary_search(&address).ok()
    }

    fn set(&mut self, rank: usize) {
        let mut place = rank;
        for level in &mut self.levels {
            level[place / WORD] |= 1 << (place % WORD);
            place /= WORD;
        }
    }

    /// The greatest live rank below this one.
    fn before(&self, rank: usize) -> Option<usize> {
        let mut place = rank;
        for (height, level) in self.levels.iter().enumerate() {
            let below = level[place / WORD] & ((1 << (place % WORD)) - 1);
            if below != 0 {
                let found = place / WORD * WORD + below.ilog2() as usize;
                return Some(self.descend(height, found, |word| word.ilog2()));
            }
            place /= WORD;
        }
        None
    }

    /// The least live rank above this one.
    fn behind(&self, rank: usize) -> Option<usize> {
        let mut place = rank;
        for (height, level) in self.levels.iter().enumerate() {
            let above = level[place / WORD] & (!1 << (place % WORD));
            if above != 0 {
                let found = place / WORD * WORD + above.trailing_zeros() as usize;
                return Some(self.descend(height, found, u64::trailing_zeros));
            }
            place /= WORD;
        }
        None
    }

    /// From a set bit of a level to the rank that it stands for.
    fn descend(&self, height: usize, bit: usize, choose: impl Fn(u64) -> u32) -> usize {
        let mut place = bit;
        for level in self.levels[..height].iter().rev() {
            place = place * WORD + choose(level[place]) as usize;
        }
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn the_first_overlap_is_found_and_nothing_else(
            steps in prop::collection::vec((0..20_000u64, 0..60u64, any::<bool>()), 0..800),
        ) {
            let addresses: Vec<u64> = steps.iter().map(|step| step.0).collect();
            let mut overlaps = Overlaps::new(addresses, &mut Budget::new(1 << 30)).expect("memory");
            let mut live = BTreeMap::<u64, u64>::new();
            for (address, size, is_free) in steps {
                if is_free {
                    let Some((&address, _)) = live.range(address..).next() else { continue };
                    live.remove(&address);
                    overlaps.free(address);
                } else if !live.contains_key(&address) {
                    let overlaps_it = |(&start, &bytes): (&u64, &u64)| {
                        bytes > 0 && start < address + size && address < start + bytes
                    };
                    let expected = size > 0 && live.iter().any(overlaps_it);
                    prop_assert_eq!(overlaps.allocate(address, size).is_some(), expected);
                    if expected {
                        break;
                    }
                    live.insert(address, size);
                }
            }
        }
    }
}
