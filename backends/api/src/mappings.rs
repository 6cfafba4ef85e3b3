//! The mapped ranges of a reservation, for backends with virtual memory: numbers only.

use crate::BackendError;
use std::collections::BTreeMap;
use std::ops::Range;

/// The mappings of one reservation, none of which overlaps another, each with a value of the backend's.
///
/// Callers check that ranges have bytes and lie inside the reservation.
#[derive(Debug)]
pub struct Mappings<T> {
    /// By offset.
    mappings: BTreeMap<u64, Mapping<T>>,
}

#[derive(Debug)]
struct Mapping<T> {
    end: u64,
    /// Whether the reservation's own device may use it.
    accessible: bool,
    value: T,
}

impl<T> Default for Mappings<T> {
    fn default() -> Self {
        Self { mappings: BTreeMap::new() }
    }
}

impl<T> Mappings<T> {
    /// Checks that nothing is mapped in the range.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] if something is.
    pub fn check_free(&self, range: &Range<u64>) -> Result<(), BackendError> {
        match self.over(range).next() {
            None => Ok(()),
            Some(_) => Err(BackendError::invalid("range", "a part of it is mapped already")),
        }
    }

    /// Checks that the range is made of whole mappings.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] if it is not.
    pub fn check_whole(&self, range: &Range<u64>) -> Result<(), BackendError> {
        let mut within = self.mappings.range(range.clone());
        let end =
            within.try_fold(range.start, |end, (&start, mapping)| (start == end).then_some(mapping.end));
        match end == Some(range.end) {
            true => Ok(()),
            false => Err(BackendError::invalid("range", "it cuts a mapping, or a part of it is not mapped")),
        }
    }

    /// Returns the mappings that have bytes of the range, in order: where each is, and its value.
    pub fn over(&self, range: &Range<u64>) -> impl Iterator<Item = (Range<u64>, &T)> {
        self.any_over(range).map(|(start, mapping)| (start..mapping.end, &mapping.value))
    }

    fn any_over(&self, range: &Range<u64>) -> impl Iterator<Item = (u64, &Mapping<T>)> {
        let begin = range.start;
        let first = self.mappings.range(..=begin).next_back().map_or(begin, |(&start, _)| start);
        let found =
            self.mappings.range(first..range.end.max(first)).map(|(&start, mapping)| (start, mapping));
        found.filter(move |(_, mapping)| mapping.end > begin)
    }

    /// Returns what the device may use of the range, up to the first byte that it may not: parts of mappings, each as a
    /// range from the start of its mapping, with the mapping's value.
    pub fn accessible(&self, range: &Range<u64>) -> impl Iterator<Item = (Range<u64>, &T)> {
        let (mut reached, end) = (range.start, range.end);
        self.any_over(range).map_while(move |(start, mapping)| {
            let from = (start <= reached && mapping.accessible).then_some(reached)?;
            reached = mapping.end.min(end);
            Some((from - start..reached - start, &mapping.value))
        })
    }

    /// Whether the device may use all of the range.
    #[must_use]
    pub fn are_accessible(&self, range: &Range<u64>) -> bool {
        let bytes: u64 = self.accessible(range).map(|(part, _)| part.end - part.start).sum();
        bytes == range.end - range.start
    }

    /// Adds a mapping that is not accessible. The range must be free.
    pub fn insert(&mut self, range: &Range<u64>, value: T) {
        self.mappings.insert(range.start, Mapping { end: range.end, accessible: false, value });
    }

    /// The range must be made of whole mappings.
    pub fn make_accessible(&mut self, range: &Range<u64>) {
        self.mappings.range_mut(range.clone()).for_each(|(_, mapping)| mapping.accessible = true);
    }

    /// Removes mappings, and returns their values. The range must be made of whole mappings.
    pub fn remove(&mut self, range: &Range<u64>) -> Vec<T> {
        let starts: Vec<_> = self.mappings.range(range.clone()).map(|(&start, _)| start).collect();
        starts.iter().filter_map(|start| self.mappings.remove(start)).map(|mapping| mapping.value).collect()
    }

    /// Returns the values of all mappings.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.mappings.values_mut().map(|mapping| &mut mapping.value)
    }

    /// Returns the mapped ranges, with neighbours joined.
    #[must_use]
    pub fn runs(&self) -> Vec<Range<u64>> {
        let mut runs: Vec<Range<u64>> = Vec::new();
        for (&start, mapping) in &self.mappings {
            match runs.last_mut() {
                Some(last) if last.end == start => last.end = mapping.end,
                _ => runs.push(start..mapping.end),
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
        fn is_free(&self, range: &Range<usize>) -> bool {
            self.0[range.clone()].iter().all(Option::is_none)
        }

        /// The pages before the first one that is not accessible.
        fn accessible(&self, range: &Range<usize>) -> usize {
            self.0[range.clone()].iter().take_while(|page| matches!(page, Some((_, true)))).count()
        }

        /// Their values, each once.
        fn over(&self, range: &Range<usize>) -> Vec<u32> {
            let mut values: Vec<_> = self.0[range.clone()].iter().flatten().map(|page| page.0).collect();
            values.dedup();
            values
        }

        fn are_whole(&self, range: &Range<usize>) -> bool {
            let mapping = |page: usize| self.0.get(page).copied().flatten().map(|(id, _)| id);
            let cut = |at: usize| at > 0 && mapping(at).is_some() && mapping(at - 1) == mapping(at);
            range.clone().all(|page| mapping(page).is_some()) && !cut(range.start) && !cut(range.end)
        }

        fn runs(&self) -> Vec<Range<u64>> {
            let runs = self.0.chunk_by(|left, right| left.is_some() == right.is_some());
            let starts = runs.scan(0, |start, run| {
                let this = (*start as u64, run.len() as u64, run[0].is_some());
                *start += run.len();
                Some(this)
            });
            starts.filter(|run| run.2).map(|run| run.0..run.0 + run.1).collect()
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
                let bytes = range.start as u64..range.end as u64;
                let whole = twin.are_whole(&range);
                let at = format!("seed {seed}, step {step}, {range:?}, {mappings:?}");
                assert_eq!(mappings.check_free(&bytes).is_ok(), twin.is_free(&range), "{at}");
                assert_eq!(mappings.check_whole(&bytes).is_ok(), whole, "{at}");
                let accessible: u64 =
                    mappings.accessible(&bytes).map(|(part, _)| part.end - part.start).sum();
                assert_eq!(accessible, twin.accessible(&range) as u64, "{at}");
                assert_eq!(mappings.are_accessible(&bytes), accessible == range.len() as u64, "{at}");
                let over: Vec<_> = mappings.over(&bytes).map(|(_, value)| *value).collect();
                assert_eq!(over, twin.over(&range), "{at}");
                assert_eq!(mappings.runs(), twin.runs(), "{at}");
                if twin.is_free(&range) {
                    mappings.insert(&bytes, step);
                    twin.0[range].fill(Some((step, false)));
                } else if whole && random.bool() {
                    mappings.make_accessible(&bytes);
                    twin.0[range].iter_mut().flatten().for_each(|page| page.1 = true);
                } else if whole {
                    assert_eq!(mappings.remove(&bytes), over, "{at}");
                    twin.0[range].fill(None);
                }
            }
        }
    }
}
