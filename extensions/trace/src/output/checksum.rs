//! CRC-32 as gzip has it, for the last line of the crate's own files. Numbers only.

/// The polynomial, lowest power first.
const POLYNOMIAL: u32 = 0xedb8_8320;

/// The remainder of each byte.
static TABLE: [u32; 256] = table();

/// A checksum over bytes that come in pieces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Checksum(u32);

impl Checksum {
    /// Of no bytes.
    pub(crate) const fn new() -> Self {
        Self(!0)
    }

    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 >> 8) ^ TABLE[usize::from(self.0 as u8 ^ byte)];
        }
    }

    /// Adds a line without its end, as if it ended with `\n`.
    pub(crate) fn add_line(&mut self, line: &[u8]) {
        self.add(line);
        self.add(b"\n");
    }

    pub(crate) fn value(self) -> u32 {
        !self.0
    }
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut remainder, mut bit) = (byte as u32, 0);
        while bit < 8 {
            remainder = (remainder >> 1) ^ if remainder & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[byte] = remainder;
        byte += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_one_that_others_compute() {
        let mut sum = Checksum::new();
        assert_eq!(sum.value(), 0);
        sum.add(b"1234");
        sum.add(b"56789");
        assert_eq!(sum.value(), 0xcbf4_3926, "the check value of CRC-32/ISO-HDLC");
    }
}
