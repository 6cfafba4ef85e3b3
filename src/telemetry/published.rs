//! The pools or brokers that are published, and the final counts of those that were dropped.

use super::sample::Figures;
use super::series::Series;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::any::Any;
use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

/// One publication at a time, whoever publishes: nothing older comes behind what is newer, and nobody who
/// only looks at a pool or a broker is taken for one who has it.
pub(super) static TURN: Mutex<()> = Mutex::new(());

/// What goes with the last handle to a pool or a broker, when it is one who publishes that has it.
pub(super) type Closing = Box<dyn Any + Send>;

/// What is remembered of owners that are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Keep {
    /// How often the last figures of each are told.
    pub(super) times: u32,
    /// How many are remembered after that. The next owner of their series counts on from there.
    pub(super) most: usize,
}

impl Keep {
    /// Forgets the oldest of those that were told, a quarter of them at a time.
    fn forget<F>(self, gone: &mut FxHashMap<Series, Gone<F>>) {
        if gone.len() <= self.most {
            return;
        }
        let told = gone.values().filter(|gone| gone.times >= self.times);
        let mut numbers: Vec<u64> = told.map(|gone| gone.number).collect();
        numbers.sort_unstable_by_key(|&number| Reverse(number));
        if let Some(&newest_forgotten) = numbers.get(self.most - self.most / 4) {
            gone.retain(|_, gone| gone.times < self.times || gone.number > newest_forgotten);
        }
    }
}

/// An owner of a series, watched without keeping it alive.
pub(super) trait Watch<F>: Send {
    /// Whoever calls it has the turn.
    fn observe(&mut self) -> Observed<F>;

    /// Whether somebody has the owner. Whoever calls it has the turn.
    fn is_there(&self) -> bool;

    /// Where the owner is in memory, which tells it from all others.
    fn place(&self) -> usize;
}

pub(super) enum Observed<F> {
    /// Its figures, and the owner itself, where all others who had it dropped it meanwhile.
    There(F, Option<Closing>),
    /// It is being dropped on another thread.
    Ending,
    /// It is gone; with its last figures, unless taking them failed.
    Gone(Option<F>),
}

/// All that one publisher or exporter publishes of one type.
pub(super) struct Published<F> {
    keep: Keep,
    listed: Arc<Mutex<Listed<F>>>,
}

struct Listed<F> {
    owners: Vec<Owner<F>>,
    gone: FxHashMap<Series, Gone<F>>,
    /// How many were ever put there.
    ended: u64,
}

struct Owner<F> {
    series: Series,
    watch: Box<dyn Watch<F>>,
    /// What an earlier owner of the series had counted.
    before: Option<F>,
    /// What was told last.
    told: Option<F>,
}

struct Gone<F> {
    figures: F,
    /// Its place among all that ended.
    number: u64,
    /// How often they were told.
    times: u32,
}

impl<F> Clone for Published<F> {
    fn clone(&self) -> Self {
        Self { keep: self.keep, listed: Arc::clone(&self.listed) }
    }
}

impl<F> fmt::Debug for Published<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Published").field("keep", &self.keep).finish_non_exhaustive()
    }
}

impl<F: Figures> Published<F> {
    pub(super) fn new(keep: Keep) -> Self {
        let listed = Listed { owners: Vec::new(), gone: FxHashMap::default(), ended: 0 };
        Self { keep, listed: Arc::new(Mutex::new(listed)) }
    }

    /// Publishes an owner from now on, as the first of its series that nobody else has. `false` when it is
    /// published already.
    pub(super) fn add(&self, own: &Series, watch: impl Watch<F> + 'static) -> bool {
        let _turn = TURN.lock();
        let mut listed = self.listed.lock();
        let mut number = 1;
        let (series, before) = loop {
            let series = own.numbered(number);
            let Some(index) = listed.owners.iter().position(|other| other.series == series) else {
                let before = listed.gone.remove(&series).map(|gone| gone.figures);
                break (series, before);
            };
            let other = &mut listed.owners[index];
            if other.watch.is_there() && other.watch.place() == watch.place() {
                return false;
            }
            let last = match other.watch.is_there() {
                true => Observed::Ending,
                false => other.watch.observe(),
            };
            let Observed::Gone(last) = last else {
                number += 1;
                continue;
            };
            let other = listed.owners.swap_remove(index);
            break (series, other.last(last));
        };
        listed.owners.push(Owner { series, watch: Box::new(watch), before, told: None });
        true
    }

