//! Which bin a size belongs to, and which bins hold something. Numbers only, and not even blocks.
//!
//! A row is a power of two and has 256 bins of equal width, so a bin's sizes differ by less than 0.4 %. Sizes below 512
//! bytes have a bin each. From there to 256 GiB the rows are cuArena's bins; above, where cuArena has one bin for all, the
//! rows go on to 2⁶⁴.
//!
//! ```text
//! row   0         1         2         3          …  30               …  56
//!       0..256    256..512  512..1K   1..2 KiB      128..256 GiB        2⁶³..2⁶⁴
//!       1 B       1 B       2 B       4 B           512 MiB a bin
//! ```
//!
//! That many because then a bin seldom holds more than a few sizes: with 64 to a row the search inside a bin takes more
//! than the finer table costs in cache misses.

/// Bins to a row, as a power of two.
const WIDTH: u32 = 8;

/// Bins in all: the rows of sizes of up to 64 bits.
pub(super) const BINS: usize = (65 - WIDTH as usize) << WIDTH;

/// Machine words with a bit for each bin, and with a bit for each of those.
const WORDS: usize = BINS.div_ceil(64);
const GROUPS: usize = WORDS.div_ceil(64);

/// The bin of a size, and how many of the size's low bits the bin does not tell.
#[inline]
pub(super) fn bin_of(bytes: u64) -> (usize, u32) {
    // The lowest two rows count single bytes.
    let untold = (bytes | 1 << WIDTH).ilog2() - WIDTH;
    (((u64::from(untold) << WIDTH) + (bytes >> untold)) as usize, untold)
}

/// Which bins hold something: a bit for each bin, and a bit for each word of bins that has one.
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

    #[inline]
    pub(super) fn clear(&mut self, bin: usize) {
        let word = bin >> 6;
        self.words[word] &= !(1 << (bin & 63));
        if self.words[word] == 0 {
            self.groups[word >> 6] &= !(1 << (word & 63));
        }
    }

    /// The first occupied bin at or after `bin`.
    #[inline]
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

    /// The last occupied bin.
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
    fn the_rows_are_cuarenas_bins() {
        let row = |bytes: u64| bin_of(bytes).0 >> WIDTH;
        for shift in 9..38 {
            assert_eq!(row(1 << shift), shift - 7, "a row starts at 2^{shift}");
            assert_eq!(row((1 << (shift + 1)) - 1), shift - 7, "and ends before the next power of two");
        }
        assert_eq!((row(511), row(1 << 38)), (1, 31));
        assert_eq!(bin_of(u64::MAX), (BINS - 1, 55));
    }

    /// Sizes of every magnitude.
    fn any_bytes() -> impl Strategy<Value = u64> {
        (0u32..64, any::<u64>()).prop_map(|(shift, bits)| bits >> shift)
    }

    proptest! {
        #[test]
        fn bins_keep_order_and_tell_all_but_the_low_bits(one in any_bytes(), two in any_bytes()) {
            let (small, large) = (one.min(two), one.max(two));
            let ((low, untold), (high, _)) = (bin_of(small), bin_of(large));
            prop_assert!(low <= high && high < BINS);
            prop_assert_eq!(low == high, small >> untold == large >> untold, "a bin is one prefix");
            prop_assert!(small < 512 || 1u64 << untold <= small / 256, "a bin is a 256th of its sizes wide");
        }

        #[test]
        fn bitmaps_are_a_sorted_set(steps in prop::collection::vec((0..BINS, any::<bool>()), 0..200), from in 0..BINS + 1) {
            let (mut occupied, mut set) = (Occupied::NONE, BTreeSet::new());
            for (bin, fills) in steps {
                if fills {
                    occupied.set(bin);
                    set.insert(bin);
                } else {
                    occupied.clear(bin);
                    set.remove(&bin);
                }
            }
            prop_assert_eq!(occupied.first_from(from), set.range(from..).next().copied());
            prop_assert_eq!(occupied.last(), set.last().copied());
        }
    }
}
