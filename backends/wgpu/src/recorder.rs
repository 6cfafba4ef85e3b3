//! The one order of a device's work: commands are appended to a list, and lists go to the queue.

use crate::batch::Batch;
use crate::dropped::Point;
use crate::error::blame;
use crate::gpu::Gpu;
use crate::staging::{Chunk, Sizes, Uploads};
use parking_lot::{Mutex, ReentrantMutex};
use std::cell::RefCell;
use std::num::NonZero;
use std::sync::Arc;
use vrampool_backend::BackendError;

/// Operations in one submission at most, where the parameters of as many dispatches fit in a buffer of the
/// device.
const MOST_OPERATIONS: u64 = 64;
/// Bytes of uploads in one submission at most, so that their staging memory comes back.
const MOST_STAGED: u64 = 32 << 20;

/// The recorder of commands for all streams of a device.
///
/// The lock is held until a list is at the queue, so that lists get there in order. wgpu calls back from
/// within a submission: a callback that uses the device finds the lock its own and the next list already
/// begun.
#[derive(Debug)]
pub(crate) struct Recorder {
    open: ReentrantMutex<RefCell<Open>>,
    uploads: Uploads,
    /// Buffers that a browser has to destroy behind the list.
    doomed: Mutex<Vec<wgpu::Buffer>>,
    /// Bytes between the parameters of one dispatch and of the next.
    stride: u64,
    /// Operations in one submission at most: each submission costs, and the device idles while operations
    /// wait for theirs.
    most_operations: u32,
}

/// The list that is being recorded.
#[derive(Debug, Default)]
struct Open {
    batch: Arc<Batch>,
    encoder: Option<wgpu::CommandEncoder>,
    operations: u32,
    staged: u64,
    chunks: Vec<Chunk>,
    /// Parameters of the dispatches in this list, written to `uniforms` when it is submitted.
    parameters: Vec<u8>,
    uniforms: Option<wgpu::Buffer>,
}

/// One operation's way to the list.
pub(crate) struct Commands<'a> {
    gpu: &'a Gpu,
    open: &'a mut Open,
    uploads: &'a Uploads,
    stride: u64,
    /// Bytes of the parameters of one list.
    uniforms: u64,
}

impl Recorder {
    pub(crate) fn new(limits: &wgpu::Limits) -> Self {
        let stride = u64::from(limits.min_uniform_buffer_offset_alignment).max(PARAMETERS);
        let most_operations = (limits.max_buffer_size / stride).clamp(1, MOST_OPERATIONS) as u32;
        let uploads = Uploads::new(Sizes::new(limits));
        Self { open: ReentrantMutex::default(), uploads, doomed: Mutex::default(), stride, most_operations }
    }