    /// Tells the figures of all owners. What it returns is to be dropped without any lock: memory goes back
    /// to devices then, and hooks are told.
    pub(super) fn tell(&self, to: &mut dyn FnMut(&Series, &F)) -> Vec<Closing> {
        // Before the locks, so that these are dropped outside of them whatever a recorder does.
        let mut closing = Vec::new();
        let _turn = TURN.lock();
        let mut listed = self.listed.lock();
        let Listed { owners, gone, ended } = &mut *listed;
        let mut index = 0;
        while let Some(owner) = owners.get_mut(index) {
            match owner.watch.observe() {
                Observed::There(figures, last) => {
                    closing.extend(last);
                    let figures = owner.counting_on(&figures);
                    to(&owner.series, &figures);
                    owner.told = Some(figures);
                    index += 1;
                }
                Observed::Ending => {
                    if let Some(told) = &owner.told {
                        to(&owner.series, told);
                    }
                    index += 1;
                }
                Observed::Gone(last) => {
                    let owner = owners.swap_remove(index);
                    let series = owner.series.clone();
                    if let Some(last) = owner.last(last) {
                        *ended += 1;
                        gone.insert(series, Gone { figures: last.closed(), number: *ended, times: 0 });
                    }
                }
            }
        }
        for (series, gone) in gone.iter_mut().filter(|(_, gone)| gone.times < self.keep.times) {
            to(series, &gone.figures);
            gone.times += 1;
        }
        self.keep.forget(gone);
        closing
    }
}

impl<F: Figures> Owner<F> {
    fn counting_on(&self, figures: &F) -> F {
        match &self.before {
            Some(before) => figures.counting_on(before),
            None => figures.clone(),
        }
    }

    /// What a series ends with whose owner had these last figures, if it had any.
    fn last(self, figures: Option<F>) -> Option<F> {
        figures.map(|figures| self.counting_on(&figures)).or(self.told).or(self.before)
    }
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use super::*;
    use crate::Pool;
    use crate::broker::Broker;
    use crate::host::HostDevice;
    use crate::telemetry::sample::Sample;
    use std::sync::OnceLock;

    #[derive(Debug, Clone, PartialEq)]
    struct Count {
        count: u64,
        held: u64,
    }

    impl Figures for Count {
        fn counting_on(&self, before: &Self) -> Self {
            Self { count: self.count + before.count, ..*self }
        }

        fn closed(&self) -> Self {
            Self { held: 0, ..*self }
        }

