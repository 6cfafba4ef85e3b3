//! The logs of a recording, and the room for their events.

use super::clock::Clock;
use super::log::{Chunk, Log};
use crate::file::origin::Origins;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// The logs of all threads of a recording.
#[derive(Debug)]
pub(super) struct Logs {
    pub(super) clock: Arc<Clock>,
    /// Room for events that no thread has reserved. Relaxed: only the number matters.
    room: AtomicU64,
    /// Allocations without room.
    pub(super) dropped: AtomicU64,
    spare: Mutex<Vec<Arc<Chunk>>>,
    pub(super) origins: Mutex<Origins>,
    /// By log number.
    logs: Mutex<Vec<Arc<Log>>>,
}

impl Logs {
    /// Room for `events` events, with memory for the first `made` of them.
    pub(super) fn new(clock: Arc<Clock>, events: u64, made: u64) -> Self {
        let chunks = made.div_ceil(Chunk::EVENTS as u64);
        let spare = (0..chunks).map(|_| Arc::new(Chunk::new())).collect();
        Self {
            clock,
            room: AtomicU64::new(events),
            dropped: AtomicU64::new(0),
            spare: Mutex::new(spare),
            origins: Mutex::default(),
            logs: Mutex::default(),
        }
    }

    pub(super) fn all(&self) -> Vec<Arc<Log>> {
        self.logs.lock().clone()
    }

    /// Reserves room for up to `events` events.
    pub(super) fn take_room(&self, events: u64) -> u64 {
        let taken = |room: u64| Some(room - room.min(events) / 2 * 2);
        self.room.fetch_update(Relaxed, Relaxed, taken).map_or(0, |room| room.min(events) / 2 * 2)
    }

    pub(super) fn give_room(&self, events: u64) {
        self.room.fetch_add(events, Relaxed);
    }

    pub(super) fn chunk(&self) -> Arc<Chunk> {
        let spare = self.spare.lock().pop();
        // Chunks made in advance may all be held by other writers, partly filled.
        spare.unwrap_or_else(|| Arc::new(Chunk::new()))
    }

    pub(super) fn log(&self) -> Arc<Log> {
        let mut logs = self.logs.lock();
        let log = Arc::new(Log::new(logs.len() as u64));
        logs.push(Arc::clone(&log));
        log
    }
}
