//! wgpu's device and queue, asked so that nothing panics and a loss shows.

use crate::driver;
use crate::error::{blame, caught};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, OnceLock};
use vrampool_backend::BackendError;

/// How wgpu's message begins where [`wgpu::Device::poll`] panics, which it does when the driver says that the device is lost.
const POLL_PANIC: &str = "Error in Device::poll";

/// How it begins where that panics because another thread's call came between its two looks: the queue is empty by the second, and
/// what had been submitted was not done by the first. So all of it is done.
const EMPTY_PANIC: &str = "If the queue is empty, the current submission index";

/// A device and its queue.
#[derive(Debug)]
pub(crate) struct Gpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    /// See [`check`](Self::check).
    probe: wgpu::Buffer,
    lost: Arc<OnceLock<String>>,
    /// What the driver calls it, where that is known.
    handle: Option<u64>,
}

impl Gpu {
    /// A device that others use too: its handlers stay theirs.
    pub(crate) fn shared(device: wgpu::Device, queue: wgpu::Queue) -> Result<Self, BackendError> {
        let other = || BackendError::invalid("queue", "it is another device's");
        let handle = match driver::handles(&device, &queue) {
            Some((device, queue)) if device != queue => return Err(other()),
            handles => handles.map(|(device, _)| device),
        };
        let probe = caught(&device, "Device::create_buffer", || {
            let usage = wgpu::BufferUsages::COPY_DST;
            device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: 4,
                usage,
                mapped_at_creation: false,
            })
        })?;
        let gpu = Self { device, queue, probe, lost: Arc::default(), handle };
        gpu.check()?;
        caught(&gpu.device, "Queue::write_buffer", || gpu.queue.write_buffer(&gpu.probe, 0, &[0; 4]))
            .map_err(|error| blame("queue", error))?;
        Ok(gpu)
    }

    /// A device that nobody else has: it logs what nobody catches, and says why it was lost.
    pub(crate) fn own(device: wgpu::Device, queue: wgpu::Queue) -> Result<Self, BackendError> {
        device.on_uncaptured_error(Arc::new(|error| log::error!("wgpu: {error}")));
        let gpu = Self::shared(device, queue)?;
        let lost = Arc::clone(&gpu.lost);
        gpu.device.set_device_lost_callback(move |reason, message| {
            let _ = lost.set(format!("{reason:?} {message}").trim_end().to_owned());
        });
        Ok(gpu)
    }

    /// Whether it is this device. What cannot be told is another one.
    pub(crate) fn is(&self, device: &wgpu::Device, queue: &wgpu::Queue) -> bool {
        let handles = driver::handles(device, queue);
        handles.is_some_and(|(device, queue)| device == queue && self.handle == Some(device))
    }

    pub(crate) fn device(&self) -> &wgpu::Device {
        &self.device
    }

    pub(crate) fn queue(&self) -> &wgpu::Queue {
        &self.queue
    }

    /// Whether it is known to be lost. Asks nobody.
    pub(crate) fn check_known(&self) -> Result<(), BackendError> {
        match self.lost.get() {
            None => Ok(()),
            Some(reason) => Err(BackendError::DeviceLost { reason: reason.clone() }),
        }
    }

    /// Whether it is lost. wgpu tells that to a callback, which may be the program's own, and lets calls on a lost device
    /// pass in silence. So here is a write that is always refused, its offset being odd: in silence on a lost device alone.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        self.check_known()?;
        match caught(&self.device, "", || self.queue.write_buffer(&self.probe, 1, &[])) {
            Err(_) => Ok(()),
            Ok(()) => Err(self.lose("wgpu takes no more calls")),
        }
    }

    /// The calls of one operation, their errors caught.
    pub(crate) fn ask<T>(&self, call: &'static str, calls: impl FnOnce() -> T) -> Result<T, BackendError> {
        self.check_known()?;
        caught(&self.device, call, calls)
    }

    /// Lets wgpu find out what is done, call back, and free what nobody uses. Answers whether what `until` waits for is done.
    pub(crate) fn poll(&self, until: wgpu::PollType) -> Result<bool, BackendError> {
        self.check_known()?;
        match catch_unwind(AssertUnwindSafe(|| self.device.poll(until))) {
            Ok(Ok(_)) => Ok(true),
            Ok(Err(wgpu::PollError::Timeout)) => Ok(false),
            Ok(Err(error)) => {
                self.check()?;
                Err(BackendError::Driver { call: "Device::poll", code: 0, message: error.to_string() })
            }
            Err(panic) => match panic.downcast_ref::<String>() {
                Some(message) if message.starts_with(POLL_PANIC) => Err(self.lose(message)),
                Some(message) if message.starts_with(EMPTY_PANIC) => Ok(true),
                // A callback of the program's own panicked.
                _ => resume_unwind(panic),
            },
        }
    }

    /// Waits for all that was submitted.
    pub(crate) fn wait_idle(&self) -> Result<(), BackendError> {
        self.poll(wgpu::PollType::wait_indefinitely()).map(|_| ())
    }

    fn lose(&self, reason: &str) -> BackendError {
        let reason = self.lost.get_or_init(|| reason.to_owned());
        BackendError::DeviceLost { reason: reason.clone() }
    }
}
