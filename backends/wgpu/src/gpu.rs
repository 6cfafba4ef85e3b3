//! The wgpu device and queue, wrapped so that no call panics and a lost device is detected.

use crate::deferred::DeferredErrors;
use crate::error::{blame, caught, now};
use crate::waiting::{Waited, Waiters, until};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, OnceLock};
use vrampool_backend::{BackendError, fork, logging};

/// How wgpu's message begins where [`wgpu::Device::poll`] panics, which it does when the driver says that the
/// device is lost.
const POLL_PANIC: &str = "Error in Device::poll";

/// Most attempts to identify a queue's device while other threads poll the device.
const QUEUE_ROUNDS: u32 = 64;

/// The granularity of offsets and lengths of copies and fills, bytes.
pub(crate) const GRANULARITY: u64 = wgpu::COPY_BUFFER_ALIGNMENT;

/// A device and its queue.
#[derive(Debug)]
pub(crate) struct Gpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    /// See [`check`](Self::check).
    probe: wgpu::Buffer,
    lost: Arc<OnceLock<String>>,
    progress: Arc<Progress>,
    deferred: DeferredErrors,
}

/// How far the device is with what was [submitted](Gpu::submit): the numbers of the last ones.
#[derive(Debug, Default)]
struct Progress {
    submitted: AtomicU64,
    done: AtomicU64,
    waiters: Waiters,
}

/// Says that a submission is done when it is dropped: by the callback that wgpu calls for it, or without
/// that, where another callback of those that the same poll was to call has panicked.
struct Done {
    progress: Arc<Progress>,
    number: u64,
}

impl Waited for Gpu {
    fn waiters(&self) -> &Waiters {
        &self.progress.waiters
    }

    fn drive(&self) {
        // A failure is the tasks' to report, which ask the device when they are woken.
        let _ = self.wait_idle();
    }
}

impl Drop for Done {
    fn drop(&mut self) {
        self.progress.done.fetch_max(self.number, Relaxed);
        self.progress.waiters.wake();
    }
}

/// A call that is always refused, with a validation error: in silence on a lost device alone.
fn call_refused(device: &wgpu::Device) {
    drop(word(device, wgpu::BufferUsages::empty()));
}

fn word(device: &wgpu::Device, usage: wgpu::BufferUsages) -> wgpu::Buffer {
    let descriptor = wgpu::BufferDescriptor { label: None, size: 4, usage, mapped_at_creation: false };
    device.create_buffer(&descriptor)
}

impl Gpu {
    /// A device that others use too: its handlers stay theirs.
    pub(crate) fn shared(device: wgpu::Device, queue: wgpu::Queue) -> Result<Self, BackendError> {
        let deferred = DeferredErrors::default();
        let make = || word(&device, wgpu::BufferUsages::COPY_DST);
        let probe = caught(&device, &deferred, "Device::create_buffer", make)?;
        let gpu = Self { device, queue, probe, lost: Arc::default(), progress: Arc::default(), deferred };
        if cfg!(target_arch = "wasm32") {
            // There, callbacks do not replace each other.
            gpu.listen_for_loss();
        }
        gpu.check_queue(&gpu.queue)?;
        gpu.check()?;
        gpu.ask("Queue::write_buffer", || gpu.queue.write_buffer(&gpu.probe, 0, &[0; 4]))
            .map_err(|error| blame("queue", error))?;
        Ok(gpu)
    }

    /// A device that nothing else has: it logs what nothing catches, and says why it was lost.
    pub(crate) fn own(device: wgpu::Device, queue: wgpu::Queue) -> Result<Self, BackendError> {
        device.on_uncaptured_error(Arc::new(|error| logging::error!("wgpu: {error}")));
        let gpu = Self::shared(device, queue)?;
        if !cfg!(target_arch = "wasm32") {
            gpu.listen_for_loss();
        }
        Ok(gpu)
    }

    fn listen_for_loss(&self) {
        let (lost, progress) = (Arc::clone(&self.lost), Arc::clone(&self.progress));
        self.device.set_device_lost_callback(move |reason, message| {
            let _ = lost.set(format!("{reason:?} {message}").trim_end().to_owned());
            progress.waiters.wake();
        });
    }

