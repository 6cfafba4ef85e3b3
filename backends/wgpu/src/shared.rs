//! The state that all handles of a device share.

use crate::driver;
use crate::dropped::{self, Dropped};
use crate::gpu::{GRANULARITY, Gpu};
use crate::listing::BACKEND;
use crate::partial_word::PartialWord;
use crate::recorder::Recorder;
use crate::staging::{Readbacks, Sizes};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use vrampool_backend::spi::{Grant, Ledger, allocate_with_dropped};
use vrampool_backend::{BackendError, Capabilities, DeviceId, DeviceListing, Properties};

/// The common state of a device's handles, streams, events and memory.
#[derive(Debug)]
pub(crate) struct DeviceCore {
    pub(crate) gpu: Arc<Gpu>,
    pub(crate) id: DeviceId,
    pub(crate) properties: Properties,
    pub(crate) listed: DeviceListing,
    pub(crate) limits: wgpu::Limits,
    /// Of a device [with a limit](crate::WgpuDevice::with_memory_limit).
    pub(crate) ledger: Option<Ledger>,
    /// Dropped, and not yet known to be wgpu's no more.
    dropped: Dropped,
    /// Of staging buffers.
    pub(crate) sizes: Sizes,
    pub(crate) readbacks: Readbacks,
    /// Where large fills are copied from, on the device.
    pub(crate) pattern: OnceLock<wgpu::Buffer>,
    pub(crate) partial_word: OnceLock<PartialWord>,
    pub(crate) recorder: Recorder,
}

impl DeviceCore {
    /// Releases dropped memory once the device's work on it is complete. Never waits for the device.
    pub(crate) fn defer_release(&self, buffer: &wgpu::Buffer, grant: Option<Grant>) {
        if cfg!(target_arch = "wasm32") {
            self.recorder.destroy(buffer);
        }
        let point = self.recorder.point(&self.gpu);
        if self.dropped.push(&self.gpu, point, buffer.size(), grant) > dropped::MOST {
            // A failure of that work is reported by its events, and a lost device by the next call.
            let _ = self.recorder.flush(&self.gpu);
        }
    }

    /// Lets wgpu free what nothing uses; where that leaves too much, waits for the work that does.
    pub(crate) fn limit_dropped(&self) -> Result<(), BackendError> {
        self.gpu.poll()?;
        match self.dropped.bytes(&self.gpu) > dropped::MOST {
            true => self.finish_dropped(),
            false => Ok(()),
        }
    }

    /// Submits the list, and waits until wgpu has freed all that was dropped.
    pub(crate) fn finish_dropped(&self) -> Result<(), BackendError> {
        self.recorder.flush(&self.gpu)?;
        self.gpu.wait_idle()?;
        self.dropped.bytes(&self.gpu);
        Ok(())
    }

    /// Counts bytes as taken if the device has a limit. When none are left, waits for dropped memory to become
    /// free.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Option<Grant>, BackendError> {
        let Some(ledger) = &self.ledger else { return Ok(None) };
        let dropped = || self.dropped.bytes(&self.gpu);
        let reserve = || {
            ledger.reserve(bytes).map_err(|error| match error {
                BackendError::OutOfMemory { .. } => BackendError::out_of_memory(bytes, Some(ledger.free())),
                error => error,
            })
        };
        allocate_with_dropped(dropped, || self.finish_dropped(), reserve).map(Some)
    }

    /// As [`finish_dropped`](Self::finish_dropped), and idle staging buffers go too.
    pub(crate) fn reclaim(&self) -> Result<(), BackendError> {
        self.recorder.flush(&self.gpu)?;
        self.gpu.wait_idle()?;
        self.recorder.trim();
        self.readbacks.trim();
        self.finish_dropped()
    }

    /// Bytes that a device with a limit has left.
    pub(crate) fn free_bytes(&self) -> Option<u64> {
        let ledger = self.ledger.as_ref()?;
        self.dropped.bytes(&self.gpu);
        Some(ledger.free())
    }

    /// Whether it was opened by this number of the list.
    pub(crate) fn is_listed(&self, ordinal: usize) -> bool {
        self.id.key & (1 << 127 | u128::from(u64::MAX)) == ordinal as u128
    }

    pub(crate) fn new(gpu: Arc<Gpu>, listed: DeviceListing, id: Identity, limit: Option<u64>) -> Self {
        let limits = gpu.device().limits();
        let mut properties = Properties::new(BACKEND, listed.device.clone());
        properties.kind = listed.kind;
        // A device that does not report it has as much as it lets one buffer have.
        let total = driver::heap(gpu.device()).map_or(limits.max_buffer_size, |heap| heap.total);
        properties.total_bytes = limit.map_or(total, |limit| limit.min(total));
        properties.max_allocation = limits.max_buffer_size / GRANULARITY * GRANULARITY;
        let alignments =
            [limits.min_storage_buffer_offset_alignment, limits.min_uniform_buffer_offset_alignment];
        properties.alignment = alignments.into_iter().map(u64::from).fold(wgpu::MAP_ALIGNMENT, u64::max);
        properties.copy_granularity = GRANULARITY;
        properties.capabilities.set(Capabilities::HOST_VISIBLE, driver::can_map(gpu.device()));
        Self {
            id: DeviceId::new(BACKEND, id.key()),
            properties,
            listed,
            recorder: Recorder::new(&limits),
            dropped: Dropped::default(),
            sizes: Sizes::new(&limits),
            readbacks: Readbacks::new(Sizes::new(&limits)),
            limits,
            ledger: limit.map(Ledger::new),
            pattern: OnceLock::new(),
            partial_word: OnceLock::new(),
            gpu,
        }
    }
}

/// Which device it is, among all that there ever are.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Identity {
    /// The one that each caller gets that opens the number. Reads as in the list, until one is lost.
    Listed { ordinal: usize, times_lost: u64 },
    /// Any other. No such id reads as one of the list.
    Unlisted,
}

impl Identity {
    fn key(self) -> u128 {
        static UNLISTED: AtomicU64 = AtomicU64::new(0);
        match self {
            Self::Listed { ordinal, times_lost } => (u128::from(times_lost) << 64) | ordinal as u128,
            // Relaxed: only distinctness matters.
            Self::Unlisted => (1 << 127) | u128::from(UNLISTED.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

impl Drop for DeviceCore {
    fn drop(&mut self) {
        // Recorded work is submitted, because other code may have the buffers. A failure cannot be reported.
        let _ = self.recorder.flush(&self.gpu);
    }
}
