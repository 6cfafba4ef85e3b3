//! Selects pieces of memory from several holes to form one range for a request. Numbers only.
//!
//! A stitched range is a list of pieces, each mapped there a second time, consecutively. A request gets bytes
//! of it that are free in a row: the back of a piece, whole pieces, and the front of a piece.
//!
//! ```text
//! the arena's range    │   piece 1   │   piece 2   │   piece 3   │   piece 4   │
//!                      │ live │ free │    live     │    free     │ free │ live │
//! a stitched one       │   piece 1   │   piece 3   │   piece 4   │
//! a request's bytes           │      │             │      │
//! ```

use super::cover::Holes;
use crate::heap::arena::mapping::pages::Plan;
use crate::heap::space::Extent;
use smallvec::SmallVec;

/// The part of a stitched range that a request gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fit {
    /// Its offset in the stitched range.
    pub(crate) offset: u64,
    /// Its extents in the arena's range, in the order of the stitched range.
    pub(crate) extents: SmallVec<[Extent; 4]>,
}

impl Fit {
    /// Appends an extent. Adjacent extents are joined if both are in `new`, or neither is.
    fn add(&mut self, taken: Extent, new: &[Extent]) {
        let is_new = |start| new.iter().any(|new| new.start <= start && start < new.end());
        match self.extents.last_mut() {
            Some(last) if last.end() == taken.start && is_new(last.start) == is_new(taken.start) => {
                last.bytes += taken.bytes;
            }
            _ => self.extents.push(taken),
        }
    }
}

/// Finds the first `bytes` free bytes in a row in a range of the given pieces. Adjacent extents are joined;
/// those in `new`, which consists of whole pieces, stay separate from others.
pub(crate) fn fit(pieces: &[Extent], holes: &Holes, bytes: u64, new: &[Extent]) -> Option<Fit> {
    let mut fit = Fit { offset: 0, extents: SmallVec::new() };
    let (mut end, mut row) = (0, 0);
    for &piece in pieces {
        let front = holes.front_of(piece);
        let mut add = |free: Extent, offset| {
            if row == 0 {
                fit.offset = offset;
            }
            let taken = free.first(free.bytes.min(bytes - row));
            if taken.bytes > 0 {
                fit.add(taken, new);
            }
            row += taken.bytes;
            row == bytes
        };
        if add(piece.first(front), end) {
            return Some(fit);
        }
        if front < piece.bytes {
            (row, _) = (0, fit.extents.clear());
            let back = holes.back_of(piece);
            let free = piece.last(back);
            if back > 0 {
                fit.offset = end + piece.bytes - back;
                let taken = free.first(back.min(bytes));
                fit.add(taken, new);
                row = taken.bytes;
                if row == bytes {
                    return Some(fit);
                }
            }
        }
        end += piece.bytes;
    }
    None
}

/// Removes pieces that a fit of `bytes` does not touch: rounding up may add one too many.
pub(super) fn trim(pieces: Vec<Extent>, mut fit: Fit, bytes: u64) -> (Vec<Extent>, Fit) {
    let (offset, mut end) = (fit.offset, 0);
    let touched = pieces.into_iter().filter(|piece| {
        let start = end;
        end += piece.bytes;
        if end <= offset {
            fit.offset -= piece.bytes;
        }
        offset < end && start < offset + bytes
    });
    (touched.collect(), fit)
}

/// Returns the number of pieces in which `bytes` are free in a row, from the back of piece `first`, which is
/// in `hole`. Returns 0 if they are not free, or if an earlier piece is the first of that row. If it returns
/// 0 for every back, and no hole has the bytes, [`fit`] finds no place in the range.
#[inline]
pub(super) fn goes_on_from(
    first: usize,
    pieces: &[Extent],
    mut hole: Extent,
    bytes: u64,
    holes: &Holes,
) -> usize {
    let mut end = pieces[first].end();
    let start = hole.start.max(pieces[first].start);
    if hole.start < start && first > 0 && pieces[first - 1].end() == start {
        return 0;
    }
    let (mut row, mut count) = (end - start, 1);
    for &piece in &pieces[first + 1..] {
        if row >= bytes {
            break;
        }
        if piece.start != end {
            match holes.hole_at(piece.start) {
                Some(other) => hole = other,
                None => break,
            }
        }
        let front = hole.reach_in(piece);
        row += front;
        count += usize::from(front > 0);
        end = piece.end();
        if front < piece.bytes {
            break;
        }
    }
    if row >= bytes { count } else { 0 }
}

