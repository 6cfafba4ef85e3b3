//! What an arena knows of a live block besides its place: who uses it, and whether it may move.

use super::unsettled::{Streams, add};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use vrampool_backend::Stream;

#[derive(Debug)]
pub(super) struct Slot<S> {
    /// The stream that wrote the block last, behind all that used it before: got it, wrote it or moved it.
    writer: S,
    /// Streams that read it since, behind the writer.
    readers: Streams<S>,
    /// Streams that used its bytes before it got them, and that the writer is being put behind.
    pub(super) awaited: Streams<S>,
    /// Regions of it that exist.
    pub(super) holds: Arc<AtomicU32>,
    /// Its bytes are on their way: nobody gets its address.
    pub(super) moving: bool,
}

impl<S: Stream> Slot<S> {
    pub(super) fn new(writer: S) -> Self {
        Self {
            writer,
            readers: Streams::new(),
            awaited: Streams::new(),
            holds: Arc::default(),
            moving: false,
        }
    }

    /// Whom `stream` must wait for before it reads.
    pub(super) fn before_read(&self, stream: &S) -> Streams<S> {
        let knows =
            self.writer.id() == stream.id() || self.readers.iter().any(|reader| reader.id() == stream.id());
        if knows { Streams::new() } else { [self.writer.clone()].into_iter().collect() }
    }

    /// `stream` has waited for those, and reads.
    pub(super) fn read_by(&mut self, stream: &S) {
        if self.writer.id() != stream.id() {
            add(&mut self.readers, stream);
        }
    }

    /// Whom `stream` must wait for before it writes.
    pub(super) fn before_write(&self, stream: &S) -> Streams<S> {
        self.users().into_iter().filter(|user| user.id() != stream.id()).collect()
    }

    /// `stream` has waited for those: what waits for it waits for all of them.
    pub(super) fn written_by(&mut self, stream: &S) {
        self.writer = stream.clone();
        self.readers.clear();
        self.awaited.clear();
    }

    /// All streams that may use the block, or its bytes.
    pub(super) fn users(&self) -> Streams<S> {
        let mut users = self.readers.clone();
        self.awaited.iter().chain([&self.writer]).for_each(|user| add(&mut users, user));
        users
    }

    pub(super) fn is_held(&self) -> bool {
        // Acquire: pairs with the release of a dropped hold, so work enqueued under it is before whatever moves the block.
        self.holds.load(Ordering::Acquire) > 0
    }
}
