//! Points in the order of a device's work.

use crate::shared::Shared;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use vrampool_backend::{BackendError, Event};

/// Commands that go to the queue together, and what became of them.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    outcome: OnceLock<Result<wgpu::SubmissionIndex, BackendError>>,
    done: AtomicBool,
}

impl Batch {
    pub(crate) fn settle(&self, outcome: Result<wgpu::SubmissionIndex, BackendError>) {
        let _ = self.outcome.set(outcome);
    }
}

/// A point in a [`WgpuStream`](crate::WgpuStream).
///
/// Making one does not submit anything. Asking it does, if what it marks is not submitted yet, so that it comes true.
#[derive(Debug)]
pub struct WgpuEvent {
    batch: Arc<Batch>,
    device: Arc<Shared>,
}

impl WgpuEvent {
    pub(crate) fn new(batch: Arc<Batch>, device: &Arc<Shared>) -> Self {
        Self { batch, device: Arc::clone(device) }
    }

    pub(crate) fn device(&self) -> &Arc<Shared> {
        &self.device
    }
}

impl Event for WgpuEvent {
    fn is_complete(&self) -> Result<bool, BackendError> {
        // Relaxed: what the device wrote is read by the device, or by the host behind a wait.
        if self.batch.done.load(Ordering::Relaxed) {
            return Ok(true);
        }
        self.device.recorder().submit_through(self.device.gpu(), &self.batch)?;
        let index = match self.batch.outcome.get() {
            Some(Ok(index)) => index.clone(),
            Some(Err(error)) => return Err(error.clone()),
            // A callback of wgpu's asks, from within the submission.
            None => return Ok(false),
        };
        let now = wgpu::PollType::Wait { submission_index: Some(index), timeout: Some(Duration::ZERO) };
        let done = self.device.gpu().poll(now)?;
        self.batch.done.fetch_or(done, Ordering::Relaxed);
        Ok(done)
    }
}
