//! The best set of size classes, by dynamic programming. Numbers only.
//!
//! A pool without evictions holds, of each class, the peak count of buffers that were live at once. The cost
//! of a class depends only on the range of sizes that it serves, and the cost of a set is the sum over its
//! ranges. The best set whose largest class is *s* is therefore *s* and the best set below its range. Sizes
//! too far below *s* cost what their general classes cost.

use super::demand::Demand;
use super::peaks::Peaks;
use crate::error::bounds::MAX_CLASSES;
use std::sync::LazyLock;
use vrampool::{SizeClasses, SizeTable};

/// The unit of fitted sizes in bytes: the alignment of device allocators.
const UNIT: u64 = 512;

/// Limits on the work of a fit.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// The most candidate sizes. With more sizes, those in a part of a power of two count as its largest.
    sizes: usize,
    /// The most stored counts of live buffers, 4 bytes each.
    counts: usize,
}

/// At most 128 MiB, and some seconds.
const LIMITS: Limits = Limits { sizes: 1024, counts: 1 << 25 };

/// Bytes held by a choice of classes: a sum of counts times sizes.
type Cost = u128;

/// Chooses at most `most_classes` (and [`MAX_CLASSES`](super::MAX_CLASSES)) classes that minimise the
/// memory held.
///
/// The result is the minimum of [`Demand::held`] over all sets of requested sizes, each rounded up to 512
/// bytes, without caps and borrowing. It therefore holds no more than any other rule from 512 bytes on,
/// if it may use as many classes.
///
/// It is exact within these limits:
///
/// * up to 1024 different sizes; of more, neighbouring sizes are first merged;
/// * up to 2²⁵ for the product of sizes and changes from requests to frees; above, buffers live at
///   neighbouring changes count as live at once.
///
/// It takes up to 128 MiB of memory. A recording of 180,000 events of 570 sizes takes less than a second,
/// the worst case ten.
///
/// ```
/// use vrampool_trace::fitted::{self, Demand};
/// let mut demand = Demand::new();
/// for size in [1000, 30_000, 38_000] {
///     demand.allocate(size); // all live at once
/// }
/// assert_eq!(fitted::fit(&demand, 64).sizes(), [30_208, 38_400]); // 1024 is a class anyway
/// assert!(fitted::fit(&demand, 0).sizes().is_empty());
/// ```
#[must_use]
pub fn fit(demand: &Demand, most_classes: usize) -> SizeTable {
    SizeTable::new(choose(demand, most_classes.min(MAX_CLASSES), LIMITS))
}

/// Returns the class of a request without a fitted size; `None` if it would be 2⁶⁴ or more.
fn general(bytes: u64) -> Option<u64> {
    static GENERAL: LazyLock<SizeClasses> = LazyLock::new(|| SizeClasses::Table(SizeTable::new([])));
    GENERAL.round(bytes)
}

/// Whether a fitted size may serve requests whose class without it is `general`.
fn reaches(size: u64, general: u64) -> bool {
    size <= general.saturating_mul(SizeTable::REACH)
}

fn choose(demand: &Demand, most_classes: usize, limits: Limits) -> Vec<u64> {
    // Sizes without a general class cannot be served.
    let unit = |bytes: u64| general(bytes).and_then(|_| bytes.max(1).checked_next_multiple_of(UNIT));
    let sizes = candidates(demand.sizes.iter().filter_map(|size| unit(size.bytes)).collect(), limits.sizes);
    let places: Vec<Option<usize>> = demand
        .sizes
        .iter()
        .map(|size| unit(size.bytes).map(|bytes| sizes.partition_point(|&candidate| candidate < bytes)))
        .collect();
    let mut steps = demand.steps.iter().filter_map(|step| Some((places[step.place as usize]?, step.is_free)));
    let peaks = Peaks::new(&mut steps, sizes.len(), limits.counts);
    Costs::new(&sizes, &peaks).best(most_classes).into_iter().map(|place| sizes[place]).collect()
}

/// Returns at most `most` of the sizes, smallest first. Of the sizes in a cell of a grid, which gets coarser,
/// the largest is kept. The cells lie within every other rule's classes.
fn candidates(mut sizes: Vec<u64>, most: usize) -> Vec<u64> {
    sizes.sort_unstable();
    sizes.dedup();
    let mut bits = 16;
    while sizes.len() > most && bits >= 3 {
        // The power of two below it, and the next bits.
        let cell = |size: u64| {
            let doubling = (size - 1).checked_ilog2().unwrap_or(0);
            (doubling, (size - 1) >> doubling.saturating_sub(bits))
        };
        sizes.reverse();
        sizes.dedup_by_key(|size| cell(*size));
        sizes.reverse();
        bits -= 1;
    }
    sizes
}

