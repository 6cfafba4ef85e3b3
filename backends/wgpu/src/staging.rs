//! Mapped buffers by which bytes come from the host and go to it, used again and again.

use crate::error::blame;
use crate::gpu::Gpu;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use vrampool_backend::BackendError;

/// What goes through one buffer at once, bytes. Longer transfers go in pieces.
pub(crate) const PIECE: u64 = 8 << 20;
/// The size of a buffer for short transfers, bytes.
const SMALL: u64 = 1 << 20;
/// Bytes of idle buffers that each pool keeps.
const KEPT: u64 = 64 << 20;
/// Bytes of uploads that may be under way before one waits.
const UNDER_WAY: u64 = 128 << 20;

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
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    /// Mapped.
    idle: Arc<Mutex<Vec<wgpu::Buffer>>>,
    under_way: Arc<AtomicU64>,
}

impl Uploads {
    pub(crate) fn is_full(&self, bytes: u64) -> bool {
        self.under_way.load(Ordering::Relaxed) + bytes > UNDER_WAY
    }

    /// Copies `bytes`, at most [`PIECE`], to a chunk of this submission.
    pub(crate) fn stage(
        &self,
        gpu: &Gpu,
        chunks: &mut Vec<Chunk>,
        bytes: &[u8],
    ) -> Result<(wgpu::Buffer, u64), BackendError> {
        let len = bytes.len() as u64;
        let room = |chunk: &Chunk| chunk.buffer.size() - chunk.used >= len.next_multiple_of(ALIGNMENT);
        if !chunks.last().is_some_and(room) {
            chunks.push(Chunk { buffer: self.take(gpu, len)?, used: 0 });
        }
        let Some(chunk) = chunks.last_mut() else {
            return Err(BackendError::invalid("bytes", "there is no room for them"));
        };
        let (start, size) = (chunk.used, len.next_multiple_of(ALIGNMENT));
        let view = chunk.buffer.slice(start..start + size).get_mapped_range_mut();
        let mut view = view.map_err(|error| unmapped(gpu, &error))?;
        view.slice(..bytes.len()).copy_from_slice(bytes);
        // What the alignment added is copied too where it lies behind the end of a memory.
        let padding = [0; ALIGNMENT as usize];
        view.slice(bytes.len()..).copy_from_slice(&padding[..(size - len) as usize]);
        chunk.used += size;
        Ok((chunk.buffer.clone(), start))
    }

    fn take(&self, gpu: &Gpu, len: u64) -> Result<wgpu::Buffer, BackendError> {
        {
            let mut idle = self.idle.lock();
            if let Some(index) = idle.iter().position(|buffer| buffer.size() >= len) {
                return Ok(idle.swap_remove(index));
            }
        }
        gpu.ask("Device::create_buffer", || {
            gpu.device().create_buffer(&wgpu::BufferDescriptor {
                label: Some("vrampool: upload"),
                size: if len > SMALL { PIECE } else { SMALL },
                usage: wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: true,
            })
        })
    }

    /// Takes the chunks of a submission back: each is mapped again when the device is done with it.
    pub(crate) fn recall(&self, chunks: Vec<Chunk>) {
        for Chunk { buffer, .. } in chunks {
            self.under_way.fetch_add(buffer.size(), Ordering::Relaxed);
            let (idle, under_way) = (Arc::clone(&self.idle), Arc::clone(&self.under_way));
            let mapped = buffer.clone();
            buffer.slice(..).map_async(wgpu::MapMode::Write, move |outcome| {
                under_way.fetch_sub(mapped.size(), Ordering::Relaxed);
                let mut idle = idle.lock();
                let kept: u64 = idle.iter().map(wgpu::Buffer::size).sum();
                if outcome.is_ok() && kept + mapped.size() <= KEPT {
                    idle.push(mapped);
                }
            });
        }
    }
}

/// Read-back buffers, not mapped.
#[derive(Debug, Default)]
pub(crate) struct Readbacks {
    idle: Mutex<Vec<wgpu::Buffer>>,
}

impl Readbacks {
    /// A buffer for at least `len` bytes, at most [`PIECE`].
    pub(crate) fn take(&self, gpu: &Gpu, len: u64) -> Result<wgpu::Buffer, BackendError> {
        {
            let mut idle = self.idle.lock();
            if let Some(index) = idle.iter().position(|buffer| buffer.size() >= len) {
                return Ok(idle.swap_remove(index));
            }
        }
        gpu.ask("Device::create_buffer", || {
            gpu.device().create_buffer(&wgpu::BufferDescriptor {
                label: Some("vrampool: read-back"),
                size: if len > SMALL { PIECE } else { SMALL },
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        })
    }

    /// Waits for what was submitted, copies the start of `buffer` to `bytes`, and keeps the buffer.
    pub(crate) fn read(&self, gpu: &Gpu, buffer: wgpu::Buffer, bytes: &mut [u8]) -> Result<(), BackendError> {
        let (sender, receiver) = sync_channel(1);
        let part = buffer.slice(..(bytes.len() as u64).next_multiple_of(ALIGNMENT));
        gpu.ask("Buffer::map_async", || {
            part.map_async(wgpu::MapMode::Read, move |outcome| {
                let _ = sender.send(outcome);
            });
        })?;
        gpu.wait_idle()?;
        // Another thread's poll may have taken the callback and be about to call it.
        if !matches!(receiver.recv(), Ok(Ok(()))) {
            gpu.check()?;
            let message = "the bytes cannot be mapped".into();
            return Err(BackendError::Driver { call: "Buffer::map_async", code: 0, message });
        }
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

/// What offsets and sizes of mapped ranges are rounded to.
const ALIGNMENT: u64 = wgpu::MAP_ALIGNMENT;

fn unmapped(gpu: &Gpu, error: &wgpu::MapRangeError) -> BackendError {
    let message = error.to_string();
    let error = BackendError::Driver { call: "Buffer::get_mapped_range", code: 0, message };
    gpu.check().err().unwrap_or_else(|| blame("bytes", error))
}