    /// Whether `other` is this device. A lost one is not.
    ///
    /// wgpu's own `==` compares numbers that every `wgpu::Instance` begins anew: two devices of two instances
    /// may be equal. So `other` is given a call that it refuses. A scope of its own catches the error, unless
    /// both are one device, whose innermost scope is this one's.
    pub(crate) fn is(&self, other: &wgpu::Device) -> bool {
        // In a browser, where errors are known later, the numbers are the process's.
        if self.device != *other || cfg!(target_arch = "wasm32") {
            return self.device == *other;
        }
        let outer = other.push_error_scope(wgpu::ErrorFilter::Validation);
        let inner = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        call_refused(other);
        let is_inner = now(inner.pop()).flatten().is_some();
        drop(now(outer.pop()));
        is_inner
    }

    /// Refuses a queue of another device: a wait for this device would not cover its submissions. Waits for
    /// earlier submissions.
    pub(crate) fn check_queue(&self, queue: &wgpu::Queue) -> Result<(), BackendError> {
        if cfg!(target_arch = "wasm32") {
            // Nothing can wait; a browser refuses the first write.
            return Ok(());
        }
        for _ in 0..QUEUE_ROUNDS {
            let (here, called) = (std::thread::current().id(), Arc::new(AtomicBool::new(false)));
            queue.submit([]);
            let call = Arc::clone(&called);
            // Another thread that polls may call it instead, of this device or of the other one.
            queue.on_submitted_work_done(move || call.store(std::thread::current().id() == here, Relaxed));
            self.wait_idle()?;
            if called.load(Relaxed) {
                return Ok(());
            }
        }
        // By the device alone: wgpu may panic over a buffer of one device and a queue of another.
        match caught(&self.device, &self.deferred, "", || call_refused(&self.device)) {
            Err(_) => Err(BackendError::invalid("queue", "it is another device's")),
            Ok(()) => Err(self.lose("wgpu takes no more calls")),
        }
    }

    pub(crate) fn device(&self) -> &wgpu::Device {
        &self.device
    }

    pub(crate) fn queue(&self) -> &wgpu::Queue {
        &self.queue
    }

    /// Whether it is known to be lost. Makes no call.
    pub(crate) fn check_known(&self) -> Result<(), BackendError> {
        fork::check()?;
        match self.lost.get() {
            None => Ok(()),
            Some(reason) => Err(BackendError::lost(reason.clone())),
        }
    }

    /// Whether it is lost. wgpu reports that to a callback, which may be the program's own, and lets calls on a
    /// lost device pass in silence. So here is a write that is always refused, its offset being odd: in
    /// silence on a lost device alone.
    pub(crate) fn check(&self) -> Result<(), BackendError> {
        self.check_known()?;
        if cfg!(target_arch = "wasm32") {
            // The callback is this crate's.
            return Ok(());
        }
        match caught(&self.device, &self.deferred, "", || self.queue.write_buffer(&self.probe, 1, &[])) {
            Err(_) => Ok(()),
            Ok(()) => Err(self.lose("wgpu takes no more calls")),
        }
    }

    /// The calls of one operation, their errors caught.
    pub(crate) fn ask<T>(&self, call: &'static str, calls: impl FnOnce() -> T) -> Result<T, BackendError> {
        self.check_known()?;
        caught(&self.device, &self.deferred, call, calls)
    }

