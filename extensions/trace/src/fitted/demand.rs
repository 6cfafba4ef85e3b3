//! A program's requests and frees, in order. Numbers only.

use std::collections::{BTreeMap, HashMap};
use vrampool::SizeClasses;

/// The number of requests and frees after which further ones are not kept: 8 GiB of them, more than any
/// program needs for a representative sample. So counts of buffers fit in 32 bits.
const MOST_STEPS: usize = 1 << 30;

/// A program's requests and frees, in order. Classes are fitted to it, and rules are compared by it.
///
/// ```
/// use vrampool::SizeClasses;
/// use vrampool_trace::fitted::{self, Demand};
///
/// let mut demand = Demand::new();
/// for size in [900_000, 1_100_000] {
///     demand.allocate(size); // one after the other: never both at once
///     demand.free(size);
/// }
/// assert_eq!(demand.held(&SizeClasses::Fixed), Some((1 << 20) + (4 << 20)));
/// let classes = fitted::fit(&demand, 64);
/// assert_eq!(classes.sizes(), [1_100_288]); // so one class serves both
/// assert_eq!(demand.held(&SizeClasses::Table(classes)), Some(1_100_288));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Demand {
    /// Every requested size, in order of the first request. Steps refer to them by index.
    pub(super) sizes: Vec<Size>,
    /// Index of each size. The standard hash resists provoked collisions of sizes in files.
    places: HashMap<u64, u32>,
    pub(super) steps: Vec<Step>,
    live_bytes: u64,
    peak_requested: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) bytes: u64,
    requests: u64,
    live: u64,
}

/// A request, or a free, of one of the sizes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Step {
    pub(crate) place: u32,
    pub(crate) is_free: bool,
}

/// Requests of one class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassDemand {
    /// The class, bytes.
    pub class: u64,
    /// Number of different requested sizes.
    pub sizes: u64,
    /// Number of requests.
    pub requests: u64,
    /// Requested bytes; at most 2⁶⁴ − 1.
    pub requested_bytes: u64,
    /// The highest number of live buffers.
    pub peak_buffers: u64,
}

impl ClassDemand {
    /// Returns the bytes that a pool without caps finally holds of this class; `None` for 2⁶⁴ or more.
    #[must_use]
    pub fn held_bytes(&self) -> Option<u64> {
        self.class.checked_mul(self.peak_buffers)
    }

    /// Returns the padding of all requests in bytes; at most 2⁶⁴ − 1.
    #[must_use]
    pub fn padding_bytes(&self) -> u64 {
        self.class.saturating_mul(self.requests).saturating_sub(self.requested_bytes)
    }
}

impl Demand {
    /// Creates an empty demand.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a successful request of `bytes` bytes.
    pub fn allocate(&mut self, bytes: u64) {
        let next = self.sizes.len() as u32;
        if self.steps.len() >= MOST_STEPS {
            return;
        }
        let place = *self.places.entry(bytes).or_insert(next);
        if place == next {
            self.sizes.push(Size { bytes, requests: 0, live: 0 });
        }
        if let Some(size) = self.sizes.get_mut(place as usize) {
            size.requests += 1;
            size.live += 1;
        }
        self.steps.push(Step { place, is_free: false });
        self.live_bytes = self.live_bytes.saturating_add(bytes);
        self.peak_requested = self.peak_requested.max(self.live_bytes);
    }

    /// Adds a free of a buffer requested with `bytes` bytes. A size without a live buffer is ignored, because
    /// its request preceded this demand.
    pub fn free(&mut self, bytes: u64) {
        let place = self.places.get(&bytes).copied();
        let size = place.and_then(|place| self.sizes.get_mut(place as usize)).filter(|size| size.live > 0);
        if let (Some(place), Some(size)) = (place, size) {
            size.live -= 1;
            self.live_bytes = self.live_bytes.saturating_sub(bytes);
            self.steps.push(Step { place, is_free: true });
        }
    }

