//! What an arena knows of a live block besides its place: who uses it, and whether it may move.

use super::unsettled::{Streams, add};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use vrampool_backend::Stream;

#[derive(Debug)]
pub(super) struct Slot<S> {
    /// The stream that the block was handed out for.
    home: S,
    /// Further streams that used it since it was handed out or moved.
    others: Streams<S>,
    /// The stream that moved it last, behind all that used it until then.
    mover: Option<S>,
    /// Streams that have waited for the mover.
    after_move: Streams<S>,
    /// Regions of it that exist.
    pub(super) holds: Arc<AtomicU32>,
    /// Its bytes are on their way: nobody gets its address.
    pub(super) moving: bool,
}

impl<S: Stream> Slot<S> {
    pub(super) fn new(home: S) -> Self {
        Self {
            home,
            others: Streams::new(),
            mover: None,
            after_move: Streams::new(),
            holds: Arc::default(),
            moving: false,
        }
    }

    /// Whom `stream` must wait for before it uses the block: the home stream at its own first use, and whoever moved the
    /// block at the first use after that.
    pub(super) fn before(&self, stream: &S) -> Streams<S> {
        let mut before = Streams::new();
        if self.home.id() != stream.id() && !contains(&self.others, stream) {
            before.push(self.home.clone());
        }
        if let Some(mover) = &self.mover
            && mover.id() != stream.id()
            && !contains(&self.after_move, stream)
        {
            add(&mut before, mover);
        }
        before
    }

    /// `stream` has waited for those, and uses the block.
    pub(super) fn used_by(&mut self, stream: &S) {
        if self.home.id() != stream.id() {
            add(&mut self.others, stream);
        }
        if self.mover.is_some() {
            add(&mut self.after_move, stream);
        }
    }

    /// `stream` has waited for all users, and the block is handed out for it.
    pub(super) fn hand_over(&mut self, stream: &S) {
        self.home = stream.clone();
        self.mover = None;
        self.others.clear();
        self.after_move.clear();
    }

    /// `stream` has waited for all users, and moves the block.
    pub(super) fn moved_by(&mut self, stream: &S) {
        self.mover = Some(stream.clone());
        self.others.clear();
        self.after_move.clear();
    }

    /// All streams that may use the block.
    pub(super) fn users(&self) -> Streams<S> {
        let mut users: Streams<S> = [self.home.clone()].into_iter().collect();
        for other in self.others.iter().chain(&self.mover) {
            add(&mut users, other);
        }
        users
    }

    pub(super) fn is_held(&self) -> bool {
        // Acquire: pairs with the release of a dropped hold, so work enqueued under it is before whatever moves the block.
        self.holds.load(Ordering::Acquire) > 0
    }
}

fn contains<S: Stream>(streams: &Streams<S>, stream: &S) -> bool {
    streams.iter().any(|known| known.id() == stream.id())
}