        fn samples(&self, _: &mut dyn FnMut(Sample<'_>)) {}
    }

    /// What an owner does in each round.
    struct Course(Vec<Observed<Count>>, usize);

    impl Watch<Count> for Course {
        fn observe(&mut self) -> Observed<Count> {
            if self.0.is_empty() { Observed::Gone(None) } else { self.0.remove(0) }
        }

        fn is_there(&self) -> bool {
            !matches!(self.0.first(), None | Some(Observed::Gone(_)))
        }

        fn place(&self) -> usize {
            self.1
        }
    }

    fn there(count: u64) -> Observed<Count> {
        Observed::There(Count { count, held: 7 }, None)
    }

    fn gone(count: u64) -> Observed<Count> {
        Observed::Gone(Some(Count { count, held: 7 }))
    }

    fn round(published: &Published<Count>) -> Vec<(String, u64, u64)> {
        let mut told = Vec::new();
        let closing = published.tell(&mut |series, figures| {
            told.push((series.labels()[0].1.to_owned(), figures.count, figures.held));
        });
        assert!(closing.is_empty());
        told.sort();
        told
    }

    const KEEP: Keep = Keep { times: 1, most: 100 };

    /// All on one device, whose label they have.
    fn series(name: &str) -> Series {
        static DEVICE: OnceLock<HostDevice> = OnceLock::new();
        let pool = Pool::builder(DEVICE.get_or_init(HostDevice::new)).name(name).build().expect("a pool");
        Series::of_pool(&pool)
    }

    #[test]
    fn last_figures_are_told_as_often_as_they_are_kept() {
        for times in [1, 2] {
            let published = Published::new(Keep { times, most: 0 });
            assert!(published.add(&series("a"), Course(vec![there(1), Observed::Ending, gone(5)], 1)));
            assert_eq!(round(&published), [("a".into(), 1, 7)]);
            assert_eq!(
                round(&published),
                [("a".into(), 1, 7)],
                "what was told last, while the end is under way"
            );
            for _ in 0..times {
                assert_eq!(round(&published), [("a".into(), 5, 0)]);
            }
            assert_eq!(round(&published), []);
            // An owner without last figures: those that were told last.
            assert!(published.add(&series("b"), Course(vec![there(3), Observed::Gone(None)], 2)));
            assert_eq!(round(&published), [("b".into(), 3, 7)]);
            assert_eq!(round(&published), [("b".into(), 3, 0)]);
        }
    }

    #[test]
    fn an_owner_that_nothing_is_known_of_leaves_what_was_counted_before_it() {
        let published = Published::new(KEEP);
        assert!(published.add(&series("a"), Course(vec![gone(5)], 1)));
        assert!(published.add(&series("a"), Course(vec![Observed::Gone(None)], 2)));
        assert!(published.add(&series("a"), Course(vec![Observed::Gone(None)], 3)));
        assert_eq!(round(&published), [("a".into(), 5, 0)]);
        assert!(published.add(&series("a"), Course(vec![there(1)], 4)));
        assert_eq!(round(&published), [("a".into(), 6, 7)]);
    }

    #[test]
    fn the_next_of_a_series_counts_on() {
        let published = Published::new(KEEP);
        assert!(published.add(&series("a"), Course(vec![gone(5)], 1)));
        assert!(published.add(&series("a"), Course(vec![there(2), gone(3)], 2)), "nobody has the one before");
        assert_eq!(round(&published), [("a".into(), 7, 7)]);
        assert_eq!(round(&published), [("a".into(), 8, 0)]);
        assert!(published.add(&series("a"), Course(vec![there(1)], 3)));
        assert_eq!(round(&published), [("a".into(), 9, 7)]);
    }

    #[test]
    fn an_owner_that_is_ending_keeps_its_name() {
        let published = Published::new(KEEP);
        assert!(published.add(&series("a"), Course(vec![Observed::Ending, Observed::Ending], 1)));
        assert!(published.add(&series("a"), Course(vec![there(1), there(1)], 2)));
        assert!(!published.add(&series("a"), Course(vec![], 2)), "it is published");
        assert_eq!(round(&published), [("a#2".into(), 1, 7)]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let published = Published::new(KEEP);
        for number in 0..3 * KEEP.most {
            let of_its_own = series("a").numbered(number as u64 + 2);
            assert!(published.add(&of_its_own, Course(vec![gone(1)], number)));
            assert_eq!(round(&published).len(), 1);
            assert!(published.listed.lock().gone.len() <= KEEP.most);
            // The last ones are among them, however many came before.
            assert!(published.listed.lock().gone.len() >= (number + 1).min(KEEP.most / 2));
            assert!(published.listed.lock().gone.contains_key(&of_its_own));
        }
    }

    #[test]
    fn a_pool_and_a_broker_of_one_name_are_apart() {
        let device = HostDevice::new();
        let pool = Pool::builder(&device).name("same").build().expect("a pool");
        let broker = Broker::builder(&device).name("same").build().expect("a broker");
        assert_ne!(Series::of_pool(&pool), Series::of_broker(&broker));
    }
}
