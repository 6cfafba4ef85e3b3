//! The data of a run's arrays, on the host.

use super::host_array::Spilled;
use vrampool_backend::Backend;

/// Data of an array in a run.
#[derive(Debug)]
pub(crate) enum Data<'a, B: Backend> {
    Read(&'a [u8]),
    Write(&'a mut [u8]),
    Pinned(&'a B::Memory, u64),
    File(&'a Spilled, u64),
}

impl<B: Backend> Data<'_, B> {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Read(bytes) => bytes.len() as u64,
            Self::Write(bytes) => bytes.len() as u64,
            Self::Pinned(_, len) | Self::File(_, len) => *len,
        }
    }
}

/// The direction of copies of bound data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Up,
    Down,
    Both,
}