/// Selects pieces with `bytes` free in a row, from pieces that are sorted by offset and do not overlap. Takes
/// whole pieces, the largest first, then the closest-fitting front for the rest; if there is none, the best
/// back and front available. A whole piece is broken for the rest only if partly used pieces do not hold it.
pub(crate) fn plan(pieces: &[Extent], holes: &Holes, bytes: u64) -> Plan {
    let (mut whole, mut fronts, mut backs) = (Vec::new(), Vec::new(), Vec::new());
    for (piece, front, back) in holes.ends_of(pieces) {
        if front == piece.bytes {
            whole.push(piece);
            continue;
        }
        if front > 0 {
            fronts.push((front, piece));
        }
        if back > 0 {
            backs.push((back, piece));
        }
    }
    whole.sort_unstable_by_key(|piece| (u64::MAX - piece.bytes, piece.start));
    let mut plan = Plan { front: Vec::new(), missing: bytes, back: None };
    let mut larger = Vec::new();
    for piece in whole {
        if piece.bytes <= plan.missing {
            plan.missing -= piece.bytes;
            plan.front.push(piece);
        } else {
            larger.push((piece.bytes, piece));
        }
    }
    if plan.missing == 0 {
        return plan;
    }
    let (back, front) = rest(&backs, &fronts, &larger, plan.missing);
    if let Some((free, piece)) = back {
        plan.front.insert(0, piece);
        plan.missing = plan.missing.saturating_sub(free);
    }
    if let Some((free, piece)) = front.filter(|_| plan.missing > 0) {
        plan.back = Some(piece);
        plan.missing = plan.missing.saturating_sub(free);
    }
    plan
}

/// Selects a back for the start of a range and a front for its end that hold `bytes`, or as much as possible.
/// `whole` pieces are entirely free, and larger than that.
fn rest(
    backs: &[(u64, Extent)],
    fronts: &[(u64, Extent)],
    whole: &[(u64, Extent)],
    bytes: u64,
) -> (Candidate, Candidate) {
    let (front, whole) = (closest(fronts, bytes), closest(whole, bytes));
    let both = ends(backs, fronts, bytes);
    let free = |end: Candidate| end.map_or(0, |(free, _)| free);
    if front.is_some() {
        (None, front)
    } else if whole.is_none() || free(both.0).saturating_add(free(both.1)) >= bytes {
        both
    } else {
        (None, whole)
    }
}

/// Selects a back for the start of a range and a front for its end, of two pieces, with as much of `bytes` as
/// possible. One end is the closest-fitting or largest; the other is chosen likewise for the rest.
fn ends(backs: &[(u64, Extent)], fronts: &[(u64, Extent)], bytes: u64) -> (Candidate, Candidate) {
    let best = |candidates: &[(u64, Extent)], bytes, but: Option<Extent>| {
        let others = || candidates.iter().filter(|(_, piece)| Some(*piece) != but).copied();
        let closest =
            others().filter(|(free, _)| *free >= bytes).min_by_key(|(free, piece)| (*free, piece.start));
        closest.or_else(|| others().min_by_key(|(free, piece)| (u64::MAX - free, piece.start)))
    };
    let sum = |(back, front): &(Candidate, Candidate)| {
        let free = |end: &Candidate| end.map_or(0, |(free, _)| free);
        free(back).saturating_add(free(front)).min(bytes)
    };
    let lacking = |end: Candidate| bytes.saturating_sub(end.map_or(0, |(free, _)| free));
    let back = best(backs, bytes, None);
    let by_back = (back, best(fronts, lacking(back), back.map(|(_, piece)| piece)));
    let front = best(fronts, bytes, None);
    let by_front = (best(backs, lacking(front), front.map(|(_, piece)| piece)), front);
    // The largest back and front may be of one piece. Another piece may then serve better for one of them.
    if sum(&by_front) > sum(&by_back) { by_front } else { by_back }
}

/// The free bytes at an end of a piece.
type Candidate = Option<(u64, Extent)>;

