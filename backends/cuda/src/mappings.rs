//! The mapped ranges of a reservation: numbers only.
//!
//! Callers check that ranges are not empty and lie inside the reservation.

use std::collections::BTreeMap;

/// The mappings of one reservation, none of which overlaps another.
#[derive(Debug, Default)]
pub(crate) struct Mappings {
    /// By offset.
    mappings: BTreeMap<u64, Mapping>,
}

#[derive(Debug, Clone, Copy)]
struct Mapping {
    bytes: u64,
    /// Whether the reservation's own device may use it.
    accessible: bool,
}

impl Mappings {
    /// Whether nothing is mapped in the range.
    pub(crate) fn is_free(&self, offset: u64, bytes: u64) -> bool {
        let last = self.mappings.range(..offset + bytes).next_back();
        last.is_none_or(|(&start, mapping)| start + mapping.bytes <= offset)
    }

    /// Whether the range is made of whole mappings.
    pub(crate) fn are_whole(&self, offset: u64, bytes: u64) -> bool {
        let mut within = self.mappings.range(offset..offset + bytes);
        let end =
            within.try_fold(offset, |end, (&start, mapping)| (start == end).then_some(end + mapping.bytes));
        end == Some(offset + bytes)
    }

    /// Whether the device may use all of the range.
    pub(crate) fn are_accessible(&self, offset: u64, bytes: u64) -> bool {
        let end = offset + bytes;
        let first = self.mappings.range(..=offset).next_back().map_or(offset, |(&start, _)| start);
        let mut reached = offset;
        for (&start, mapping) in self.mappings.range(first..end) {
            if start > reached || !mapping.accessible {
                return false;
            }
            reached = start + mapping.bytes;
        }
        reached >= end
    }

    /// The range must be free.
    pub(crate) fn insert(&mut self, offset: u64, bytes: u64) {
        self.mappings.insert(offset, Mapping { bytes, accessible: false });
    }

    /// The range must be made of whole mappings.
    pub(crate) fn make_accessible(&mut self, offset: u64, bytes: u64) {
        for (_, mapping) in self.mappings.range_mut(offset..offset + bytes) {
            mapping.accessible = true;
        }
    }

    /// The range must be made of whole mappings.
    pub(crate) fn remove(&mut self, offset: u64, bytes: u64) {
        while let Some((&start, _)) = self.mappings.range(offset..offset + bytes).next() {
            self.mappings.remove(&start);
        }
    }

    /// The mapped ranges, as offsets and sizes, with neighbours joined.
    pub(crate) fn runs(&self) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (&start, mapping) in &self.mappings {
            match runs.last_mut() {
                Some((offset, bytes)) if *offset + *bytes == start => *bytes += mapping.bytes,
                _ => runs.push((start, mapping.bytes)),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: usize = 12;

    /// The same, page by page: which mapping each is of, and whether it is accessible.
    #[derive(Default)]
    struct Twin([Option<(u32, bool)>; PAGES]);

    impl Twin {
        fn is_free(&self, range: &std::ops::Range<usize>) -> bool {
            self.0[range.clone()].iter().all(Option::is_none)
        }

        fn are_accessible(&self, range: &std::ops::Range<usize>) -> bool {
            self.0[range.clone()].iter().all(|page| matches!(page, Some((_, true))))
        }

        fn are_whole(&self, range: &std::ops::Range<usize>) -> bool {
            let mapping = |page: usize| self.0.get(page).copied().flatten().map(|(id, _)| id);
            let cut = |at: usize| at > 0 && mapping(at).is_some() && mapping(at - 1) == mapping(at);
            range.clone().all(|page| mapping(page).is_some()) && !cut(range.start) && !cut(range.end)
        }

        fn runs(&self) -> Vec<(u64, u64)> {
            let runs = self.0.chunk_by(|left, right| left.is_some() == right.is_some());
            let starts = runs.scan(0, |start, run| {
                let this = (*start as u64, run.len() as u64, run[0].is_some());
                *start += run.len();
                Some(this)
            });
            starts.filter(|run| run.2).map(|run| (run.0, run.1)).collect()
        }
    }

    #[test]
    fn random_work_agrees_with_a_table_of_pages() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut mappings, mut twin) = (Mappings::default(), Twin::default());
            for step in 0..200 {
                let start = random.usize(..PAGES);
                let range = start..random.usize(start + 1..=PAGES);
                let (offset, bytes) = (range.start as u64, range.len() as u64);
                let whole = twin.are_whole(&range);
                let at = format!("seed {seed}, step {step}, {range:?}, {mappings:?}");
                assert_eq!(mappings.is_free(offset, bytes), twin.is_free(&range), "{at}");
                assert_eq!(mappings.are_whole(offset, bytes), whole, "{at}");
                assert_eq!(mappings.are_accessible(offset, bytes), twin.are_accessible(&range), "{at}");
                assert_eq!(mappings.runs(), twin.runs(), "{at}");
                if twin.is_free(&range) {
                    mappings.insert(offset, bytes);
                    twin.0[range].fill(Some((step, false)));
                } else if whole && random.bool() {
                    mappings.make_accessible(offset, bytes);
                    twin.0[range].iter_mut().flatten().for_each(|page| page.1 = true);
                } else if whole {
                    mappings.remove(offset, bytes);
                    twin.0[range].fill(None);
                }
            }
        }
    }
}