    /// Returns the number of requests.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.sizes.iter().map(|size| size.requests).sum()
    }

    /// Returns the number of different requested sizes.
    #[must_use]
    pub fn distinct_sizes(&self) -> usize {
        self.sizes.len()
    }

    /// Returns the highest number of live bytes, before rounding; at most 2⁶⁴ − 1.
    #[must_use]
    pub fn peak_requested(&self) -> u64 {
        self.peak_requested
    }

    /// Returns the requests of each class by this rule, smallest class first. Requests without a class are
    /// omitted.
    #[must_use]
    pub fn by_class(&self, classes: &SizeClasses) -> Vec<ClassDemand> {
        let rounded: Vec<Option<u64>> = self.sizes.iter().map(|size| classes.round(size.bytes)).collect();
        let mut rows: BTreeMap<u64, (ClassDemand, u64)> = BTreeMap::new();
        for (size, class) in self.sizes.iter().zip(&rounded) {
            let Some(class) = *class else { continue };
            let fresh = ClassDemand { class, sizes: 0, requests: 0, requested_bytes: 0, peak_buffers: 0 };
            let (row, _) = rows.entry(class).or_insert((fresh, 0));
            row.sizes += 1;
            row.requests += size.requests;
            let bytes = size.bytes.saturating_mul(size.requests);
            row.requested_bytes = row.requested_bytes.saturating_add(bytes);
        }
        for step in &self.steps {
            let class = rounded.get(step.place as usize).copied().flatten();
            let Some((row, live)) = class.and_then(|class| rows.get_mut(&class)) else { continue };
            match step.is_free {
                true => *live -= 1,
                false => *live += 1,
            }
            row.peak_buffers = row.peak_buffers.max(*live);
        }
        rows.into_values().map(|(row, _)| row).collect()
    }

    /// Returns the bytes that a pool by this rule finally holds, without evictions and borrowing. For each
    /// class that is the highest number of live buffers. `None` for 2⁶⁴ or more.
    #[must_use]
    pub fn held(&self, classes: &SizeClasses) -> Option<u64> {
        let mut rows = self.by_class(classes).into_iter();
        rows.try_fold(0u64, |sum, row| sum.checked_add(row.held_bytes()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted() {
        let mut demand = Demand::new();
        demand.free(100);
        demand.allocate(100);
        demand.allocate(2000);
        demand.free(100);
        demand.free(100);
        demand.allocate(3000);
        demand.allocate(100);
        assert_eq!((demand.requests(), demand.distinct_sizes(), demand.peak_requested()), (4, 3, 5100));
        let rows = demand.by_class(&SizeClasses::Fixed);
        let small = ClassDemand { class: 1024, sizes: 1, requests: 2, requested_bytes: 200, peak_buffers: 1 };
        let large =
            ClassDemand { class: 4096, sizes: 2, requests: 2, requested_bytes: 5000, peak_buffers: 2 };
        assert_eq!(rows, [small, large]);
        assert_eq!((small.padding_bytes(), large.held_bytes()), (2048 - 200, Some(8192)));
        assert_eq!(demand.held(&SizeClasses::Fixed), Some(1024 + 8192));
    }

    #[test]
    fn sizes_that_no_device_has_end_nothing() {
        let mut demand = Demand::new();
        for size in [u64::MAX, u64::MAX, 1 << 63, 0] {
            demand.allocate(size);
        }
        assert_eq!(demand.peak_requested(), u64::MAX);
        let classes: Vec<u64> =
            demand.by_class(&SizeClasses::PowerOfTwo).iter().map(|row| row.class).collect();
        assert_eq!(classes, [1, 1 << 63], "there is none for the largest");
        assert_eq!(demand.held(&SizeClasses::Exact(1 << 62)), Some((1 << 63) + (1 << 62)));
        demand.allocate(1 << 63);
        assert_eq!(demand.held(&SizeClasses::PowerOfTwo), None);
    }
}
