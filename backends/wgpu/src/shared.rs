//! What the handles to a device have in common.

use crate::account::Account;
use crate::device::BACKEND;
use crate::driver;
use crate::gpu::Gpu;
use crate::listing::Listed;
use crate::memory::GRANULARITY;
use crate::recorder::Recorder;
use crate::staging::Readbacks;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use vrampool_backend::{Capabilities, DeviceId, Properties};

/// What a device's handles, streams, events and memory share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) id: DeviceId,
    pub(crate) properties: Properties,
    pub(crate) listed: Listed,
    limits: wgpu::Limits,
    /// Of a device [with a limit](crate::WgpuDevice::with_memory_limit).
    pub(crate) account: Option<Arc<Account>>,
    readbacks: Readbacks,
    /// Where large fills are copied from, on the device.
    pattern: OnceLock<wgpu::Buffer>,
    pub(crate) recorder: Recorder,
    pub(crate) gpu: Arc<Gpu>,
}

impl Shared {
    pub(crate) fn id(&self) -> DeviceId {
        self.id
    }

    pub(crate) fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }

    pub(crate) fn readbacks(&self) -> &Readbacks {
        &self.readbacks
    }

    pub(crate) fn pattern_cell(&self) -> &OnceLock<wgpu::Buffer> {
        &self.pattern
    }

    pub(crate) fn limits(&self) -> &wgpu::Limits {
        &self.limits
    }

    pub(crate) fn new(gpu: Arc<Gpu>, listed: Listed, limit: Option<u64>) -> Self {
        static OPENED: AtomicU64 = AtomicU64::new(0);
        let limits = gpu.device().limits();
        let mut properties = Properties::new(BACKEND, listed.name.clone());
        properties.kind = listed.kind;
        // A device that does not tell has as much as it lets one buffer have.
        let total = driver::heap(gpu.device()).map_or(limits.max_buffer_size, |heap| heap.total);
        properties.total_bytes = limit.map_or(total, |limit| limit.min(total));
        properties.max_allocation = limits.max_buffer_size / GRANULARITY * GRANULARITY;
        let alignments =
            [limits.min_storage_buffer_offset_alignment, limits.min_uniform_buffer_offset_alignment];
        properties.alignment = alignments.into_iter().map(u64::from).fold(wgpu::MAP_ALIGNMENT, u64::max);
        properties.copy_granularity = GRANULARITY;
        properties.capabilities.set(Capabilities::HOST_VISIBLE, driver::can_map(gpu.device()));
        Self {
            // Relaxed: only distinctness matters.
            id: DeviceId { backend: BACKEND, key: u128::from(OPENED.fetch_add(1, Ordering::Relaxed)) },
            properties,
            listed,
            recorder: Recorder::new(&limits),
            limits,
            account: limit.map(Account::new),
            readbacks: Readbacks::default(),
            pattern: OnceLock::new(),
            gpu,
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // What was enqueued is done, even if nobody can ask any more: other code may have the buffers. A failure has
        // nobody to go to.
        let _ = self.recorder.flush(&self.gpu);
    }
}
