//! Mapped buffers for transfers between host and device, which are reused.

use crate::gpu::Gpu;
use crate::waiting::until;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use vrampool_backend::BackendError;

/// The size of a staging buffer, bytes, where the device has buffers of that size. Longer transfers
/// are split.
const PIECE: u64 = 8 << 20;
/// The size of a buffer for short transfers, bytes, where the device has such.
const SMALL: u64 = 1 << 20;
/// Bytes of idle buffers that each pool keeps.
const KEPT: u64 = 64 << 20;
/// Bytes of uploads that may be under way before one waits.
const UNDER_WAY: u64 = 128 << 20;

/// The sizes of a device's staging buffers, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// The most that goes through one buffer at once.
    pub(crate) piece: u64,
    pub(crate) small: u64,
}

impl Sizes {
    pub(crate) fn new(limits: &wgpu::Limits) -> Self {
        // Whole units of mapping, and at least one.
        let largest = (limits.max_buffer_size / ALIGNMENT * ALIGNMENT).max(ALIGNMENT);
        Self { piece: PIECE.min(largest), small: SMALL.min(largest) }
    }

    fn of(self, len: u64) -> u64 {
        if len > self.small { self.piece } else { self.small }
    }
}

/// A mapped buffer, and how much of it holds bytes on their way.
#[derive(Debug)]
pub(crate) struct Chunk {
    buffer: wgpu::Buffer,
    used: u64,
}

impl Chunk {
    pub(crate) fn unmap(&self) {
        self.buffer.unmap();
    }
}

/// Upload buffers.
#[derive(Debug)]
pub(crate) struct Uploads {
    slots: Mutex<Vec<Slot>>,
    sizes: Sizes,
}

/// A buffer between two submissions.
#[derive(Debug)]
struct Slot {
    buffer: wgpu::Buffer,
    /// Without the buffer in it, which has the callback that sets this.
    mapping: Arc<OnceLock<bool>>,
}

impl Uploads {
    pub(crate) fn new(sizes: Sizes) -> Self {
        Self { slots: Mutex::default(), sizes }
    }

    /// Drops those that are idle.
    pub(crate) fn trim(&self) {
        let mut slots = self.slots.lock();
        let (idle, busy): (Vec<_>, Vec<_>) = slots.drain(..).partition(|slot| slot.mapping.get().is_some());
        *slots = busy;
        drop(slots);
        drop(idle);
    }

    /// Whether the copies from so many bytes are not done that more should wait.
    pub(crate) fn is_full(&self, bytes: u64) -> bool {
        let slots = self.slots.lock();
        let under_way = slots.iter().filter(|slot| slot.mapping.get().is_none());
        under_way.map(|slot| slot.buffer.size()).sum::<u64>() + bytes > UNDER_WAY
    }

    /// Copies `bytes`, at most a [piece](Sizes), to a chunk of this submission.
    pub(crate) fn stage(
        &self,
        gpu: &Gpu,
        chunks: &mut Vec<Chunk>,
        bytes: &[u8],
    ) -> Result<(wgpu::Buffer, u64), BackendError> {
        let len = bytes.len() as u64;
        let size = len.next_multiple_of(ALIGNMENT);
        let chunk = match chunks.pop_if(|chunk| chunk.buffer.size() - chunk.used >= size) {
            Some(chunk) => chunk,
            None => Chunk { buffer: self.take(gpu, len)?, used: 0 },
        };
        let start = chunk.used;
        let copied = write(&chunk.buffer, start..start + size, bytes);
        let buffer = chunk.buffer.clone();
        chunks.push(Chunk { used: start + size, ..chunk });
        copied.map(|()| (buffer, start)).map_err(|error| unmapped(gpu, &error))
    }

    fn take(&self, gpu: &Gpu, len: u64) -> Result<wgpu::Buffer, BackendError> {
        let mapped = |slot: &Slot| slot.mapping.get() == Some(&true);
        {
            let mut slots = self.slots.lock();
            if let Some(index) = slots.iter().position(|slot| mapped(slot) && slot.buffer.size() >= len) {
                return Ok(slots.swap_remove(index).buffer);
            }
            // Buffers that are not kept are dropped here.
            let mut kept = 0;
            slots.retain(|slot| {
                kept += if mapped(slot) { slot.buffer.size() } else { 0 };
                slot.mapping.get() != Some(&false) && (kept <= KEPT || !mapped(slot))
            });
        }
        let usage = wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC;
        gpu.create_buffer("vrampool: upload", self.sizes.of(len), usage, true)
    }

    /// Takes the chunks of a submission back: each is mapped again when the device is done with it.
    pub(crate) fn recall(&self, chunks: Vec<Chunk>) {
        for Chunk { buffer, .. } in chunks {
            let mapping = Arc::new(OnceLock::new());
            let mapped = Arc::clone(&mapping);
            buffer.slice(..).map_async(wgpu::MapMode::Write, move |outcome| {
                let _ = mapped.set(outcome.is_ok());
            });
            self.slots.lock().push(Slot { buffer, mapping });
        }
    }
}

