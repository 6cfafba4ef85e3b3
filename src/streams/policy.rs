//! The policy of the order between streams, for buckets and arenas: when a free gets a marker, and when new memory
//! spares a wait. Numbers only.

use vrampool_backend::Amount;

/// A stream gets a marker once it has freed more than 1/`UNMARKED` of the needed bytes since its last marker,
/// because an event costs as much as the rest of a free.
const UNMARKED: u64 = 64;

/// Whether a free of `bytes` gets a marker, after `unmarked` bytes that its stream freed without one.
pub(super) fn is_marker_due(unmarked: u64, bytes: u64, needed: u64) -> bool {
    unmarked + bytes > needed / UNMARKED
}

/// The bound on new memory that spares a wait.
#[derive(Debug)]
pub(crate) struct Overlap {
    /// Held bytes beyond the peak of live bytes.
    pub(crate) bound: Amount,
    /// Held bytes, unless more are needed.
    pub(crate) within: u64,
    /// Bytes taken from the device when it refused such memory. It is not asked again while it serves as many.
    pub(crate) refused_at: Option<u64>,
}

impl Overlap {
    /// Whether memory may be added to `taken` bytes that the device serves, so that `held` bytes are held. At their
    /// peaks, `live` bytes are live, and `needed` bytes live or in flight, those of the request included.
    pub(crate) fn allows(&self, taken: u64, held: u64, live: u64, needed: u64) -> bool {
        self.refused_at.is_none_or(|refused| taken < refused)
            && self.bound.bytes_of(held).is_none_or(|most| held.saturating_sub(live) <= most)
            && held <= self.within.max(needed)
    }
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BYTES: u64 = 300;

    /// The naive twin lists the byte counts that are allowed, and counts bytes one by one.
    struct Twin {
        bound: Amount,
        within: u64,
        refused_at: Vec<u64>,
    }

    impl Twin {
        fn allows(&self, taken: u64, held: u64, live: u64, needed: u64) -> bool {
            let beyond = (live..held).count() as u64;
            let is_within_bound = self.bound.bytes_of(held).is_none_or(|most| (0..=most).contains(&beyond));
            let is_refused = self.refused_at.last().is_some_and(|&refused| refused <= taken);
            let is_within = (0..=self.within).contains(&held) || (0..=needed).contains(&held);
            is_within_bound && is_within && !is_refused
        }
    }

    proptest! {
        #[test]
        fn overlap_and_markers_are_those_of_the_twin(
            bound in prop_oneof![
                Just(Amount::Unlimited),
                (0..BYTES).prop_map(Amount::Bytes),
                (0..=100u8).prop_map(|percent| Amount::Percent(percent.into())),
            ],
            within in prop_oneof![Just(u64::MAX), 0..BYTES],
            steps in prop::collection::vec((0..BYTES, 0..BYTES, 0..BYTES, 0..BYTES, any::<bool>()), 1..40),
        ) {
            let mut overlap = Overlap { bound, within, refused_at: None };
            let mut twin = Twin { bound, within: within.min(BYTES), refused_at: Vec::new() };
            for (taken, held, live, needed, is_refused) in steps {
                let allows = overlap.allows(taken, held, live, needed);
                prop_assert_eq!(allows, twin.allows(taken, held, live, needed));
                if allows && is_refused {
                    overlap.refused_at = Some(taken);
                    twin.refused_at.push(taken);
                }
                // In 64 parts of `needed`, rounded down, as many bytes are one too many.
                let part = (1..).take_while(|part| part * UNMARKED <= needed).count() as u64;
                prop_assert_eq!(is_marker_due(taken, held, needed), (0..taken + held).nth(part as usize).is_some());
            }
        }
    }

    #[test]
    fn a_share_is_of_what_is_held() {
        let (within, refused_at) = (u64::MAX, None);
        let allows = |bound, held, live| Overlap { bound, within, refused_at }.allows(0, held, live, 0);
        let share = Amount::Percent(25.0);
        assert!(allows(share, 400, 300) && !allows(share, 401, 300));
        assert!(allows(Amount::Bytes(0), 300, 300) && !allows(Amount::Bytes(0), 301, 300));
        assert!(allows(Amount::Unlimited, u64::MAX, 0));
        assert!(allows(Amount::Percent(100.0), u64::MAX, 0));
    }
}
