//! The bytes of a memory, and ranges of them.

use super::block::Block;
use super::place::Place;
use super::reservation::Reservation;
use std::ops::Range;
use std::ptr::NonNull;
use vrampool_backend::BackendError;

/// The bytes of a memory.
#[derive(Debug)]
pub(crate) enum Bytes {
    /// A block's own.
    Own(Block),
    /// Whatever is mapped.
    Reserved(Reservation),
}

impl Bytes {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::Own(block) => block.len(),
            Self::Reserved(reservation) => reservation.len(),
        }
    }

    pub(crate) fn address(&self) -> u64 {
        self.base().as_ptr() as u64
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        match self {
            Self::Own(block) => block.base(),
            Self::Reserved(reservation) => reservation.base(),
        }
    }
}

/// A range of bytes that a piece of work touches.
#[derive(Debug, Clone)]
pub(crate) struct Span<'a> {
    pub(crate) bytes: &'a Bytes,
    pub(crate) range: Range<u64>,
}

impl Span<'_> {
    /// The addresses it covers.
    pub(super) fn addresses(&self) -> Place {
        let base = self.bytes.address();
        Place::of_addresses(base + self.range.start..base + self.range.end)
    }

    pub(super) fn is_inside(&self) -> bool {
        self.range.start <= self.range.end && self.range.end <= self.bytes.len()
    }

    pub(super) fn is_reserved(&self) -> bool {
        matches!(self.bytes, Bytes::Reserved(_))
    }

    /// Lists the physical memory behind it, if it is bytes of a reservation.
    pub(super) fn physical(&self, found: impl FnMut(Place)) -> Result<(), BackendError> {
        match self.bytes {
            Bytes::Own(_) => Ok(()),
            Bytes::Reserved(reservation) => reservation.physical(&self.range, found),
        }
    }
}
