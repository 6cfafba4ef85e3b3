//! Sequential reading of a pickle's bytes.

use super::packed_value::Packed;
use super::snapshot_keys::SnapshotKey;
use crate::error::TraceFault;
use std::io::{self, BufRead};

/// The longest line of a number in protocol 0; no number of 64 bits has more digits.
const MAX_DIGITS: usize = 64;

/// The input and the position in it.
pub(super) struct Input<R> {
    input: R,
    at: u64,
}

impl<R: BufRead> Input<R> {
    pub(super) fn new(input: R) -> Self {
        Self { input, at: 0 }
    }

    /// Returns the number of bytes read.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    pub(super) fn fill(&mut self, bytes: &mut [u8]) -> Result<(), TraceFault> {
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            let there = self.there()?;
            let step = there.len().min(rest.len());
            rest[..step].copy_from_slice(&there[..step]);
            self.take(step);
            filled += step;
        }
        Ok(())
    }

    /// The next bytes, at least one.
    fn there(&mut self) -> Result<&[u8], TraceFault> {
        if self.is_at_end()? {
            return Err(TraceFault::CutOff { after: "in the pickle" });
        }
        self.input.fill_buf().map_err(TraceFault::Read)
    }

    /// Whether there are no more bytes. A checksum at the end was then found right.
    pub(super) fn is_at_end(&mut self) -> Result<bool, TraceFault> {
        loop {
            match self.input.fill_buf() {
                Ok(there) => return Ok(there.is_empty()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(TraceFault::Read(error)),
            }
        }
    }

    fn take(&mut self, bytes: usize) {
        self.input.consume(bytes);
        self.at += bytes as u64;
    }

    pub(super) fn bytes<const N: usize>(&mut self) -> Result<[u8; N], TraceFault> {
        let mut bytes = [0; N];
        self.fill(&mut bytes)?;
        Ok(bytes)
    }

    pub(super) fn byte(&mut self) -> Result<u8, TraceFault> {
        self.bytes().map(|[byte]| byte)
    }

    pub(super) fn length<const N: usize>(&mut self) -> Result<u64, TraceFault> {
        let mut whole = [0; 8];
        self.fill(whole.get_mut(..N).unwrap_or_default())?;
        Ok(u64::from_le_bytes(whole))
    }

    pub(super) fn skip(&mut self, bytes: u64) -> Result<(), TraceFault> {
        let mut left = bytes;
        while left > 0 {
            let step = self.there()?.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            self.take(step);
            left -= step as u64;
        }
        Ok(())
    }

    /// A line without its end, of which the first bytes are kept. Answers how long it was, too.
    fn text_line<const KEEP: usize>(&mut self) -> Result<([u8; KEEP], usize), TraceFault> {
        let (mut kept, mut len) = ([0; KEEP], 0);
        loop {
            match self.byte()? {
                b'\n' => return Ok((kept, len)),
                byte => {
                    if let Some(place) = kept.get_mut(len) {
                        *place = byte;
                    }
                    len += 1;
                }
            }
        }
    }

    /// Text of protocol 0, perhaps in quotes.
    pub(super) fn line(&mut self) -> Result<Packed, TraceFault> {
        let (kept, len) = self.text_line::<{ SnapshotKey::LONGEST + 2 }>()?;
        let text = kept.get(..len).unwrap_or_default();
        let text = match text {
            [b'\'', text @ .., b'\''] | [b'"', text @ .., b'"'] => text,
            text => text,
        };
        Ok(SnapshotKey::of(text).map_or(Packed::OTHER, Packed::word))
    }

    /// A number of protocol 0; `None` where it has more digits than any that is asked for.
    pub(super) fn digits(&mut self) -> Result<Option<i128>, TraceFault> {
        let (kept, len) = self.text_line::<MAX_DIGITS>()?;
        let text = kept.get(..len).and_then(|text| std::str::from_utf8(text).ok());
        Ok(text.and_then(|text| text.strip_suffix('L').unwrap_or(text).parse().ok()))
    }

    /// A place in the memo, of protocol 0.
    pub(super) fn place(&mut self) -> Result<u64, TraceFault> {
        let (kept, len) = self.text_line::<MAX_DIGITS>()?;
        let text = kept.get(..len).and_then(|text| std::str::from_utf8(text).ok());
        text.and_then(|text| text.parse().ok()).ok_or(TraceFault::NotPickled)
    }
}
