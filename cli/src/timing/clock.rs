//! Time measurement: warm-up, samples and figures.

use serde::Serialize;
use std::ops::Range;
use std::time::Instant;

/// How often each thing is done.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    warm_up: usize,
    samples: usize,
}

impl Effort {
    /// cuArena's.
    pub(crate) const FULL: Self = Self { warm_up: 50, samples: 500 };
    /// Enough to see that it runs.
    pub(crate) const QUICK: Self = Self { warm_up: 2, samples: 5 };

    /// One round for each sample, those that warm up first.
    pub(crate) fn rounds(self) -> Range<usize> {
        0..self.warm_up + self.samples
    }

    /// Times `sample`, which does `pairs` pairs.
    pub(crate) fn time<E>(
        self,
        pairs: usize,
        mut sample: impl FnMut() -> Result<(), E>,
    ) -> Result<Figures, E> {
        let mut samples = Samples::new(self, pairs);
        for _ in self.rounds() {
            samples.time(&mut sample)?;
        }
        Ok(samples.figures())
    }
}

/// The times taken so far. The first ones, which warm up, do not count.
#[derive(Debug)]
pub(crate) struct Samples {
    warm_up: usize,
    pairs: f64,
    times: Vec<f64>,
}

impl Samples {
    /// For samples of `pairs` pairs each.
    pub(crate) fn new(effort: Effort, pairs: usize) -> Self {
        // The room for all, so that no sample makes it.
        let times = Vec::with_capacity(effort.rounds().len());
        Self { warm_up: effort.warm_up, pairs: pairs as f64, times }
    }

    /// Takes one. What `sample` answers is dropped by the caller, outside it.
    pub(crate) fn time<T>(&mut self, sample: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let answer = sample();
        let took = began.elapsed();
        self.times.push(took.as_nanos() as f64 / self.pairs);
        answer
    }

    /// Each with what `other` took the same time around.
    pub(crate) fn plus(mut self, other: Self) -> Self {
        self.times.iter_mut().zip(other.times).for_each(|(time, more)| *time += more);
        self
    }

    /// Nanoseconds for each pair. All zero without samples.
    pub(crate) fn figures(self) -> Figures {
        Self::merged(vec![self])
    }

    /// Nanoseconds for each pair, of the samples of several threads.
    pub(crate) fn merged(threads: Vec<Self>) -> Figures {
        let timed = threads.into_iter().flat_map(|thread| thread.times.into_iter().skip(thread.warm_up));
        let mut times: Vec<f64> = timed.collect();
        times.sort_unstable_by(f64::total_cmp);
        let at = |index: usize| times.get(index).copied().unwrap_or_default();
        Figures {
            ns_mean: times.iter().sum::<f64>() / times.len().max(1) as f64,
            ns_median: at(times.len() / 2),
            ns_min: at(0),
            ns_max: at(times.len().saturating_sub(1)),
        }
    }
}

/// Nanoseconds over all samples. The median is the upper one. The names and their order are those of the JSON.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Figures {
    pub(crate) ns_mean: f64,
    pub(crate) ns_median: f64,
    pub(crate) ns_min: f64,
    pub(crate) ns_max: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_leave_out_the_warm_up_and_the_median_is_the_upper_one() {
        let effort = Effort { warm_up: 1, samples: 4 };
        let samples = Samples { times: vec![900.0, 4.0, 1.0, 8.0, 3.0], ..Samples::new(effort, 1) };
        let figures = |figures: Figures| [figures.ns_mean, figures.ns_median, figures.ns_min, figures.ns_max];
        assert_eq!(figures(samples.figures()), [4.0, 4.0, 1.0, 8.0]);
        assert_eq!(figures(Samples::new(effort, 1).figures()), [0.0; 4]);
    }

    #[test]
    fn every_round_is_one_sample_of_so_many_pairs() {
        let mut calls = 0;
        let pause = std::time::Duration::from_millis(2);
        let sample = || {
            calls += 1;
            std::thread::sleep(pause);
            Ok::<(), ()>(())
        };
        let figures = Effort::QUICK.time(2, sample).expect("nothing fails");
        assert_eq!(calls, Effort::QUICK.rounds().len());
        assert!(
            figures.ns_min >= 1e6
                && figures.ns_min <= figures.ns_median
                && figures.ns_median <= figures.ns_max
        );
    }
}
