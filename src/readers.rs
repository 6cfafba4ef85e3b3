//! Which streams use a block besides the one that got it or wrote it last.
//!
//! Mostly they are behind that one. One of which the pool was only told is not, for all that the pool knows.

use smallvec::SmallVec;
use vrampool_backend::{Stream, StreamId};

/// Streams, each once; hardly ever more than one.
#[derive(Debug)]
pub(crate) struct Readers<S>(SmallVec<[Reader<S>; 1]>);

#[derive(Debug)]
struct Reader<S> {
    stream: S,
    /// Whether it is behind the one that wrote the block last.
    is_behind: bool,
}

impl<S> Default for Readers<S> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<S> Readers<S> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &S> {
        self.0.iter().map(|reader| &reader.stream)
    }
}

impl<S: Stream> Readers<S> {
    /// Adds a stream that uses the block from now on, and may be behind who wrote it last.
    pub(crate) fn add(&mut self, stream: &S, is_behind: bool) {
        match self.0.iter_mut().find(|reader| reader.stream.id() == stream.id()) {
            Some(reader) => reader.is_behind |= is_behind,
            None => self.0.push(Reader { stream: stream.clone(), is_behind }),
        }
    }

    /// Whether it is one that is behind who wrote the block last.
    pub(crate) fn is_behind(&self, stream: StreamId) -> bool {
        self.0.iter().any(|reader| reader.stream.id() == stream && reader.is_behind)
    }
}
