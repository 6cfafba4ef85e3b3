//! Addresses without the wide gaps between them, in which a picture would show nothing.

/// Gaps of at least so many bytes are left out.
const GAP: u64 = 64 << 20;

/// A range of addresses, and where it lies in the picture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) address: u64,
    pub(super) place: u64,
}

/// Returns the segments of extents, `(address, bytes)`, in the order of their addresses.
pub(super) fn of(extents: impl Iterator<Item = (u64, u64)>) -> Vec<Segment> {
    let mut extents: Vec<_> = extents.collect();
    extents.sort_unstable();
    let (mut segments, mut end): (Vec<Segment>, u64) = (Vec::new(), 0);
    for (address, bytes) in extents {
        match segments.last() {
            Some(_) if address.saturating_sub(end) < GAP => {}
            last => {
                let place = last.map_or(0, |last| last.place + (end - last.address));
                segments.push(Segment { address, place });
            }
        }
        end = end.max(address.saturating_add(bytes));
    }
    segments
}

/// Returns where an address of an extent lies in the picture.
pub(super) fn place(segments: &[Segment], address: u64) -> u64 {
    let after = segments.partition_point(|segment| segment.address <= address);
    match after.checked_sub(1).map(|at| segments[at]) {
        Some(segment) => segment.place + (address - segment.address),
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_gaps_are_left_out_and_narrow_ones_stay() {
        let near = 1 << 20;
        let segments = of([(10 * GAP, 100), (10 * GAP + near, 50), (5, 20)].into_iter());
        assert_eq!(segments, [Segment { address: 5, place: 0 }, Segment { address: 10 * GAP, place: 20 }]);
        assert_eq!(place(&segments, 5), 0);
        assert_eq!(place(&segments, 10 * GAP + near), 20 + near);
    }
}
