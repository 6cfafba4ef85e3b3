//! Values of a pickle packed into 56 bits, so that a dictionary entry takes one word.

use super::snapshot_keys::SnapshotKey;

/// A packed value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    Whole(i128),
    SnapshotKey(SnapshotKey),
    /// A list or a tuple.
    List(u32),
    Dictionary(u32),
    /// Frames: the number of their site.
    Site(u32),
    /// Anything else.
    Other,
}

/// A value, and in a dictionary its key above it: kind, then number, then key, from the lowest bit on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packed(u64);

const KIND_BITS: u32 = 3;
const KEY_SHIFT: u32 = 56;
const VALUE: u64 = (1 << KEY_SHIFT) - 1;

const OTHER: u64 = 0;
const WHOLE: u64 = 1;
/// The number is the place of a large one.
const LARGE: u64 = 2;
const WORD: u64 = 3;
const LIST: u64 = 4;
const DICTIONARY: u64 = 5;
/// The number is where it begins, and above that its length.
const TEXT: u64 = 6;
const SITE: u64 = 7;

const LENGTH_SHIFT: u32 = 32;

impl Packed {
    pub(super) const OTHER: Self = Self(OTHER);

    fn new(kind: u64, number: u64) -> Self {
        Self((number << KIND_BITS | kind) & VALUE)
    }

    /// A whole number that fits; else it is to be kept elsewhere.
    pub(super) fn whole(number: i64) -> Option<Self> {
        let packed = Self::new(WHOLE, number.cast_unsigned());
        (packed.signed() == number).then_some(packed)
    }

    pub(super) fn large(place: u32) -> Self {
        Self::new(LARGE, place.into())
    }

    pub(super) fn word(word: SnapshotKey) -> Self {
        Self::new(WORD, word as u64)
    }

    pub(super) fn list(node: u32) -> Self {
        Self::new(LIST, node.into())
    }

    pub(super) fn dictionary(node: u32) -> Self {
        Self::new(DICTIONARY, node.into())
    }

    /// Text at a place among texts, shorter than 2^16 bytes.
    pub(super) fn text(start: u32, length: u16) -> Self {
        Self::new(TEXT, u64::from(length) << LENGTH_SHIFT | u64::from(start))
    }

    pub(super) fn site(number: u32) -> Self {
        Self::new(SITE, number.into())
    }

    /// The text that it is, of those of a pickle.
    pub(super) fn as_text(self, texts: &[u8]) -> Option<&[u8]> {
        let (start, length) = (self.number() as u32 as usize, (self.number() >> LENGTH_SHIFT) as usize);
        match self.kind() {
            TEXT => texts.get(start..start + length),
            _ => self.as_word().map(|word| word.text().as_bytes()),
        }
    }

    /// The node of a list or a dictionary, and whether it is a list's.
    pub(super) fn node(self) -> Option<(u32, bool)> {
        match self.kind() {
            LIST => Some((self.number() as u32, true)),
            DICTIONARY => Some((self.number() as u32, false)),
            _ => None,
        }
    }

    /// Under this key.
    pub(super) fn keyed(self, key: SnapshotKey) -> Self {
        Self(self.0 & VALUE | (key as u64) << KEY_SHIFT)
    }

    pub(super) fn has_key(self, key: SnapshotKey) -> bool {
        self.0 >> KEY_SHIFT == key as u64
    }

    pub(super) fn as_word(self) -> Option<SnapshotKey> {
        if self.kind() == WORD { SnapshotKey::ALL.get(self.number() as usize).copied() } else { None }
    }

    /// `large` has the numbers that do not fit.
    pub(super) fn value(self, large: &[i128]) -> Value {
        let number = self.number();
        match self.kind() {
            WHOLE => Value::Whole(self.signed().into()),
            LARGE => large.get(number as usize).map_or(Value::Other, |&number| Value::Whole(number)),
            WORD => self.as_word().map_or(Value::Other, Value::SnapshotKey),
            LIST => Value::List(number as u32),
            DICTIONARY => Value::Dictionary(number as u32),
            SITE => Value::Site(number as u32),
            _ => Value::Other,
        }
    }

    fn kind(self) -> u64 {
        self.0 & ((1 << KIND_BITS) - 1)
    }

    fn number(self) -> u64 {
        (self.0 & VALUE) >> KIND_BITS
    }

    fn signed(self) -> i64 {
        const UNUSED: u32 = u64::BITS - KEY_SHIFT;
        (self.0 << UNUSED).cast_signed() >> (UNUSED + KIND_BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_what_it_was() {
        for number in [0, 1, -1, 1 << 51, -(1 << 52), (1 << 52) - 1] {
            let packed = Packed::whole(number).expect("it fits");
            for packed in [packed, packed.keyed(SnapshotKey::Stream)] {
                assert_eq!(packed.value(&[]), Value::Whole(number.into()));
            }
        }
        for number in [1 << 52, -(1 << 52) - 1, i64::MAX, i64::MIN] {
            assert_eq!(Packed::whole(number), None);
        }
        assert_eq!(Packed::large(1).value(&[0, 7]), Value::Whole(7));
        assert_eq!(Packed::list(u32::MAX).keyed(SnapshotKey::Blocks).value(&[]), Value::List(u32::MAX));
        assert_eq!(Packed::text(1, 2).keyed(SnapshotKey::Name).as_text(b"abcd"), Some(&b"bc"[..]));
        assert_eq!(Packed::site(u32::MAX).keyed(SnapshotKey::Frames).value(&[]), Value::Site(u32::MAX));
        assert_eq!(Packed::dictionary(3).node(), Some((3, false)));
        for &word in SnapshotKey::ALL {
            assert_eq!(Packed::word(word).keyed(word).as_word(), Some(word));
            assert!(Packed::OTHER.keyed(word).has_key(word));
        }
    }
}
