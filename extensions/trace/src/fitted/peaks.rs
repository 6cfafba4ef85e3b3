//! The peak count of live buffers for any range of sizes, exactly. Numbers only.
//!
//! A count peaks just before a free that follows a request, or at the end; only these *moments* are stored.
//! For each moment, prefix sums over sizes give the count of a range as a difference. Blocks of moments are
//! skipped if their highest counts, size by size, add up to no more than the peak found so far.

/// Number of moments in a block.
const BLOCK: usize = 64;

/// Requests (`false`) and frees (`true`) of sizes by index, smallest size first.
pub(crate) type Steps<'a> = &'a mut dyn Iterator<Item = (usize, bool)>;

#[derive(Debug)]
pub(crate) struct Peaks {
    moments: usize,
    blocks: usize,
    /// Live buffers of all sizes below the n-th, at each moment: a row for each size, and one for their sum.
    below: Vec<u32>,
    /// The same sums of the highest counts in each block.
    below_in_blocks: Vec<u32>,
}

/// The number of live buffers of a size from a moment on.
#[derive(Debug, Clone, Copy)]
struct Change {
    moment: usize,
    live: u32,
}

impl Peaks {
    /// Counts the live buffers of steps with `sizes` sizes, storing about `most_counts` counts. If there are
    /// more moments, neighbours are merged with the highest count of each size. No peak is then too low, but
    /// some may be too high.
    pub(crate) fn new(steps: Steps<'_>, sizes: usize, most_counts: usize) -> Self {
        let (changes, all) = changes(steps, sizes);
        let together = all.div_ceil((most_counts / (sizes + 1)).max(1)).max(1);
        let moments = all.div_ceil(together);
        let blocks = moments.div_ceil(BLOCK);
        let mut peaks = Self {
            moments,
            blocks,
            below: vec![0; (sizes + 1) * moments],
            below_in_blocks: vec![0; (sizes + 1) * blocks],
        };
        for (size, changes) in changes.iter().enumerate() {
            peaks.add(size, changes, together);
        }
        peaks
    }

    /// Adds the row after the n-th size's.
    fn add(&mut self, size: usize, changes: &[Change], together: usize) {
        let (below, row) = two_rows(&mut self.below, size, self.moments);
        let (in_blocks, block_row) = two_rows(&mut self.below_in_blocks, size, self.blocks);
        let mut highest = vec![0; self.blocks];
        let (mut changes, mut live) = (changes.iter().peekable(), 0);
        for (place, (count, below)) in row.iter_mut().zip(below).enumerate() {
            let first = place * together;
            if let Some(change) = changes.next_if(|change| change.moment == first) {
                live = change.live;
            }
            let mut most = live;
            while let Some(change) = changes.next_if(|change| change.moment < first + together) {
                live = change.live;
                most = most.max(live);
            }
            *count = below + most;
            let highest = &mut highest[place / BLOCK];
            *highest = most.max(*highest);
        }
        for ((count, below), highest) in block_row.iter_mut().zip(in_blocks).zip(highest) {
            *count = below + highest;
        }
    }

    /// Returns the highest number of live buffers of the sizes from `from` to `to`, both included, which is
    /// known to be at least `at_least`.
    pub(crate) fn of(&self, from: usize, to: usize, at_least: u32) -> u32 {
        let (low, high) = (row(&self.below, from, self.moments), row(&self.below, to + 1, self.moments));
        let blocks = |size| row(&self.below_in_blocks, size, self.blocks);
        let mut peak = at_least;
        for (block, (low_bound, high_bound)) in blocks(from).iter().zip(blocks(to + 1)).enumerate() {
            if high_bound - low_bound > peak {
                let moments = block * BLOCK..((block + 1) * BLOCK).min(self.moments);
                for (low, high) in low[moments.clone()].iter().zip(&high[moments]) {
                    peak = peak.max(high - low);
                }
            }
        }
        peak
    }
}

fn row(rows: &[u32], row: usize, length: usize) -> &[u32] {
    &rows[row * length..(row + 1) * length]
}

/// Returns a filled row, and the next one.
fn two_rows(rows: &mut [u32], row: usize, length: usize) -> (&[u32], &mut [u32]) {
    let (before, behind) = rows.split_at_mut((row + 1) * length);
    (&before[row * length..], &mut behind[..length])
}

/// Returns the changes of each size's count, and the number of moments.
fn changes(steps: Steps<'_>, sizes: usize) -> (Vec<Vec<Change>>, usize) {
    let mut changes: Vec<Vec<Change>> = vec![Vec::new(); sizes];
    let (mut moment, mut was_request) = (0, false);
    for (size, is_free) in steps {
        if is_free && was_request {
            moment += 1;
        }
        was_request = !is_free;
        let live = changes[size].last().map_or(0, |change| change.live);
        let live = if is_free { live.saturating_sub(1) } else { live + 1 };
        match changes[size].last_mut() {
            Some(change) if change.moment == moment => change.live = live,
            _ => changes[size].push(Change { moment, live }),
        }
    }
    (changes, moment + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SIZES: usize = 6;

    /// Requests of some sizes, and frees of live buffers.
    fn any_steps() -> impl Strategy<Value = Vec<(usize, bool)>> {
        proptest::collection::vec((0..SIZES, any::<bool>()), 0..600).prop_map(|steps| {
            let mut live = [0; SIZES];
            let mut kept = Vec::new();
            for (size, is_free) in steps {
                if is_free && live[size] == 0 {
                    continue;
                }
                live[size] += if is_free { -1 } else { 1 };
                kept.push((size, is_free));
            }
            kept
        })
    }

    fn naive(steps: &[(usize, bool)], from: usize, to: usize) -> u32 {
        let (mut live, mut peak) = (0u32, 0);
        for &(_, is_free) in steps.iter().filter(|(size, _)| (from..=to).contains(size)) {
            live = if is_free { live - 1 } else { live + 1 };
            peak = peak.max(live);
        }
        peak
    }

    proptest! {
        #[test]
        fn every_peak_is_what_counting_finds(steps in any_steps(), most in 1usize..4000) {
            let exact = Peaks::new(&mut steps.iter().copied(), SIZES, usize::MAX);
            let rough = Peaks::new(&mut steps.iter().copied(), SIZES, most);
            prop_assert!(rough.below.len() <= most.max(2 * SIZES + 2));
            for from in 0..SIZES {
                let mut before = 0;
                for to in from..SIZES {
                    let peak = exact.of(from, to, before);
                    prop_assert_eq!(peak, naive(&steps, from, to));
                    prop_assert!(rough.of(from, to, 0) >= peak);
                    before = peak;
                }
                prop_assert_eq!(rough.of(from, from, 0), exact.of(from, from, 0), "of one size nothing is lost");
            }
        }
    }
}
