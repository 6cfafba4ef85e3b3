//! Releases the pinned memory of backups.

use crate::host_copy::HostCopy;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use vrampool::Backend;
use vrampool::backend::spi::start_thread;

/// Pinned memory that a separate thread releases, because that takes as long as copying it. Only a later use
/// of pinned memory, and the drop of the arena, wait for that thread.
#[derive(Debug, Default)]
pub(super) struct Released {
    bytes: Arc<AtomicU64>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Released {
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
    pub(super) fn take<B: Backend>(&self, stored: Vec<Arc<HostCopy<B>>>) {
        let (pinned, pageable): (Vec<_>, Vec<_>) = stored.into_iter().partition(|stored| stored.is_pinned());
        drop(pageable);
        if pinned.is_empty() {
            return;
        }
        self.wait();
        let bytes = Arc::clone(&self.bytes);
        bytes.fetch_add(pinned.iter().map(|stored| stored.bytes()).sum(), Ordering::Relaxed);
        let release = move || {
            for stored in pinned {
                let released = stored.bytes();
                drop(stored);
                bytes.fetch_sub(released, Ordering::Relaxed);
            }
        };
        // If no thread can be created, the closure and its contents are dropped here.
        let thread = std::thread::Builder::new().name("vrampool backups".into());
        let spawned = start_thread(|| thread.spawn(release));
        match spawned {
            Ok(thread) => *self.thread.lock() = Some(thread),
            Err(_) => self.bytes.store(0, Ordering::Relaxed),
        }
    }
}

impl Drop for Released {
    fn drop(&mut self) {
        self.wait();
    }
}
