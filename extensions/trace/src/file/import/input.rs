//! Sequential reading of a pickle's bytes.

use super::pickle_value::Value;
use super::snapshot_keys::SnapshotKey;
use crate::error::TraceFault;
use std::io::{self, BufRead};
use std::mem;

/// The most bytes that are kept of a line of protocol 0: no key, and no number of 64 bits, is longer.
const MAX_LINE: usize = 64;

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
        let mut rest = bytes;
        self.pass(rest.len() as u64, |next| {
            let (filled, behind) = mem::take(&mut rest).split_at_mut(next.len());
            filled.copy_from_slice(next);
            rest = behind;
        })
    }

    pub(super) fn skip(&mut self, bytes: u64) -> Result<(), TraceFault> {
        self.pass(bytes, |_| {})
    }

    /// Calls `act` with the next bytes, so many in all.
    fn pass(&mut self, bytes: u64, mut act: impl FnMut(&[u8])) -> Result<(), TraceFault> {
        let mut left = bytes;
        while left > 0 {
            if self.is_at_end()? {
                return Err(TraceFault::CutOff("in the pickle"));
            }
            let there = self.input.fill_buf().map_err(TraceFault::Read)?;
            let step = there.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            act(&there[..step]);
            self.input.consume(step);
            self.at += step as u64;
            left -= step as u64;
        }
        Ok(())
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

    /// A line without its end; empty if it is longer than what is kept, or no text.
    fn text_line(&mut self) -> Result<String, TraceFault> {
        let mut line = Vec::new();
        loop {
            match self.byte()? {
                b'\n' if line.len() > MAX_LINE => return Ok(String::new()),
                b'\n' => return Ok(String::from_utf8(line).unwrap_or_default()),
                byte if line.len() <= MAX_LINE => line.push(byte),
                _ => {}
            }
        }
    }

    /// Text of protocol 0, perhaps in quotes.
    pub(super) fn line(&mut self) -> Result<Value, TraceFault> {
        let line = self.text_line()?;
        let quoted = |quote| line.strip_prefix(quote)?.strip_suffix(quote);
        let text = quoted('\'').or(quoted('"')).unwrap_or(&line);
        Ok(SnapshotKey::of(text.as_bytes()).map_or(Value::Other, Value::Key))
    }

    /// A number of protocol 0.
    pub(super) fn digits(&mut self) -> Result<Value, TraceFault> {
        let line = self.text_line()?;
        Ok(line.strip_suffix('L').unwrap_or(&line).parse().map_or(Value::Other, Value::whole))
    }

    /// A place in the memo, of protocol 0.
    pub(super) fn place(&mut self) -> Result<u64, TraceFault> {
        self.text_line()?.parse().map_err(|_| TraceFault::NotPickled)
    }
}
