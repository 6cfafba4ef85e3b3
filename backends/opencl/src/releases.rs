//! Releases memory to the driver on a separate thread.
//!
//! NVIDIA's driver waits for all work of the device when a buffer is released, as it does when CUDA frees
//! memory, and netcl found that this delays uploads and steps. On a device with separate memory, a drop
//! therefore queues the release for this thread.

use crate::driver::Allocation;
use parking_lot::{Condvar, Mutex};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use vrampool_backend::spi::start_thread;

/// The thread starts at the first release and ends with the device.
#[derive(Debug, Default)]
pub(crate) struct Releases {
    thread: OnceLock<Option<Thread>>,
    pending: Arc<Pending>,
}

#[derive(Debug)]
struct Thread {
    queue: Sender<Arc<Allocation>>,
    handle: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Pending {
    bytes: Mutex<u64>,
    none: Condvar,
}

impl Releases {
    pub(crate) fn push(&self, allocation: Arc<Allocation>) {
        let thread = self.thread.get_or_init(|| {
            let (queue, released) = channel();
            let pending = Arc::clone(&self.pending);
            let builder = std::thread::Builder::new().name("vrampool opencl release".into());
            let handle = start_thread(|| builder.spawn(move || pending.release(&released))).ok()?;
            Some(Thread { queue, handle })
        });
        *self.pending.bytes.lock() += allocation.len();
        // Without a thread it is released here.
        if let Err(allocation) = match thread {
            Some(thread) => thread.queue.send(allocation).map_err(|unsent| unsent.0),
            None => Err(allocation),
        } {
            self.pending.done(allocation);
        }
    }

    /// Bytes that were dropped and are not released yet.
    pub(crate) fn bytes(&self) -> u64 {
        *self.pending.bytes.lock()
    }

    /// Waits until all is released.
    pub(crate) fn finish(&self) {
        let mut bytes = self.pending.bytes.lock();
        while *bytes > 0 {
            self.pending.none.wait(&mut bytes);
        }
    }
}

impl Pending {
    fn release(&self, released: &Receiver<Arc<Allocation>>) {
        for allocation in released {
            // The code that dropped it may have hold of it for another moment, and the last one releases it.
            while Arc::strong_count(&allocation) > 1 {
                std::thread::yield_now();
            }
            self.done(allocation);
        }
    }

    fn done(&self, allocation: Arc<Allocation>) {
        let len = allocation.len();
        drop(allocation);
        let mut bytes = self.bytes.lock();
        *bytes -= len;
        if *bytes == 0 {
            self.none.notify_all();
        }
    }
}

impl Drop for Releases {
    fn drop(&mut self) {
        if let Some(Thread { queue, handle }) = self.thread.take().flatten() {
            drop(queue);
            // It cannot have panicked; if it has, there is nothing to do about it.
            let _ = handle.join();
        }
    }
}