/// Costs of ranges of sizes. A place is an index of a size, smallest first.
struct Costs {
    /// For each place, the lowest size that a class of its size may serve.
    lowest: Vec<usize>,
    /// For each place, the costs of a class of its size by the place from which it serves.
    classes: Vec<Vec<Cost>>,
    /// For each place, and the end, the cost of all sizes from it on without classes.
    general: Vec<Cost>,
}

impl Costs {
    fn new(sizes: &[u64], peaks: &Peaks) -> Self {
        let generals: Vec<u64> = sizes.iter().map(|&size| general(size).unwrap_or(u64::MAX)).collect();
        let lowest: Vec<usize> =
            sizes.iter().map(|&size| generals.partition_point(|&general| !reaches(size, general))).collect();
        let mut buffers = Vec::with_capacity(sizes.len());
        for (place, &lowest) in lowest.iter().enumerate() {
            let mut known = 0;
            let mut counts: Vec<u32> = (lowest..=place)
                .rev()
                .map(|from| {
                    known = peaks.of(from, place, known);
                    known
                })
                .collect();
            counts.reverse();
            buffers.push(counts);
        }
        let cost = |count: u32, bytes: u64| Cost::from(count) * Cost::from(bytes);
        let mut general = vec![0; sizes.len() + 1];
        for place in (0..sizes.len()).rev() {
            // Larger sizes with the same general class are included.
            let behind = generals.partition_point(|&general| general <= generals[place]);
            let last = behind - 1;
            general[place] = cost(buffers[last][place - lowest[last]], generals[place]) + general[behind];
        }
        let of_size =
            |(counts, &size): (Vec<u32>, &u64)| counts.into_iter().map(|count| cost(count, size)).collect();
        Self { lowest, classes: buffers.into_iter().zip(sizes).map(of_size).collect(), general }
    }

    /// Returns the places of at most `most_classes` classes with the lowest total cost, lowest place first.
    fn best(&self, most_classes: usize) -> Vec<usize> {
        let sizes = self.classes.len();
        // For each end, the cost of `count` classes for the sizes below it, the last class being the size
        // before it. `befores` stores the end of the previous class.
        let mut below = vec![None; sizes + 1];
        below[0] = Some(0);
        let mut befores: Vec<Vec<usize>> = Vec::new();
        let (mut least, mut best) = (self.general[0], (0, 0));
        for count in 1..=most_classes.min(sizes) {
            let (next, before) = self.one_more(&below);
            below = next;
            befores.push(before);
            for (end, cost) in below.iter().enumerate() {
                let Some(whole) = cost.map(|cost| cost + self.general[end]) else { continue };
                if whole < least {
                    (least, best) = (whole, (count, end));
                }
            }
        }
        let (count, mut end) = best;
        let mut chosen = Vec::with_capacity(count);
        for before in befores[..count].iter().rev() {
            chosen.push(end - 1);
            end = before[end];
        }
        chosen.reverse();
        chosen
    }

