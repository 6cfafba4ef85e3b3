//! Which operations are ordered before something.

use std::collections::BTreeMap;

/// One operation: the stream's number, and the operation's number in it, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Point {
    pub(crate) stream: u64,
    pub(crate) number: u64,
}

/// For each stream, the last operation that is ordered before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Clock {
    last: BTreeMap<u64, u64>,
}

impl Clock {
    pub(crate) fn add(&mut self, point: Point) {
        let last = self.last.entry(point.stream).or_default();
        *last = point.number.max(*last);
    }

    pub(crate) fn join(&mut self, other: &Self) {
        for (&stream, &number) in &other.last {
            self.add(Point { stream, number });
        }
    }

    pub(crate) fn has(&self, point: Point) -> bool {
        self.last.get(&point.stream).is_some_and(|&last| point.number <= last)
    }

    /// Drops what `known` has.
    pub(crate) fn forget(&mut self, known: &Self) {
        if self.last.len() > 4 {
            self.last.retain(|&stream, &mut number| !known.has(Point { stream, number }));
        }
    }
}
