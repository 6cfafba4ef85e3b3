//! Columns of numbers in few bytes: seven bits a byte, the lowest first.

/// What was written so far.
#[derive(Debug, Default)]
pub(super) struct Columns(Vec<u8>);

/// Numbers of JavaScript are exact up to here.
const MOST: u64 = 1 << 53;

impl Columns {
    /// Larger numbers are written as 2⁵³.
    pub(super) fn number(&mut self, number: u64) {
        self.low_first(number.min(MOST));
    }

    /// Each number as its difference from the one before, whose lowest bit is the sign.
    pub(super) fn differences(&mut self, numbers: impl Iterator<Item = u64>) {
        let mut before = 0;
        for number in numbers.map(|number| number.min(MOST)) {
            match number.checked_sub(before) {
                Some(more) => self.low_first(2 * more),
                None => self.low_first(2 * (before - number) - 1),
            }
            before = number;
        }
    }

    pub(super) fn text(&mut self, text: &str) {
        self.number(text.len() as u64);
        self.0.extend_from_slice(text.as_bytes());
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.0
    }

    fn low_first(&mut self, mut number: u64) {
        while number >= 128 {
            self.0.push(number as u8 | 128);
            number >>= 7;
        }
        self.0.push(number as u8);
    }
}
