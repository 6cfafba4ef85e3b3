//! The byte sequence that test kernels write and verify.

/// Returns the first `bytes` bytes of the sequence of `seed`.
///
/// Every backend's test kernels implement the same sequence.
#[must_use]
pub fn pattern(seed: u64, bytes: u64) -> Vec<u8> {
    let mut pattern = vec![0; bytes as usize];
    // Without iterators: their instances may be those of a crate below that is not optimised.
    let (bytes, mut at) = (pattern.as_mut_slice(), 0);
    while at < bytes.len() {
        bytes[at] = word(seed, at as u64 / 4 + 1).to_le_bytes()[at % 4];
        at += 1;
    }
    pattern
}

/// The word of that number, from 1.
fn word(seed: u64, number: u64) -> u32 {
    let x = seed.wrapping_add(number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let x = (x ^ (x >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (x ^ (x >> 32)) as u32
}

#[cfg(test)]
mod tests {
    use super::pattern;
    use std::collections::HashSet;

    #[test]
    fn no_two_pages_are_equal_whatever_their_seeds() {
        let patterns: Vec<_> = (0..64).map(|seed| pattern(seed, 64 << 10)).collect();
        let pages: HashSet<&[u8]> = patterns.iter().flat_map(|pattern| pattern.chunks(4096)).collect();
        assert_eq!(pages.len(), 64 * 16);
    }

    #[test]
    fn a_shorter_sequence_is_a_prefix() {
        let whole = pattern(7, 4099);
        assert!((0..4099).all(|bytes| pattern(7, bytes) == whole[..bytes as usize]));
    }
}
