//! Opens devices: one state for each device of wgpu's, shared by all its handles.

use crate::error::now;
use crate::gpu::Gpu;
use crate::listing;
use crate::shared::{DeviceCore, Identity};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_backend::spi::OpenDevices;
use vrampool_backend::{BackendError, fork};

/// Every device that has a handle, so that a device of wgpu's has one order of work.
static OPEN: OpenDevices<DeviceCore> = OpenDevices::new();

/// The number of listed devices that were found lost, and opened again.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Opens the adapter of this number in the list, or returns the open one unless it is lost.
pub(crate) fn open(ordinal: usize) -> Result<Arc<DeviceCore>, BackendError> {
    fork::opening()?;
    let is_lost = Cell::new(false);
    let is_it = |core: &DeviceCore| {
        let is_alive = core.is_listed(ordinal) && core.gpu.check().is_ok();
        is_lost.set(is_lost.get() || core.is_listed(ordinal) && !is_alive);
        is_alive
    };
    OPEN.find_or_open(is_it, || {
        // Relaxed: one device is opened at a time.
        LOST.fetch_add(u64::from(is_lost.get()), Ordering::Relaxed);
        now(request_anew(ordinal)).ok_or_else(|| BackendError::would_block("opening a device"))?
    })
}

/// As [`open`], as a future, for browsers.
pub(crate) async fn request(ordinal: usize) -> Result<Arc<DeviceCore>, BackendError> {
    let is_it = |core: &DeviceCore| core.is_listed(ordinal) && core.gpu.check().is_ok();
    if let Some(core) = OPEN.find(is_it) {
        return Ok(core);
    }
    // A lost one may have handles still: the new one is another device.
    let has_lost = OPEN.find(|core: &DeviceCore| core.is_listed(ordinal)).is_some();
    LOST.fetch_add(u64::from(has_lost), Ordering::Relaxed);
    let new = request_anew(ordinal).await?;
    // Another task may have opened it meanwhile.
    OPEN.find_or_open(is_it, || Ok(new))
}

async fn request_anew(ordinal: usize) -> Result<DeviceCore, BackendError> {
    let mut adapters = listing::request_adapters().await?;
    if ordinal >= adapters.len() {
        let reason = format!("there are {} devices", adapters.len());
        return Err(BackendError::invalid("ordinal", reason));
    }
    let adapter = adapters.swap_remove(ordinal);
    let device = adapter.request_device(&wgpu::DeviceDescriptor {
        label: Some("vrampool"),
        required_features: adapter.features() & wgpu::Features::MAPPABLE_PRIMARY_BUFFERS,
        required_limits: adapter.limits(),
        // Small blocks: the pool keeps memory, and what it returns must reach the driver.
        memory_hints: wgpu::MemoryHints::MemoryUsage,
        ..wgpu::DeviceDescriptor::default()
    });
    let failed = |message| BackendError::driver("Adapter::request_device", 0, message);
    let (device, queue) = device.await.map_err(|error| failed(error.to_string()))?;
    let listed = listing::describe(ordinal, &adapter.get_info());
    let gpu = Arc::new(Gpu::own(device, queue)?);
    let id = Identity::Listed { ordinal, times_lost: LOST.load(Ordering::Relaxed) };
    Ok(DeviceCore::new(gpu, listed, id, None))
}

/// The state of a program's own device, one for each device.
pub(crate) fn adopt(device: wgpu::Device, queue: wgpu::Queue) -> Result<Arc<DeviceCore>, BackendError> {
    if let Err(error) = fork::opening() {
        // Both are the parent's: they are never dropped here.
        std::mem::forget((device, queue));
        return Err(error);
    }
    let (searched, its_queue, mut is_new) = (device.clone(), queue.clone(), false);
    let core = OPEN.find_or_open(
        |core| core.gpu.is(&searched),
        || {
            is_new = true;
            let listed = listing::describe(0, &device.adapter_info());
            let gpu = Arc::new(Gpu::shared(device, queue)?);
            Ok::<_, BackendError>(DeviceCore::new(gpu, listed, Identity::Unlisted, None))
        },
    )?;
    if !is_new {
        core.gpu.check_queue(&its_queue)?;
    }
    Ok(core)
}
