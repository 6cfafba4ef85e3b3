//! What an arena knows of a live block besides its place: who uses it, and whether it may move.

use super::unsettled::{Streams, add};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use vrampool_backend::Stream;

#[derive(Debug)]
pub(super) struct Slot<S> {
    /// The stream in whose order the block is free to be used: the one it was allocated for, or the one that moved it.
    owner: S,
    /// Further streams that used it since.
    others: Streams<S>,
    /// Regions of it that exist.
    pub(super) holds: Arc<AtomicU32>,
    /// Its bytes are on their way: nobody gets its address.
    pub(super) moving: bool,
}

impl<S: Stream> Slot<S> {
    pub(super) fn new(owner: S) -> Self {
        Self { owner, others: Streams::new(), holds: Arc::default(), moving: false }
    }

    /// Whom `stream` must wait for before its first use, if it has not used the block yet.
    pub(super) fn before(&self, stream: &S) -> Option<&S> {
        let known =
            self.owner.id() == stream.id() || self.others.iter().any(|other| other.id() == stream.id());
        (!known).then_some(&self.owner)
    }

    pub(super) fn used_by(&mut self, stream: &S) {
        if self.before(stream).is_some() {
            self.others.push(stream.clone());
        }
    }

    /// `stream` waits for all users: from now on its order is the block's.
    pub(super) fn hand_over(&mut self, stream: &S) {
        self.owner = stream.clone();
        self.others.clear();
    }

    /// All streams that may use the block.
    pub(super) fn users(&self) -> Streams<S> {
        let mut users: Streams<S> = [self.owner.clone()].into_iter().collect();
        for other in &self.others {
            add(&mut users, other);
        }
        users
    }

    pub(super) fn is_held(&self) -> bool {
        // Acquire: pairs with the release of a dropped hold, so work enqueued under it is before whatever moves the block.
        self.holds.load(Ordering::Acquire) > 0
    }
}
