//! Handles to the one queue of a device.

use crate::memory::WgpuMemory;
use crate::shared::DeviceCore;
use vrampool_backend::{
    BackendError, DeviceId, Region, Stream, StreamId, arguments,
    fork::{self, ForkArc},
};

/// A handle to the queue of a [`WgpuDevice`](crate::WgpuDevice), with its own id.
///
/// Work of all streams is done in the order of the calls. The pool's operations are not submitted one by one:
/// what the program submits itself goes through [`submit`](Self::submit) or [`encode`](Self::encode), which
/// put it in order, or straight to wgpu's queue while it holds a [view](Self::view) of each region that it
/// uses.
#[derive(Debug, Clone)]
pub struct WgpuStream {
    pub(crate) id: StreamId,
    pub(crate) device: ForkArc<DeviceCore>,
}

impl WgpuStream {
    /// Submits all that was enqueued on the device's streams so far. Does not wait for it.
    ///
    /// # Errors
    /// Errors that wgpu reports for that work.
    pub fn flush(&self) -> Result<(), BackendError> {
        fork::check()?;
        self.device.recorder.flush(&self.device.gpu)
    }

    /// Submits the program's own command buffers, behind everything that was enqueued and before everything
    /// that will be.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] with wgpu's text when it refuses them: then nothing of them is done.
    /// Else as [`flush`](Self::flush).
    pub fn submit(
        &self,
        commands: impl IntoIterator<Item = wgpu::CommandBuffer>,
    ) -> Result<(), BackendError> {
        if fork::is_forked() {
            // They are the parent's: they are never dropped here.
            std::mem::forget(commands);
            return Err(BackendError::Forked);
        }
        self.device.recorder.submit_others(&self.device.gpu, commands)
    }

    /// Has `record` record commands, and submits them as [`submit`](Self::submit) does. Answers what `record`
    /// answers.
    ///
    /// # Errors
    /// As [`submit`](Self::submit).
    pub fn encode<T>(&self, record: impl FnOnce(&mut wgpu::CommandEncoder) -> T) -> Result<T, BackendError> {
        let gpu = &self.device.gpu;
        let (commands, answer) = gpu
            .ask("CommandEncoder", || {
                let mut encoder =
                    gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
                let answer = record(&mut encoder);
                (encoder.finish(), answer)
            })
            .map_err(|error| crate::error::blame("commands", error))?;
        self.submit([commands])?;
        Ok(answer)
    }

    /// Refuses regions of other streams and devices, and a written one that overlaps another one.
    pub(crate) fn check_regions(
        &self,
        read: &[&Region<'_, WgpuMemory>],
        written: &[&Region<'_, WgpuMemory>],
    ) -> Result<(), BackendError> {
        let is_own = |memory: &WgpuMemory| memory.device.id == self.device.id;
        arguments::check_regions(self, read.iter().copied(), written.iter().copied(), is_own)
    }
}

impl Stream for WgpuStream {
    fn id(&self) -> StreamId {
        self.id
    }

    fn device(&self) -> DeviceId {
        self.device.id
    }
}
