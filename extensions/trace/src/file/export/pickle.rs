//! Writing plain data as a pickle of protocol 2, which Python 3 and PyTorch's visualiser read.

use std::collections::HashMap;
use std::io::{self, Write};

/// A value without parts that differ.
pub(super) enum Plain {
    Number(u64),
    Text(&'static str),
    MinusOne,
    False,
    /// A pair of zeros.
    Zeros,
    EmptyList,
}

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
    pub(super) fn list(&mut self, items: impl FnOnce(&mut Self) -> io::Result<()>) -> io::Result<()> {
        self.out.write_all(b"](")?;
        items(self)?;
        self.out.write_all(b"e")
    }

    /// A dictionary of the entries, and of the keys and values, in turn, that `more` writes.
    pub(super) fn dictionary(
        &mut self,
        entries: &[(&'static str, Plain)],
        more: impl FnOnce(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        self.out.write_all(b"}(")?;
        for (key, value) in entries {
            self.text(key)?;
            match *value {
                Plain::Number(number) => self.number(number)?,
                Plain::Text(text) => self.text(text)?,
                Plain::MinusOne => self.out.write_all(b"J\xff\xff\xff\xff")?,
                Plain::False => self.out.write_all(b"\x89")?,
                Plain::Zeros => self.out.write_all(b"K\0K\0\x86")?,
                Plain::EmptyList => self.out.write_all(b"]")?,
            }
        }
        more(self)?;
        self.out.write_all(b"u")
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
    fn number(&mut self, number: u64) -> io::Result<()> {
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
}
