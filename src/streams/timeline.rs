//! The order of one owner's frees, and the markers after them.

use super::markers::Markers;
use super::ticks::Ticks;
use vrampool_backend::Backend;

/// The order of one owner's frees, and the markers after them.
#[derive(Debug)]
pub(crate) struct Timeline<B: Backend> {
    pub(crate) ticks: Ticks,
    pub(crate) markers: Markers<B>,
}

impl<B: Backend> Timeline<B> {
    pub(crate) fn new() -> Self {
        Self { ticks: Ticks::from_one(), markers: Markers::new() }
    }
}
