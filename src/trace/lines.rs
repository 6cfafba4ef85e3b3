//! A trace's lines: bounded, decompressed when they are compressed, without what ends them.

use super::error::Fault;
use flate2::bufread::MultiGzDecoder;
use std::io::{self, BufRead, BufReader, Read};

/// The most bytes that a line of a trace may have. The longest event has 85.
pub const MAX_LINE: usize = 256;

/// What gzip data begins with.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Reads lines one after the other into the same memory.
pub(crate) struct Lines<'a> {
    input: Box<dyn BufRead + 'a>,
    is_gzip: bool,
    line: Vec<u8>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(mut reader: impl Read + 'a) -> Result<Self, Fault> {
        let mut head = Vec::with_capacity(GZIP.len());
        reader.by_ref().take(GZIP.len() as u64).read_to_end(&mut head).map_err(Fault::Read)?;
        let is_gzip = head == GZIP;
        let whole = BufReader::new(io::Cursor::new(head).chain(reader));
        let input: Box<dyn BufRead + 'a> =
            if is_gzip { Box::new(BufReader::new(MultiGzDecoder::new(whole))) } else { Box::new(whole) };
        Ok(Self { input, is_gzip, line: Vec::with_capacity(MAX_LINE + 2) })
    }

    /// The next line; `None` at the end.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, Fault> {
        self.line.clear();
        // Two more for `\r\n`: a line that fills this without ending is too long, and no more of it is read.
        let mut bounded = (&mut self.input).take(MAX_LINE as u64 + 2);
        if let Err(error) = bounded.read_until(b'\n', &mut self.line) {
            return Err(match error.kind() {
                io::ErrorKind::UnexpectedEof | io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput
                    if self.is_gzip =>
                {
                    Fault::Gzip(error)
                }
                _ => Fault::Read(error),
            });
        }
        if self.line.is_empty() {
            return Ok(None);
        }
        let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > MAX_LINE { Err(Fault::LineTooLong) } else { Ok(Some(line)) }
    }
}