    /// Returns the costs with one class more than `below`, and the start of each last range.
    fn one_more(&self, below: &[Option<Cost>]) -> (Vec<Option<Cost>>, Vec<usize>) {
        let sizes = self.classes.len();
        let (mut next, mut before) = (vec![None; sizes + 1], vec![0; sizes + 1]);
        // The best start so far below the class's reach, from which sizes get general classes.
        let (mut far, mut seen): (Option<(Cost, usize)>, usize) = (None, 0);
        for (place, classes) in self.classes.iter().enumerate() {
            let lowest = self.lowest[place];
            for (start, cost) in (seen..lowest).zip(&below[seen..lowest]) {
                let cost = cost.map(|cost| (cost + self.general[start], start));
                far = [far, cost].into_iter().flatten().min();
            }
            seen = lowest;
            let near =
                (lowest..).zip(classes).filter_map(|(start, class)| Some((below[start]? + class, start)));
            let reached = far.map(|(cost, start)| (cost - self.general[lowest] + classes[0], start));
            if let Some((cost, start)) = near.chain(reached).min() {
                (next[place + 1], before[place + 1]) = (Some(cost), start);
            }
        }
        (next, before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn held(demand: &Demand, sizes: Vec<u64>) -> u64 {
        demand.held(&SizeClasses::Table(SizeTable::new(sizes))).expect("little")
    }

    /// Frees of live buffers, of sizes of every magnitude and close together.
    fn any_demand(sizes: usize, steps: usize) -> impl Strategy<Value = Demand> {
        let magnitude =
            (0u32..24, 0u64..1 << 20).prop_map(|(shift, bits)| (1 << shift) + (bits >> (20 - shift.min(20))));
        let size = prop_oneof![3 => magnitude, 1 => 0u64..20_000];
        let sizes = proptest::collection::vec(size, 1..=sizes);
        (sizes, proptest::collection::vec((any::<prop::sample::Index>(), 0..5u8), 0..steps)).prop_map(
            |(sizes, steps)| {
                let mut demand = Demand::new();
                for (place, what) in steps {
                    let size = sizes[place.index(sizes.len())];
                    // Frees are more frequent than requests, so that not everything is live at once.
                    if what < 3 { demand.free(size) } else { demand.allocate(size) }
                }
                demand
            },
        )
    }

    #[test]
    fn no_sizes_and_unknown_sizes_are_no_harm() {
        let mut demand = Demand::new();
        assert!(choose(&demand, 64, LIMITS).is_empty());
        for size in [0, u64::MAX, (15 << 60) + 1, 15 << 60, 1 << 63] {
            demand.allocate(size);
        }
        let chosen = choose(&demand, 64, LIMITS);
        assert!(chosen.iter().all(|&size| [512, 1 << 63, 15 << 60].contains(&size)), "{chosen:?}");
        assert!(demand.by_class(&SizeClasses::Table(SizeTable::new(chosen))).len() == 3);
    }

    #[test]
    fn thousands_of_sizes_are_put_together_and_still_served_well() {
        let mut demand = Demand::new();
        for step in 0..30_000u64 {
            let size = 1 + step * 7919 % 50_000_000;
            demand.allocate(size);
            if step % 3 > 0 {
                demand.free(size);
            }
        }
        let limits = Limits { sizes: 300, counts: 300_000 };
        let sizes: Vec<u64> =
            (0..30_000u64).map(|step| (1 + step * 7919 % 50_000_000).next_multiple_of(UNIT)).collect();
        let few = candidates(sizes.clone(), limits.sizes);
        assert!(few.len() <= limits.sizes && few.last() == sizes.iter().max());
        let chosen = choose(&demand, 64, limits);
        assert!(chosen.len() <= 64);
        let fixed = demand.held(&SizeClasses::Fixed).expect("little");
        assert!(held(&demand, chosen) < fixed);
    }

    proptest! {
        /// The minimum over all sets of the sizes, by the pool's own rounding.
        #[test]
        fn no_choice_holds_less(demand in any_demand(9, 60), most in 0usize..5) {
            let unit = |size: u64| size.max(1).next_multiple_of(UNIT);
            let sizes: BTreeSet<u64> = demand.sizes.iter().map(|size| unit(size.bytes)).collect();
            let sizes: Vec<u64> = sizes.into_iter().collect();
            let least = (0u32..1 << sizes.len())
                .filter(|set| set.count_ones() as usize <= most)
                .map(|set| (0..sizes.len()).filter(|place| set >> place & 1 == 1).map(|place| sizes[place]).collect())
                .map(|set| held(&demand, set))
                .min();
            let chosen = choose(&demand, most, LIMITS);
            prop_assert!(chosen.len() <= most);
            prop_assert_eq!(Some(held(&demand, chosen)), least);
        }

        #[test]
        fn no_other_rule_holds_less(demand in any_demand(60, 400)) {
            let fitted = held(&demand, choose(&demand, MAX_CLASSES, LIMITS));
            let from_a_unit = SizeClasses::Geometric { per_doubling: 8, from: UNIT };
            for rule in [SizeClasses::Fixed, SizeClasses::PowerOfTwo, SizeClasses::GEOMETRIC, SizeClasses::EXACT, from_a_unit] {
                // Powers of two and eighths have classes below 512 bytes, and between its multiples.
                let slack = match rule {
                    SizeClasses::PowerOfTwo => demand.by_class(&rule).iter().filter(|row| row.class < UNIT).map(|row| row.peak_buffers * UNIT).sum(),
                    SizeClasses::Geometric { .. } => demand.by_class(&rule).iter().filter(|row| row.class % UNIT > 0).map(|row| row.peak_buffers * UNIT).sum(),
                    _ => 0,
                };
                prop_assert!(fitted <= demand.held(&rule).expect("little") + slack, "{}", rule);
            }
        }

        #[test]
        fn a_rough_fit_serves_everything(demand in any_demand(60, 400), sizes in 1usize..40, counts in 1usize..4000) {
            let chosen = choose(&demand, 16, Limits { sizes, counts });
            prop_assert!(chosen.len() <= 16 && chosen.windows(2).all(|two| two[0] < two[1]));
            let rows = demand.by_class(&SizeClasses::Table(SizeTable::new(chosen)));
            prop_assert_eq!(rows.iter().map(|row| row.requests).sum::<u64>(), demand.requests());
        }
    }
}
