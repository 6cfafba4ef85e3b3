//! Writing plain data as a pickle of protocol 2, which Python 3 and PyTorch's visualiser read.

use std::collections::HashMap;
use std::io::{self, Write};

/// Writes a pickle, piece by piece.
#[derive(Debug)]
pub(super) struct Pickler<W> {
    out: W,
    /// Text that was written, and its place in the memo.
    texts: HashMap<&'static str, u8>,
}

impl<W: Write> Pickler<W> {
    pub(super) fn new(mut out: W) -> io::Result<Self> {
        out.write_all(b"\x80\x02")?;
        Ok(Self { out, texts: HashMap::new() })
    }

    pub(super) fn finish(mut self) -> io::Result<()> {
        self.out.write_all(b".")
    }

    /// A list of what `items` writes.
    pub(super) fn list<E: From<io::Error>>(
        &mut self,
        items: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.out.write_all(b"](")?;
        items(self)?;
        Ok(self.out.write_all(b"e")?)
    }

    /// A list of nothing.
    pub(super) fn empty_list(&mut self) -> io::Result<()> {
        self.out.write_all(b"]")
    }

    /// A dictionary of the keys and values, in turn, that `entries` writes.
    pub(super) fn dictionary<E: From<io::Error>>(
        &mut self,
        entries: impl FnOnce(&mut Self) -> Result<(), E>,
    ) -> Result<(), E> {
        self.out.write_all(b"}(")?;
        entries(self)?;
        Ok(self.out.write_all(b"u")?)
    }

    pub(super) fn text(&mut self, text: &'static str) -> io::Result<()> {
        // Fewer than 256.
        let next = self.texts.len() as u8;
        if let Some(place) = self.texts.get(text) {
            return self.out.write_all(&[b'h', *place]);
        }
        self.texts.insert(text, next);
        self.out.write_all(
            &[&b"X"[..], &(text.len() as u32).to_le_bytes(), text.as_bytes(), &[b'q', next]].concat(),
        )
    }

    /// A whole number.
    pub(super) fn number(&mut self, number: u64) -> io::Result<()> {
        if let Ok(byte) = u8::try_from(number) {
            return self.out.write_all(&[b'K', byte]);
        }
        if let Ok(number) = i32::try_from(number) {
            self.out.write_all(b"J")?;
            return self.out.write_all(&number.to_le_bytes());
        }
        // One byte more than it needs, so that it is not negative.
        let mut bytes = [0; 9];
        bytes[..8].copy_from_slice(&number.to_le_bytes());
        let len = 9 - number.leading_zeros() / 8;
        self.out.write_all(&[0x8a, len as u8])?;
        self.out.write_all(&bytes[..len as usize])
    }

    /// −1.
    pub(super) fn minus_one(&mut self) -> io::Result<()> {
        self.out.write_all(b"J\xff\xff\xff\xff")
    }

    pub(super) fn truth(&mut self, is_true: bool) -> io::Result<()> {
        self.out.write_all(if is_true { b"\x88" } else { b"\x89" })
    }

    /// A pair of the two values that were written last.
    pub(super) fn pair(&mut self) -> io::Result<()> {
        self.out.write_all(b"\x86")
    }
}
