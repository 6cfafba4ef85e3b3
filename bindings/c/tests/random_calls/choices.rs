//! What chooses.

use fastrand::Rng;
use std::ops::{Bound, RangeBounds};

/// Numbers of ranges, from a seed or from given bytes.
#[derive(Debug)]
#[allow(dead_code, reason = "the test has one of them and the fuzz target the other")]
pub(crate) enum Choices<'a> {
    /// With how many calls there are still to make.
    Random(Rng, u64),
    /// As long as there are bytes.
    Bytes(&'a [u8]),
}

macro_rules! choose {
    ($($number:ident),*) => {
        $(
            /// A number of the range, which is not empty.
            pub(crate) fn $number(&mut self, range: impl RangeBounds<$number>) -> $number {
                let first = match range.start_bound() {
                    Bound::Included(&first) => first,
                    _ => $number::MIN,
                };
                let last = match range.end_bound() {
                    Bound::Included(&last) => last,
                    Bound::Excluded(&end) => end - 1,
                    Bound::Unbounded => $number::MAX,
                };
                let above = last.wrapping_sub(first) as u64 & (u64::MAX >> (64 - $number::BITS));
                first.wrapping_add(self.up_to(above) as $number)
            }
        )*
    };
}

impl Choices<'_> {
    /// Whether there is nothing to choose any more. To be asked before each call.
    pub(crate) fn are_over(&mut self) -> bool {
        match self {
            Self::Random(_, calls) => match calls.checked_sub(1) {
                Some(left) => {
                    *calls = left;
                    false
                }
                None => true,
            },
            Self::Bytes(bytes) => bytes.is_empty(),
        }
    }

    choose!(u8, u64, usize, i32);

    pub(crate) fn bool(&mut self) -> bool {
        self.up_to(1) == 1
    }

    /// From 0 to `most`.
    fn up_to(&mut self, most: u64) -> u64 {
        match self {
            Self::Random(rng, _) => rng.u64(..=most),
            Self::Bytes(bytes) => {
                let count = (u64::BITS - most.leading_zeros()).div_ceil(8) as usize;
                let (taken, left) = bytes.split_at(count.min(bytes.len()));
                *bytes = left;
                let number = taken.iter().fold(0, |number, &byte| number << 8 | u64::from(byte));
                if most == u64::MAX { number } else { number % (most + 1) }
            }
        }
    }
}
