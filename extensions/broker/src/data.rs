//! The data of a run's arrays, on the host.

use crate::spilled::Spilled;
use vrampool_backend::Backend;

/// The host's side of one array.
#[derive(Debug)]
pub(crate) enum Side<'a, B: Backend> {
    /// All of an array that is read.
    Whole(&'a [u8]),
    Pinned(&'a B::Memory),
    File(&'a Spilled),
    /// Rows that each chunk has for itself.
    Rows,
    None,
}

impl<B: Backend> Clone for Side<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Side<'_, B> {}

/// Data of an array in a run.
#[derive(Debug)]
pub(crate) struct Data<'a, B: Backend> {
    pub(crate) side: Side<'a, B>,
    /// The bytes that rows are made of.
    pub(crate) rows: Option<&'a mut [u8]>,
    pub(crate) len: u64,
}

impl<'a, B: Backend> Data<'a, B> {
    pub(crate) fn new(side: Side<'a, B>, len: u64) -> Self {
        Self { side, rows: None, len }
    }

    pub(crate) fn read(bytes: &'a [u8]) -> Self {
        Self::new(Side::Whole(bytes), bytes.len() as u64)
    }

    pub(crate) fn write(bytes: &'a mut [u8]) -> Self {
        Self { len: bytes.len() as u64, side: Side::Rows, rows: Some(bytes) }
    }
}
