//! Reservations on systems without support for them: every call fails.

use super::place::Place;
use std::ops::Range;
use std::ptr::NonNull;
use vrampool_backend::BackendError;

/// There is none.
#[derive(Debug)]
pub(crate) enum Reservation {}

impl Reservation {
    pub(super) fn len(&self) -> u64 {
        match *self {}
    }

    pub(super) fn base(&self) -> NonNull<u8> {
        match *self {}
    }

    pub(super) fn physical(&self, _: &Range<u64>, _: impl FnMut(Place)) -> Result<(), BackendError> {
        match *self {}
    }

    pub(crate) fn is_host_visible(&self, _: &Range<u64>) -> bool {
        match *self {}
    }

    pub(crate) fn let_go(&self) {
        match *self {}
    }
}
