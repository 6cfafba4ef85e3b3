//! The mapping from requests to bins of a magazine. Numbers only.
//!
//! The *number* of a size is its power of two and the next three bits. If no class begins inside one of
//! these eighths (fixed classes, powers of two, up to eight classes a doubling), each class has a bin of
//! its own, and a table maps most requests to bins without rounding. Otherwise classes share bins, and a
//! lookup compares classes.

use crate::heap::size_class::SizeClasses;

/// Number of bins of a thread cache. A `u8` index needs no bounds check.
#[cfg(not(model))]
pub(crate) const BINS: usize = 256;
/// A model has few classes, and each of its words is costly.
#[cfg(model)]
pub(crate) const BINS: usize = 4;

/// The bin without slots, for blocks that no magazine takes.
pub(crate) const NO_BIN: u8 = u8::MAX;

/// The largest class with a number.
pub(crate) const LARGEST_CLASS: u64 = 1 << 30;

/// Bytes per entry of the table.
const GRAIN: u64 = 1024;

const TABLE: usize = 1024;

/// The mapping of one pool.
#[derive(Debug, Clone)]
#[repr(C)]
pub(crate) struct ClassTable {
    /// The largest request in the table.
    reach: u64,
    /// No class that serves requests of more bytes has a bin.
    largest: u64,
    /// Whether each class has its own bin, and the hit path finds it.
    pub(crate) are_unshared: bool,
    pub(crate) is_observed: bool,
    /// The bin of each [`GRAIN`] of sizes; [`NO_BIN`] if its sizes have different bins.
    table: [u8; TABLE],
}

/// Returns a size's power of two and the next three bits. Sizes below 8 count as 8 more.
#[inline(always)]
pub(crate) fn number(bytes: u64) -> u8 {
    let bytes = bytes | 8;
    let shift = bytes.ilog2() - 3;
    ((bytes >> shift) + 8 * u64::from(shift) - 8) as u8
}

impl ClassTable {
    /// Creates the table for classes up to `largest` bytes. Of an [observed](crate::heap::request::observed) pool it
    /// has no bin, so that the hit path, which calls no hook, finds none.
    pub(crate) fn new(classes: &SizeClasses, largest: u64, is_observed: bool) -> Self {
        let largest = largest.min(LARGEST_CLASS);
        let are_unshared = !is_observed && classes.are_eighths(largest);
        let mut table = [NO_BIN; TABLE];
        for (below, bin) in (0u64..).step_by(GRAIN as usize).zip(&mut table).filter(|_| are_unshared) {
            let class = classes.round(below + GRAIN).filter(|&class| class <= largest);
            if let Some(class) = class.filter(|&class| classes.round(below + 1) == Some(class)) {
                *bin = number(class);
            }
        }
        let reach = if is_observed { 0 } else { largest.min(GRAIN * TABLE as u64) };
        Self { reach, table, largest, are_unshared, is_observed }
    }

    /// Returns the bin for a request, if it is known without rounding.
    #[inline(always)]
    pub(crate) fn of_request(&self, bytes: u64) -> Option<u8> {
        let below = bytes.wrapping_sub(1);
        (below < self.reach).then(|| self.table[(below / GRAIN) as usize % TABLE])
    }

    /// Whether a request is so large that no class that serves it has a bin.
    #[inline]
    pub(crate) fn are_below(&self, bytes: u64) -> bool {
        bytes > self.largest
    }

    /// Returns the bin for a class, which other classes may share.
    pub(crate) fn of_class(&self, class: u64) -> Option<u8> {
        (class <= self.largest).then(|| number(class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heap::size_class::SizeTable;
    use proptest::prelude::*;
    use std::collections::HashMap;

    fn rules() -> [SizeClasses; 8] {
        let sizes = [512, 4096, 4200, 4300, 65_536, 1_000_000];
        [
            SizeClasses::Fixed,
            SizeClasses::PowerOfTwo,
            SizeClasses::GEOMETRIC,
            SizeClasses::Geometric { per_doubling: 4, from: 2048 },
            SizeClasses::Multiple(8192),
            SizeClasses::EXACT,
            SizeClasses::Tight,
            SizeClasses::Table(SizeTable::new(sizes)),
        ]
    }

    #[test]
    fn unshared_bins_have_one_class_each_and_most_requests_find_theirs() {
        for rule in rules() {
            let table = ClassTable::new(&rule, 1 << 20, false);
            let mut classes: HashMap<u8, u64> = HashMap::new();
            let (mut found, all) = (0, 1 << 20);
            for bytes in 1..=all {
                let class = rule.round(bytes).expect("small");
                match table.of_request(bytes) {
                    Some(NO_BIN) => assert_eq!(table.of_class(class), Some(number(class))),
                    Some(bin) => {
                        found += 1;
                        assert_eq!(bin, number(class));
                        assert_eq!(*classes.entry(bin).or_insert(class), class, "{rule} {bytes}");
                    }
                    None => panic!("{rule} {bytes}"),
                }
            }
            assert_eq!(table.are_unshared, found > 0, "{rule}");
            assert!(found == 0 || found >= all - 4 * GRAIN, "{rule}: {found}");
        }
    }

    proptest! {
        #[test]
        fn a_request_finds_its_bin_or_none(bytes: u64, shift in 0..64u32, largest: u64, limit in 0..64u32) {
            let (bytes, largest) = (bytes >> shift, largest >> limit);
            for rule in rules() {
                let table = ClassTable::new(&rule, largest, false);
                if let Some(bin) = table.of_request(bytes).filter(|&bin| bin != NO_BIN) {
                    let class = rule.round(bytes).expect("it has a bin");
                    prop_assert!(class <= largest.min(LARGEST_CLASS));
                    prop_assert_eq!(Some(bin), table.of_class(class));
                }
            }
        }
    }
}