    /// Appends what `record` records. Submits the list when it is full.
    pub(crate) fn record(
        &self,
        gpu: &Gpu,
        record: impl FnOnce(&mut Commands<'_>) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let open = self.open.lock();
        let full = {
            let mut open = open.borrow_mut();
            let (uploads, uniforms) = (&self.uploads, self.stride * u64::from(self.most_operations));
            let stride = self.stride;
            let commands = || record(&mut Commands { gpu, open: &mut open, uploads, stride, uniforms });
            gpu.ask("CommandEncoder", commands)??;
            open.operations += 1;
            open.operations >= self.most_operations || open.staged >= MOST_STAGED
        };
        if full { self.submit(gpu) } else { Ok(()) }
    }

    /// Where the order is now: the list that is being recorded. It is submitted behind all that was submitted
    /// so far, by the program too.
    pub(crate) fn mark(&self) -> Arc<Batch> {
        Arc::clone(&self.open.lock().borrow().batch)
    }

    /// How far the device has to be so that nothing of what was enqueued so far is under way.
    pub(crate) fn point(&self, gpu: &Gpu) -> Point {
        let open = self.open.lock();
        match open.try_borrow() {
            Ok(open) if open.operations == 0 => Point::Submission(gpu.submitted()),
            Ok(open) => Point::List(Arc::clone(&open.batch)),
            // This thread is recording, and drops something of its own meanwhile.
            Err(_) => Point::Submission(gpu.submitted()),
        }
    }

    /// Submits the list if there is something in it.
    pub(crate) fn flush(&self, gpu: &Gpu) -> Result<(), BackendError> {
        let open = self.open.lock();
        let empty = open.borrow().operations == 0;
        if empty { gpu.check_known() } else { self.submit(gpu) }
    }

    /// Submits the list if there is something in it, or an event marks it. Returns the number of the last submission.
    pub(crate) fn close_list(&self, gpu: &Gpu) -> Result<u64, BackendError> {
        let open = self.open.lock();
        let marked = Arc::strong_count(&open.borrow().batch) > 1;
        if marked { self.submit(gpu) } else { self.flush(gpu) }?;
        Ok(gpu.submitted())
    }

    /// Destroys a buffer that nothing uses any more, behind what was recorded so far. Only in a browser, which else keeps its
    /// memory until its garbage is collected.
    pub(crate) fn destroy(&self, buffer: &wgpu::Buffer) {
        let open = self.open.lock();
        match open.try_borrow() {
            Ok(open) if open.operations == 0 => buffer.destroy(),
            _ => self.doomed.lock().push(buffer.clone()),
        }
    }

    /// Submits the list as [`close_list`](Self::close_list) does, and waits for all that was submitted.
    pub(crate) fn finish(&self, gpu: &Gpu) -> Result<(), BackendError> {
        self.close_list(gpu)?;
        gpu.wait_idle()?;
        gpu.check()
    }

    /// Submits the list if it is this one, empty or not.
    pub(crate) fn submit_through(&self, gpu: &Gpu, batch: &Batch) -> Result<(), BackendError> {
        let open = self.open.lock();
        let current = std::ptr::eq(&*open.borrow().batch, batch);
        if current { self.submit(gpu) } else { Ok(()) }
    }

    /// Submits the list, and behind it what the program recorded.
    pub(crate) fn submit_others(
        &self,
        gpu: &Gpu,
        commands: impl IntoIterator<Item = wgpu::CommandBuffer>,
    ) -> Result<(), BackendError> {
        let _open = self.open.lock();
        self.flush(gpu)?;
        // By itself, because one command that is refused takes all of its submission with it.
        let submitted = gpu.ask("Queue::submit", || gpu.submit(commands));
        submitted.map_err(|error| blame("commands", error))?;
        gpu.check()
    }

    /// Drops idle staging buffers.
    pub(crate) fn trim(&self) {
        self.uploads.trim();
    }

    /// A staging pool's memory may be waited for by uploads.
    pub(crate) fn make_room(&self, gpu: &Gpu, bytes: u64) -> Result<(), BackendError> {
        if self.uploads.is_full(bytes) {
            self.flush(gpu)?;
            gpu.wait_idle()?;
        }
        Ok(())
    }

    fn submit(&self, gpu: &Gpu) -> Result<(), BackendError> {
        let open = self.open.lock();
        // Out of the cell: callbacks that wgpu calls from within the submission find the next list there.
        let list = {
            let mut open = open.borrow_mut();
            let uniforms = open.uniforms.clone();
            std::mem::replace(&mut *open, Open { uniforms, ..Open::default() })
        };
        let doomed = std::mem::take(&mut *self.doomed.lock());
        let _outcome = OutcomeOnDrop(&list.batch);
        let submitted = gpu.ask("Queue::submit", || {
            list.chunks.iter().for_each(Chunk::unmap);
            if let Some(uniforms) = list.uniforms.as_ref().filter(|_| !list.parameters.is_empty()) {
                // In order: behind earlier lists, before this one.
                gpu.queue().write_buffer(uniforms, 0, &list.parameters);
            }
            gpu.submit(list.encoder.map(wgpu::CommandEncoder::finish))
        });
        doomed.iter().for_each(wgpu::Buffer::destroy);
        // The first error of a lost device may be of any kind.
        let submitted = gpu.check().and(submitted);
        list.batch.set_outcome(submitted.clone());
        submitted?;
        gpu.ask("Buffer::map_async", || self.uploads.recall(list.chunks))
    }
}

/// Sets the outcome of a list whatever happens, so that nothing asks an event for ever.
struct OutcomeOnDrop<'a>(&'a Batch);

impl Drop for OutcomeOnDrop<'_> {
    fn drop(&mut self) {
        // Nothing happens to a list that has one; this one has none when a callback of the program's panicked.
        let message = "a callback panicked";
        self.0.set_outcome(Err(BackendError::driver("Queue::submit", 0, message)));
    }
}

/// Bytes that a dispatch has for its parameters.
pub(crate) const PARAMETERS: u64 = 64;

impl Commands<'_> {
    pub(crate) fn encoder(&mut self) -> &mut wgpu::CommandEncoder {
        let new = || self.gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        self.open.encoder.get_or_insert_with(new)
    }

    /// A copy of `bytes` where commands of this list can read it: a buffer, and where it begins there.
    pub(crate) fn stage(&mut self, bytes: &[u8]) -> Result<(wgpu::Buffer, u64), BackendError> {
        self.open.staged += bytes.len() as u64;
        self.uploads.stage(self.gpu, &mut self.open.chunks, bytes)
    }

    /// Where the parameters of dispatches are when their list is done.
    pub(crate) fn uniforms(&mut self) -> Result<wgpu::Buffer, BackendError> {
        if let Some(uniforms) = &self.open.uniforms {
            return Ok(uniforms.clone());
        }
        let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
        let uniforms = self.gpu.create_buffer("vrampool: parameters", self.uniforms, usage, false)?;
        Ok(self.open.uniforms.insert(uniforms).clone())
    }

    /// The parameters of this operation's one dispatch. Returns their offset in [`uniforms`](Self::uniforms).
    pub(crate) fn parameters(&mut self, bytes: &[u8]) -> u32 {
        let offset = self.open.parameters.len();
        self.open.parameters.extend_from_slice(bytes);
        self.open.parameters.resize(offset + self.stride as usize, 0);
        offset as u32
    }
}

/// As a binding has it.
pub(crate) const PARAMETERS_SIZE: Option<NonZero<u64>> = NonZero::new(PARAMETERS);
