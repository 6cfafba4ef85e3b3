//! The pools or other owners that are published, and the final counts of those that were dropped.

use super::owner::{Observed, Owner, Watch};
use super::owner_figures::{OwnerFigures, Sample};
use super::series::Series;
use crate::error::Error;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::fmt;
use std::sync::Arc;

/// Held by a publication, so that figures are published in order, and a publisher's temporary handle of an owner is not
/// taken for one of the program's.
static TURN: Mutex<()> = Mutex::new(());

/// How long and how many owners that have ended are remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Keep {
    /// How often the last figures of each are published.
    pub(super) times: u32,
    /// How many are remembered after that. The next owner of their series counts on from there.
    pub(super) most: usize,
}

impl Keep {
    /// Forgets the oldest owners whose last figures were published `times` times, a quarter of them at a time.
    fn forget(self, ended: &mut FxHashMap<Series, Ended>) {
        if ended.len() <= self.most {
            return;
        }
        let published = ended.values().filter(|ended| ended.times >= self.times);
        let mut numbers: Vec<u64> = published.map(|ended| ended.number).collect();
        numbers.sort_unstable_by_key(|&number| Reverse(number));
        if let Some(&newest_forgotten) = numbers.get(self.most - self.most / 4) {
            ended.retain(|_, ended| ended.times < self.times || ended.number > newest_forgotten);
        }
    }
}

/// All that one publisher or exporter publishes.
#[derive(Clone)]
pub(super) struct Published {
    keep: Keep,
    listed: Arc<Mutex<Listed>>,
}

struct Listed {
    owners: Vec<Listing>,
    ended: FxHashMap<Series, Ended>,
    /// How many were ever put there.
    count: u64,
}

struct Listing {
    series: Series,
    watch: Box<dyn Watch>,
    /// The final figures of an earlier owner of the series.
    before: Option<OwnerFigures>,
    /// The figures published last.
    published: Option<OwnerFigures>,
}

struct Ended {
    figures: OwnerFigures,
    /// The figures published last; some of them are unknown now.
    published: Option<OwnerFigures>,
    /// Its place among all that ended.
    number: u64,
    /// How often the figures were published.
    times: u32,
}

impl fmt::Debug for Published {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Published").field("keep", &self.keep).finish_non_exhaustive()
    }
}

impl Published {
    pub(super) fn new(keep: Keep) -> Self {
        let listed = Listed { owners: Vec::new(), ended: FxHashMap::default(), count: 0 };
        Self { keep, listed: Arc::new(Mutex::new(listed)) }
    }

    /// Publishes an owner from now on.
    ///
    /// # Errors
    /// [`Error::Configuration`] if it is published already.
    pub(super) fn add<O: Owner>(&self, owner: &O) -> Result<(), Error> {
        if self.add_watch(&Series::of(owner), owner.watch()) {
            return Ok(());
        }
        let field = O::LABEL;
        let reason = format!("this {field} is published already; add each {field} once");
        Err(Error::configuration(field, owner.name(), reason))
    }

    /// Publishes an owner under the first of its series that no other owner has. Returns `false` if it is published
    /// already.
    fn add_watch(&self, own: &Series, watch: impl Watch + 'static) -> bool {
        let _turn = TURN.lock();
        let mut listed = self.listed.lock();
        let mut number = 1;
        let (series, before) = loop {
            let series = own.numbered(number);
            let Some(index) = listed.owners.iter().position(|other| other.series == series) else {
                let before = listed.ended.remove(&series).map(|ended| ended.figures);
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
            let Observed::Ended(last) = last else {
                number += 1;
                continue;
            };
            let other = listed.owners.swap_remove(index);
            break (series, other.last(last));
        };
        listed.owners.push(Listing { series, watch: Box::new(watch), before, published: None });
        true
    }

    /// Publishes the figures of all owners.
    pub(super) fn publish(&self, to: &mut dyn FnMut(&Series, &Sample)) {
        let mut publish = |series: &Series, figures: &OwnerFigures, before: Option<&OwnerFigures>| {
            figures.samples().for_each(|sample| to(series, sample));
            if let Some(before) = before {
                figures.forgotten(before).iter().for_each(|sample| to(series, sample));
            }
        };
        // Before the locks, so that these are dropped outside of them whatever a recorder does: memory goes back to
        // devices then, and hooks are called.
        let mut closing = Vec::new();
        let _turn = TURN.lock();
        let mut listed = self.listed.lock();
        let Listed { owners, ended, count } = &mut *listed;
        let mut index = 0;
        while let Some(owner) = owners.get_mut(index) {
            match owner.watch.observe() {
                Observed::There(figures, last) => {
                    closing.extend(last);
                    let figures = owner.counting_on(figures);
                    publish(&owner.series, &figures, owner.published.as_ref());
                    owner.published = Some(figures);
                    index += 1;
                }
                Observed::Ending => {
                    if let Some(published) = &owner.published {
                        publish(&owner.series, published, None);
                    }
                    index += 1;
                }
                Observed::Ended(last) => {
                    let owner = owners.swap_remove(index);
                    let (series, published) = (owner.series.clone(), owner.published.clone());
                    if let Some(last) = owner.last(last) {
                        *count += 1;
                        let figures = last.closed();
                        ended.insert(series, Ended { figures, published, number: *count, times: 0 });
                    }
                }
            }
        }
        for (series, ended) in ended.iter_mut().filter(|(_, ended)| ended.times < self.keep.times) {
            publish(series, &ended.figures, ended.published.take().as_ref());
            ended.times += 1;
        }
        self.keep.forget(ended);
    }
}

impl Listing {
    fn counting_on(&self, figures: OwnerFigures) -> OwnerFigures {
        match &self.before {
            Some(before) => figures.counting_on(before),
            None => figures,
        }
    }

    /// Returns the last figures of a series, from the last figures of its owner.
    fn last(self, figures: Option<OwnerFigures>) -> Option<OwnerFigures> {
        figures.map(|figures| self.counting_on(figures)).or(self.published).or(self.before)
    }
}
