//! Bins of sizes, and bitmaps of the occupied ones. Numbers only, without blocks.
//!
//! A row is a power of two and has 1024 bins of equal width, so the sizes in a bin differ by less than 0.1 %.
//! Where a bin would be narrower than the arena's alignment, each size has its own bin: the lowest row
//! therefore covers several of cuArena's bins. The rows above are cuArena's up to 256 GiB, and continue to
//! 2⁶⁴, where cuArena has one bin. With an alignment of 256 bytes:
//!
//! ```text
//! row   8         9          10       …  28               …  54
//!       0..256K   256..512K  512K..1M    128..256 GiB        2⁶³..2⁶⁴
//!       256 B     256 B      512 B       128 MiB a bin
//! ```
//!
//! With so many bins, a bin rarely holds more than one size, and branches of a search are predicted well.
//! Rows without sizes are memory that is never touched.

use std::num::NonZeroU64;

/// Bins to a row, as a power of two.
const WIDTH: u32 = 10;

pub(super) const ROW: usize = 1 << WIDTH;

/// Bins in all: the rows of sizes of up to 64 bits.
pub(super) const BINS: usize = (65 - WIDTH as usize) << WIDTH;

/// Machine words with a bit for each bin, and with a bit for each of those words.
const WORDS: usize = BINS.div_ceil(64);
const GROUPS: usize = WORDS.div_ceil(64);

/// The width of bins. Those of the lowest two rows are as wide as the arena's alignment.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scale {
    second_row: NonZeroU64,
}

impl Scale {
    /// The scale for sizes that are multiples of an alignment, given as a power of two.
    pub(super) fn of_alignment(shift: u32) -> Self {
        // With the largest alignments, no size is below it.
        Self { second_row: NonZeroU64::new(1 << (WIDTH + shift).min(63)).unwrap_or(NonZeroU64::MAX) }
    }

    /// The bin of a size, and the number of the size's low bits that the bin leaves open.
    #[inline]
    pub(super) fn bin_of(self, bytes: u64) -> (usize, u32) {
        let ignored = (self.second_row | bytes).ilog2() - WIDTH;
        (((u64::from(ignored) << WIDTH) + (bytes >> ignored)) as usize, ignored)
    }
}

/// The occupied bins: a bit for each bin, and a bit for each word with a set bit.
#[derive(Debug)]
pub(super) struct Occupied {
    words: [u64; WORDS],
    groups: [u64; GROUPS],
}

impl Occupied {
    pub(super) const NONE: Self = Self { words: [0; WORDS], groups: [0; GROUPS] };

    #[inline]
    pub(super) fn set(&mut self, bin: usize) {
        let word = bin >> 6;
        self.words[word] |= 1 << (bin & 63);
        self.groups[word >> 6] |= 1 << (word & 63);
    }

    /// Clears a bin's bit, which is set, if the bin is `empty`.
    #[inline(always)]
    pub(super) fn clear_if(&mut self, empty: bool, bin: usize) {
        // Without branches, for the same reason as in `Holes::remove`.
        let word = bin >> 6;
        self.words[word] &= !(u64::from(empty) << (bin & 63));
        self.groups[word >> 6] &= !(u64::from(self.words[word] == 0) << (word & 63));
    }

    /// The first occupied bin at or after `bin`.
    #[inline(always)]
    pub(super) fn first_from(&self, bin: usize) -> Option<usize> {
        let word = bin >> 6;
        let here = self.words.get(word)? & (u64::MAX << (bin & 63));
        if here != 0 {
            return Some(word << 6 | here.trailing_zeros() as usize);
        }
        let next = word + 1;
        let mut above = self.groups.get(next >> 6)? & (u64::MAX << (next & 63));
        let mut group = next >> 6;
        while above == 0 {
            group += 1;
            above = *self.groups.get(group)?;
        }
        let word = group << 6 | above.trailing_zeros() as usize;
        Some(word << 6 | self.words[word].trailing_zeros() as usize)
    }

    pub(super) fn last(&self) -> Option<usize> {
        let group = self.groups.iter().rposition(|&group| group != 0)?;
        let word = group << 6 | self.groups[group].ilog2() as usize;
        Some(word << 6 | self.words[word].ilog2() as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn cuarenas_bins_are_whole_rows() {
        for alignment in 0..10 {
            let bin = |bytes: u64| Scale::of_alignment(alignment).bin_of(bytes).0;
            for shift in 9..64 {
                let (below, start) = ((1u64 << shift) - (1 << alignment), 1 << shift);
                assert!(bin(below) < bin(start), "a bin starts at 2^{shift}");
            }
            for shift in alignment + WIDTH..63 {
                assert_eq!(bin(2 << shift) - bin(1 << shift), 1 << WIDTH, "a row starts at 2^{shift}");
            }
        }
        assert_eq!(Scale::of_alignment(8).bin_of(u64::MAX), (BINS - 1, 64 - 1 - WIDTH));
        assert_eq!(Scale::of_alignment(63).bin_of(1 << 63), (BINS - (1 << WIDTH), 64 - 1 - WIDTH));
    }

    fn any_bytes() -> impl Strategy<Value = u64> {
        (0u32..64, any::<u64>()).prop_map(|(shift, bits)| bits >> shift)
    }

    proptest! {
        #[test]
        fn bins_keep_order_and_differ_for_all_but_the_low_bits(
            one in any_bytes(),
            two in any_bytes(),
            alignment in 0u32..64,
        ) {
            let multiple = |bytes: u64| bytes >> alignment << alignment;
            let (small, large) = (multiple(one.min(two)), multiple(one.max(two)));
            let scale = Scale::of_alignment(alignment);
            let ((low, ignored), (high, _)) = (scale.bin_of(small), scale.bin_of(large));
            prop_assert!(low <= high && high < BINS);
            prop_assert_eq!(low == high, small >> ignored == large >> ignored, "a bin is one prefix");
            prop_assert!(ignored <= alignment || 1u64 << ignored <= small >> WIDTH, "a bin is a 1024th of its sizes wide");
        }

        #[test]
        fn bitmaps_are_a_sorted_set(steps in prop::collection::vec((0..BINS, any::<bool>()), 0..200), from in 0..BINS + 1) {
            let (mut occupied, mut set) = (Occupied::NONE, BTreeSet::new());
            for (bin, fills) in steps {
                if fills {
                    occupied.set(bin);
                    set.insert(bin);
                } else {
                    occupied.clear_if(false, bin);
                    prop_assert_eq!(occupied.first_from(bin), set.range(bin..).next().copied());
                    occupied.clear_if(true, bin);
                    set.remove(&bin);
                }
            }
            prop_assert_eq!(occupied.first_from(from), set.range(from..).next().copied());
            prop_assert_eq!(occupied.last(), set.last().copied());
        }
    }
}