/// Copies `bytes` to the start of a mapped range, and zeros to what the alignment added.
fn write(buffer: &wgpu::Buffer, range: Range<u64>, bytes: &[u8]) -> Result<(), wgpu::MapRangeError> {
    let mut view = buffer.slice(range).get_mapped_range_mut()?;
    let padding = view.len() - bytes.len();
    view.slice(..bytes.len()).copy_from_slice(bytes);
    view.slice(bytes.len()..).copy_from_slice(&[0; ALIGNMENT as usize][..padding]);
    Ok(())
}

/// Read-back buffers, not mapped.
#[derive(Debug)]
pub(crate) struct Readbacks {
    idle: Mutex<Vec<wgpu::Buffer>>,
    sizes: Sizes,
}

impl Readbacks {
    pub(crate) fn new(sizes: Sizes) -> Self {
        Self { idle: Mutex::default(), sizes }
    }

    /// Drops those that are idle.
    pub(crate) fn trim(&self) {
        let idle = std::mem::take(&mut *self.idle.lock());
        drop(idle);
    }

    /// A buffer for at least `len` bytes, at most a [piece](Sizes).
    pub(crate) fn take(&self, gpu: &Gpu, len: u64) -> Result<wgpu::Buffer, BackendError> {
        {
            let mut idle = self.idle.lock();
            if let Some(index) = idle.iter().position(|buffer| buffer.size() >= len) {
                return Ok(idle.swap_remove(index));
            }
        }
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        gpu.create_buffer("vrampool: read-back", self.sizes.of(len), usage, false)
    }

    /// Waits for what was submitted, copies the start of `buffer` to `bytes`, and keeps the buffer.
    pub(crate) fn read(&self, gpu: &Gpu, buffer: wgpu::Buffer, bytes: &mut [u8]) -> Result<(), BackendError> {
        let mapping = map(gpu, &buffer, bytes.len())?;
        gpu.wait_idle()?;
        // Another thread's poll may have taken the callback and be about to call it.
        let is_mapped = *mapping.wait();
        self.copy_out(gpu, buffer, is_mapped, bytes)
    }

    /// As [`read`](Self::read), as a future.
    pub(crate) async fn read_later(
        &self,
        gpu: &Arc<Gpu>,
        buffer: wgpu::Buffer,
        bytes: &mut [u8],
    ) -> Result<(), BackendError> {
        let mapping = map(gpu, &buffer, bytes.len())?;
        // So that events before it are known to be complete.
        gpu.reached(gpu.submitted()).await?;
        let is_mapped = until(gpu, || {
            gpu.poll()?;
            Ok(mapping.get().copied())
        });
        let is_mapped = is_mapped.await?;
        gpu.deferred_errors().await?;
        self.copy_out(gpu, buffer, is_mapped, bytes)
    }

    fn copy_out(
        &self,
        gpu: &Gpu,
        buffer: wgpu::Buffer,
        is_mapped: bool,
        bytes: &mut [u8],
    ) -> Result<(), BackendError> {
        if !is_mapped {
            gpu.check()?;
            let message = "the bytes cannot be mapped";
            return Err(BackendError::driver("Buffer::map_async", 0, message));
        }
        let part = buffer.slice(..(bytes.len() as u64).next_multiple_of(ALIGNMENT));
        let view = part.get_mapped_range().map_err(|error| unmapped(gpu, &error))?;
        bytes.copy_from_slice(&view[..bytes.len()]);
        drop(view);
        gpu.ask("Buffer::unmap", || buffer.unmap())?;
        let mut idle = self.idle.lock();
        let kept: u64 = idle.iter().map(wgpu::Buffer::size).sum();
        if kept + buffer.size() <= KEPT {
            idle.push(buffer);
        }
        Ok(())
    }
}

/// Maps the start of a buffer for reading. Says later whether it could be.
fn map(gpu: &Gpu, buffer: &wgpu::Buffer, len: usize) -> Result<Arc<OnceLock<bool>>, BackendError> {
    let (mapping, wake) = (Arc::new(OnceLock::new()), gpu.waker());
    let mapped = Called(Arc::clone(&mapping));
    gpu.ask("Buffer::map_async", || {
        buffer.slice(..(len as u64).next_multiple_of(ALIGNMENT)).map_async(
            wgpu::MapMode::Read,
            move |outcome| {
                let _ = mapped.0.set(outcome.is_ok());
                wake();
            },
        );
    })?;
    Ok(mapping)
}

/// Says that a buffer is not mapped if its callback is dropped without being called.
struct Called(Arc<OnceLock<bool>>);

impl Drop for Called {
    fn drop(&mut self) {
        let _ = self.0.set(false);
    }
}

/// The granularity of offsets and sizes of mapped ranges.
const ALIGNMENT: u64 = wgpu::MAP_ALIGNMENT;

fn unmapped(gpu: &Gpu, error: &wgpu::MapRangeError) -> BackendError {
    let message = error.to_string();
    let error = BackendError::driver("Buffer::get_mapped_range", 0, message);
    gpu.check().err().unwrap_or(error)
}
