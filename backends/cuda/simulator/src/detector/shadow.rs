//! The last write to each byte, and the reads since.

use super::{Point, Site};
use std::collections::{BTreeMap, HashMap};

/// A range of one physical memory that an operation touches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Span {
    pub(crate) backing: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) write: bool,
}

/// An access to some bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Access {
    pub(crate) point: Point,
    pub(crate) site: Site,
    pub(crate) write: bool,
}

#[derive(Debug, Clone)]
struct Segment {
    end: u64,
    write: Option<Access>,
    reads: Vec<Access>,
}

#[derive(Debug, Default)]
pub(crate) struct Shadow {
    backings: HashMap<u64, BTreeMap<u64, Segment>>,
}

impl Shadow {
    /// Adds an access, and returns an earlier one that it races with. `ordered` says what is ordered before
    /// it.
    pub(crate) fn touch(
        &mut self,
        span: Span,
        point: Point,
        site: Site,
        ordered: &impl Fn(Point) -> bool,
    ) -> Option<Access> {
        let segments = self.backings.entry(span.backing).or_default();
        split(segments, span.start);
        split(segments, span.end);
        let access = Access { point, site, write: span.write };
        let mut race = None;
        let mut starts: Vec<(u64, u64)> =
            segments.range(span.start..span.end).map(|(&start, segment)| (start, segment.end)).collect();
        for &(start, _) in &starts {
            let Some(segment) = segments.get_mut(&start) else { continue };
            let unordered = |access: &&Access| access.point != point && !ordered(access.point);
            race = race.or(segment.write.iter().find(unordered).copied());
            if span.write {
                race = race.or(segment.reads.iter().find(unordered).copied());
            } else {
                segment.reads.retain(|read| !ordered(read.point) && read.point.stream != point.stream);
                segment.reads.push(access);
            }
        }
        if span.write {
            for (start, _) in starts {
                segments.remove(&start);
            }
            segments.insert(span.start, Segment { end: span.end, write: Some(access), reads: Vec::new() });
            return race;
        }
        // Gaps, which nothing has touched yet.
        starts.push((span.end, span.end));
        let mut from = span.start;
        for (start, end) in starts {
            if from < start {
                segments.insert(from, Segment { end: start, write: None, reads: vec![access] });
            }
            from = end;
        }
        race
    }

    /// An access of `start..end` that `done` does not know to be over.
    pub(crate) fn pending(
        &self,
        backing: u64,
        (start, end): (u64, u64),
        done: &impl Fn(&Access) -> bool,
    ) -> Option<Access> {
        let segments = self.backings.get(&backing)?;
        let first = segments.range(..=start).next_back().map_or(start, |(&first, _)| first);
        let touched = segments.range(first..end).filter(|(_, segment)| segment.end > start);
        touched
            .flat_map(|(_, segment)| segment.write.iter().chain(&segment.reads))
            .find(|access| !done(access))
            .copied()
    }

    pub(crate) fn forget(&mut self, backing: u64) {
        self.backings.remove(&backing);
    }

    /// Forgets one range of a memory, which is handed to other code.
    pub(crate) fn forget_range(&mut self, backing: u64, start: u64, end: u64) {
        if let Some(segments) = self.backings.get_mut(&backing) {
            split(segments, start);
            split(segments, end);
            let starts: Vec<u64> = segments.range(start..end).map(|(&start, _)| start).collect();
            starts.iter().for_each(|start| {
                segments.remove(start);
            });
        }
    }
}

/// Has a segment begin at `at`, where one covers it.
fn split(segments: &mut BTreeMap<u64, Segment>, at: u64) {
    let Some((_, segment)) = segments.range_mut(..at).next_back() else { return };
    if segment.end > at {
        let right = segment.clone();
        segment.end = at;
        segments.insert(at, right);
    }
}
