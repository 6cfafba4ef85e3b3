//! The lines of a trace: bounded in length, decompressed, without line ends.

use crate::error::TraceFault;
use crate::error::bounds::MAX_LINE_BYTES;
use flate2::bufread::MultiGzDecoder;
use std::io::{self, BufRead, BufReader, Read};
use std::mem;

/// Bytes by which a format is detected.
const HEAD: u64 = 64;

/// The magic number of gzip data.
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Reads lines one after the other into the same memory.
pub(crate) struct Lines<'a> {
    /// What is left.
    pub(crate) input: Box<dyn BufRead + 'a>,
    pub(crate) is_gzip: bool,
    line: Vec<u8>,
}

impl<'a> Lines<'a> {
    pub(crate) fn new(mut reader: impl Read + 'a) -> Result<Self, TraceFault> {
        let mut head = Vec::with_capacity(GZIP.len());
        reader.by_ref().take(GZIP.len() as u64).read_to_end(&mut head).map_err(TraceFault::Read)?;
        let is_gzip = head == GZIP;
        let whole = BufReader::new(io::Cursor::new(head).chain(reader));
        let input: Box<dyn BufRead + 'a> =
            if is_gzip { Box::new(BufReader::new(MultiGzDecoder::new(whole))) } else { Box::new(whole) };
        Ok(Self { input, is_gzip, line: Vec::with_capacity(MAX_LINE_BYTES + 2) })
    }

    /// What it begins with, which stays to be read.
    pub(crate) fn head(&mut self) -> Result<Vec<u8>, TraceFault> {
        let mut head = Vec::with_capacity(HEAD as usize);
        (&mut self.input).take(HEAD).read_to_end(&mut head).map_err(TraceFault::Read)?;
        let rest = mem::replace(&mut self.input, Box::new(io::empty()));
        self.input = Box::new(io::Cursor::new(head.clone()).chain(rest));
        Ok(head)
    }

    /// The next line; `None` at the end. A line that the file ends in is an error.
    pub(crate) fn next(&mut self) -> Result<Option<&[u8]>, TraceFault> {
        self.line.clear();
        // Two more for `\r\n`: a line that fills this without ending is too long, and no more of it is read.
        let mut bounded = (&mut self.input).take(MAX_LINE_BYTES as u64 + 2);
        bounded.read_until(b'\n', &mut self.line).map_err(TraceFault::Read)?;
        if self.line.is_empty() {
            return Ok(None);
        }
        let Some(line) = self.line.strip_suffix(b"\n") else {
            let is_long = self.line.len() > MAX_LINE_BYTES;
            return Err(if is_long { TraceFault::LineTooLong } else { TraceFault::CutOff("in this line") });
        };
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.len() > MAX_LINE_BYTES { Err(TraceFault::LineTooLong) } else { Ok(Some(line)) }
    }
}

/// The fault of gzip data that cannot be read.
pub(crate) fn gzip_fault(error: io::Error) -> TraceFault {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => TraceFault::CutOff("in its gzip data"),
        io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput => TraceFault::Gzip(error),
        _ => TraceFault::Read(error),
    }
}
