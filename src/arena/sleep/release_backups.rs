//! Releases the pinned memory of backups.

use crate::staging::stored::Stored;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use vrampool_backend::Backend;
use vrampool_backend::spi::start_thread;

/// Pinned memory that a separate thread releases, because that takes as long as copying it. Only a later use
/// of pinned memory, and the drop of the arena, wait for that thread.
#[derive(Debug, Default)]
pub(in crate::arena) struct GivingBack {
    bytes: Arc<AtomicU64>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl GivingBack {
    /// Bytes that remain.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    pub(super) fn wait(&self) {
        let thread = self.thread.lock().take();
        // The thread does not panic, because a drop does not fail.
        let _ = thread.map(JoinHandle::join);
    }

    /// Drops the memory; its pinned part later.
    pub(super) fn take<B: Backend>(&self, stored: Vec<Stored<B>>) {
        let (pinned, pageable): (Vec<_>, Vec<_>) =
            stored.into_iter().partition(|stored| matches!(stored, Stored::Pinned(_)));
        drop(pageable);
        if pinned.is_empty() {
            return;
        }
        self.wait();
        let bytes = Arc::clone(&self.bytes);
        bytes.fetch_add(pinned.iter().map(Stored::bytes).sum(), Ordering::Relaxed);
        let give_back = move || {
            for stored in pinned {
                let given = stored.bytes();
                drop(stored);
                bytes.fetch_sub(given, Ordering::Relaxed);
            }
        };
        // If no thread can be created, the closure and its contents are dropped here.
        let thread = std::thread::Builder::new().name("vrampool backups".into());
        let spawned = start_thread(|| thread.spawn(give_back));
        match spawned {
            Ok(thread) => *self.thread.lock() = Some(thread),
            Err(_) => self.bytes.store(0, Ordering::Relaxed),
        }
    }
}

impl Drop for GivingBack {
    fn drop(&mut self) {
        self.wait();
    }
}