    pub(crate) fn create_buffer(
        &self,
        label: &str,
        size: u64,
        usage: wgpu::BufferUsages,
        mapped_at_creation: bool,
    ) -> Result<wgpu::Buffer, BackendError> {
        let descriptor = wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation };
        self.ask("Device::create_buffer", || self.device.create_buffer(&descriptor))
    }

    /// Lets wgpu find out what is done, call back, and free what nothing uses.
    pub(crate) fn poll(&self) -> Result<(), BackendError> {
        self.poll_until(wgpu::PollType::Poll)
    }

    /// The same, once all that was submitted is done.
    pub(crate) fn wait_idle(&self) -> Result<(), BackendError> {
        self.poll_until(wgpu::PollType::wait_indefinitely())
    }

    /// Waits for nothing, or for all of it.
    fn poll_until(&self, until: wgpu::PollType) -> Result<(), BackendError> {
        self.check_known()?;
        let Progress { submitted, done, .. } = &*self.progress;
        let submitted = submitted.load(Acquire);
        if cfg!(target_arch = "wasm32") {
            // A browser polls by itself, between the calls.
            let waits = !matches!(until, wgpu::PollType::Poll) && done.load(Relaxed) < submitted;
            return if waits { Err(BackendError::would_block("waiting for the device")) } else { Ok(()) };
        }
        match catch_unwind(AssertUnwindSafe(|| self.device.poll(until))) {
            Ok(Ok(status)) => {
                if status.wait_finished() {
                    // Another thread may have taken the callbacks that say so, and be about to call them.
                    done.fetch_max(submitted, Relaxed);
                }
                Ok(())
            }
            Ok(Err(error)) => {
                self.check()?;
                Err(BackendError::driver("Device::poll", 0, error.to_string()))
            }
            Err(panic) => match panic.downcast_ref::<String>() {
                Some(message) if message.starts_with(POLL_PANIC) => Err(self.lose(message)),
                // A callback of the program's own panicked.
                _ => resume_unwind(panic),
            },
        }
    }

    /// Submits commands, and returns the submission's number, for [`is_done`](Self::is_done).
    pub(crate) fn submit(&self, commands: impl IntoIterator<Item = wgpu::CommandBuffer>) -> u64 {
        self.queue.submit(commands);
        // After the submission, and before the request for its callback: a completed submission implies that
        // earlier ones are complete. Release: pairs with the acquire in `poll_until`, which waits for at
        // least all submissions that have a number by then.
        let number = self.progress.submitted.fetch_add(1, AcqRel) + 1;
        let done = Done { progress: Arc::clone(&self.progress), number };
        self.queue.on_submitted_work_done(move || drop(done));
        number
    }

    /// Whether a submission is complete. This does not use a wait with a timeout of zero: wgpu panics in such a
    /// wait if another thread's call comes between its two checks, of the device and of pending work.
    pub(crate) fn is_done(&self, number: u64) -> Result<bool, BackendError> {
        // Relaxed: what the device wrote is read by the device, or by the host behind a wait.
        let is_done = || self.progress.done.load(Relaxed) >= number;
        if !is_done() {
            self.poll()?;
            if !is_done() {
                // On a lost device it would never be.
                self.check()?;
            }
        }
        Ok(is_done())
    }

    /// The number of the last submission.
    pub(crate) fn submitted(&self) -> u64 {
        self.progress.submitted.load(Acquire)
    }

    /// Whether the device is known to be done with a submission. Makes no call.
    pub(crate) fn is_known_done(&self, number: u64) -> bool {
        // A lost device does nothing any more.
        self.progress.done.load(Relaxed) >= number || self.lost.get().is_some()
    }

    /// Waits, as a future, until the device is done with a submission.
    pub(crate) async fn reached(self: &Arc<Self>, number: u64) -> Result<(), BackendError> {
        until(self, || {
            fork::check()?;
            Ok(self.is_done(number)?.then_some(()))
        })
        .await
    }

    /// Waits, as a future, for errors that are known later than the call. Reports the first one, once.
    pub(crate) async fn deferred_errors(self: &Arc<Self>) -> Result<(), BackendError> {
        poll_fn(|context| {
            // A scope wakes the task alone that polled it last, which wakes the others in the end.
            self.waiters().register(context.waker());
            let known = self.deferred.poll(context);
            if known.is_ready() {
                self.waiters().wake();
            }
            known
        })
        .await?;
        self.check()
    }

    /// Returns a callback for wgpu that wakes the tasks that wait for this device.
    pub(crate) fn waker(&self) -> impl FnOnce() + Send + 'static + use<> {
        let progress = Arc::clone(&self.progress);
        move || progress.waiters.wake()
    }

    fn lose(&self, reason: &str) -> BackendError {
        let reason = self.lost.get_or_init(|| reason.to_owned());
        BackendError::lost(reason.clone())
    }
}