/// The candidate with the fewest sufficient free bytes; among equals, the first in the range.
fn closest(candidates: &[(u64, Extent)], bytes: u64) -> Option<(u64, Extent)> {
    let enough = candidates.iter().filter(|(free, _)| *free >= bytes);
    enough.min_by_key(|(free, piece)| (*free, piece.start)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Consecutive pieces, and the free bytes. Free bytes within a piece are a hole and no part of a row.
    fn heap() -> impl Strategy<Value = (Vec<Extent>, Vec<bool>)> {
        let heaps = prop::collection::vec(1u64..9, 1..12).prop_flat_map(|sizes| {
            let bytes = sizes.iter().sum::<u64>() as usize;
            let mut start = 0;
            let pieces: Vec<_> = sizes
                .iter()
                .map(|&bytes| {
                    start += bytes;
                    Extent { start: start - bytes, bytes }
                })
                .collect();
            (Just(pieces), prop::collection::vec(prop::bool::weighted(0.7), bytes))
        });
        heaps.prop_map(|(pieces, mut free)| {
            for piece in &pieces {
                let bytes = &mut free[piece.start as usize..piece.end() as usize];
                let front = bytes.iter().take_while(|free| **free).count();
                let back = bytes.iter().rev().take_while(|free| **free).count();
                let end = bytes.len() - back;
                if front < end {
                    bytes[front..end].fill(false);
                }
            }
            (pieces, free)
        })
    }

    fn holes(free: &[bool]) -> Holes {
        let mut holes: Vec<Extent> = Vec::new();
        for (at, _) in (0u64..).zip(free).filter(|(_, free)| **free) {
            match holes.last_mut() {
                Some(last) if last.end() == at => last.bytes += 1,
                _ => holes.push(Extent { start: at, bytes: 1 }),
            }
        }
        Holes::of(holes)
    }

    /// The offset in the arena's range of each byte of a range of pieces.
    fn bytes_of(pieces: &[Extent]) -> Vec<u64> {
        pieces.iter().flat_map(|piece| piece.start..piece.end()).collect()
    }

    proptest! {
        #[test]
        fn a_fit_is_the_first_free_row(
            (pieces, free) in heap(),
            order in any::<prop::sample::Index>(),
            bytes in 1u64..20,
            split in any::<prop::sample::Index>(),
        ) {
            let mut range = pieces.clone();
            range.rotate_left(order.index(pieces.len()));
            let of_range = bytes_of(&range);
            let is_free: Vec<bool> = of_range.iter().map(|&at| free[at as usize]).collect();
            let twin = is_free.windows(bytes as usize).position(|row| row.iter().all(|&free| free));
            let new = pieces[split.index(pieces.len())];
            let is_new = |start| new.start <= start && start < new.end();
            match fit(&range, &holes(&free), bytes, &[new]) {
                None => prop_assert_eq!(twin, None),
                Some(fit) => {
                    prop_assert_eq!(twin, Some(fit.offset as usize));
                    prop_assert_eq!(&bytes_of(&fit.extents)[..], &of_range[fit.offset as usize..][..bytes as usize]);
                    prop_assert!(fit.extents.iter().all(|extent| extent.bytes > 0));
                    for pair in fit.extents.windows(2) {
                        let are_alike = is_new(pair[0].start) == is_new(pair[1].start);
                        prop_assert!(pair[0].end() != pair[1].start || !are_alike);
                    }
                    let is_within = |extent: &Extent| {
                        extent.end() <= new.start || new.start <= extent.start && extent.end() <= new.end() || new.end() <= extent.start
                    };
                    prop_assert!(fit.extents.iter().all(is_within));
                }
            }
        }

        /// If no hole except the free end holds the bytes, a row always continues from a free back.
        #[test]
        fn a_fit_goes_on_from_the_back_of_a_piece(
            ((pieces, free), mut range) in heap().prop_flat_map(|heap| {
                let range = Just(heap.0.clone()).prop_shuffle();
                (Just(heap), range)
            }),
            most in 1usize..12,
            bytes in 1u64..20,
        ) {
            range.truncate(most);
            let holes = holes(&free);
            let is_fit = fit(&range, &holes, bytes, &[]).is_some();
            let goes_on = holes.backs(&pieces).any(|(place, hole)| {
                let number = range.iter().position(|piece| *piece == pieces[place]);
                number.is_some_and(|number| goes_on_from(number, &range, hole, bytes, &holes) > 0)
            });
            prop_assert!(is_fit || !goes_on);
            let is_end = |end: u64| end == free.len() as u64;
            if holes.all().all(|hole| hole.bytes < bytes || is_end(hole.end())) {
                prop_assert_eq!(goes_on, is_fit);
            }
        }

        /// The naive twin looks each of them up.
        #[test]
        fn ends_are_those_of_each_piece((pieces, free) in heap(), but in any::<prop::sample::Index>()) {
            let (holes, mut pieces) = (holes(&free), pieces);
            pieces.remove(but.index(pieces.len()));
            let ends = holes.ends_of(&pieces);
            let twin = pieces.iter().map(|&piece| (piece, holes.front_of(piece), holes.back_of(piece)));
            prop_assert_eq!(ends, twin.filter(|&(_, front, back)| front > 0 || back > 0).collect::<Vec<_>>());
        }

        /// With the missing bytes added, the request fits, and nothing is missing that whole pieces have.
        #[test]
        fn a_plan_fits_once_what_is_missing_is_made((pieces, free) in heap(), bytes in 1u64..40) {
            let holes_before = holes(&free);
            let plan = plan(&pieces, &holes_before, bytes);
            let made = Extent { start: free.len() as u64 + 7, bytes: plan.missing };
            let mut free = free;
            free.resize(made.start as usize, false);
            free.resize(made.end() as usize, true);
            let made = (made.bytes > 0).then_some(made);
            let range: Vec<_> = plan.front.iter().copied().chain(made).chain(plan.back).collect();
            prop_assert!(fit(&range, &holes(&free), bytes, &[]).is_some());
            let whole: u64 = pieces.iter().filter(|piece| holes_before.front_of(**piece) == piece.bytes).map(|piece| piece.bytes).sum();
            prop_assert!(plan.missing <= bytes.saturating_sub(whole));
            let mut starts: Vec<_> = range.iter().map(|piece| piece.start).collect();
            starts.sort_unstable();
            starts.dedup();
            prop_assert_eq!(starts.len(), range.len(), "no piece is there twice");
        }
    }
}
