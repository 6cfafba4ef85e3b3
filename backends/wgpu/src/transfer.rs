//! Uploads, downloads and fills.

use crate::memory::Span;
use crate::partial_word::PartialWord;
use crate::recorder::Commands;
use crate::shared::DeviceCore;
use std::ops::Range;
use vrampool_backend::BackendError;

impl DeviceCore {
    /// Copies `from` to `to` on the device.
    pub(crate) fn copy(&self, from: Span<'_>, to: Span<'_>) -> Result<(), BackendError> {
        let (size, tail) = (from.size.min(to.size), self.tail_of(to)?);
        self.recorder.record(&self.gpu, |commands| {
            copy(commands, (from.buffer, from.offset), to, 0..size);
            tail.map_or(Ok(()), |tail| {
                tail.write(commands, (from.buffer, from.offset + size), to.word(), to.tail)
            })
        })
    }

    /// Copies `source` to `to`, which is as long, or longer by what rounding added.
    pub(crate) fn upload(&self, source: &[u8], to: Span<'_>) -> Result<(), BackendError> {
        let (most, tail) = (self.sizes.piece, self.tail_of(to)?);
        for (piece, start) in source.chunks(most as usize).zip((0..).step_by(most as usize)) {
            self.recorder.make_room(&self.gpu, most)?;
            self.recorder.record(&self.gpu, |commands| {
                let (staged, offset) = commands.stage(piece)?;
                let size = (to.size - start).min(most);
                copy(commands, (&staged, offset), to, start..start + size);
                match tail {
                    Some(tail) if start + piece.len() as u64 > to.size => {
                        tail.write(commands, (&staged, offset + size), to.word(), to.tail)
                    }
                    _ => Ok(()),
                }
            })?;
        }
        Ok(())
    }

    /// Copies `from` to `destination`, which is as long, or shorter by what rounding added, and waits for it.
    pub(crate) fn download(&self, from: Span<'_>, destination: &mut [u8]) -> Result<(), BackendError> {
        if cfg!(target_arch = "wasm32") {
            return Err(BackendError::would_block("a download"));
        }
        let most = self.sizes.piece;
        for (piece, start) in destination.chunks_mut(most as usize).zip((0..).step_by(most as usize)) {
            let buffer = self.copy_back(from, start, most)?;
            self.readbacks.read(&self.gpu, buffer, piece)?;
        }
        Ok(())
    }

    /// As [`download`](Self::download), as a future.
    pub(crate) async fn download_later(
        &self,
        from: Span<'_>,
        destination: &mut [u8],
    ) -> Result<(), BackendError> {
        let most = self.sizes.piece;
        for (piece, start) in destination.chunks_mut(most as usize).zip((0..).step_by(most as usize)) {
            let buffer = self.copy_back(from, start, most)?;
            self.readbacks.read_later(&self.gpu, buffer, piece).await?;
        }
        Ok(())
    }

    /// Submits a copy of the piece that begins at `start`, `most` bytes or what is left, to a buffer for reading.
    fn copy_back(&self, from: Span<'_>, start: u64, most: u64) -> Result<wgpu::Buffer, BackendError> {
        let size = (from.size - start).min(most);
        let buffer = self.readbacks.take(&self.gpu, size)?;
        self.recorder.record(&self.gpu, |commands| {
            let encoder = commands.encoder();
            encoder.copy_buffer_to_buffer(from.buffer, from.offset + start, &buffer, 0, Some(size));
            Ok(())
        })?;
        self.recorder.flush(&self.gpu)?;
        Ok(buffer)
    }

    fn pattern(&self) -> Result<&wgpu::Buffer, BackendError> {
        if let Some(pattern) = self.pattern.get() {
            return Ok(pattern);
        }
        let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let pattern = self.gpu.create_buffer("vrampool: pattern", self.sizes.small, usage, false)?;
        Ok(self.pattern.get_or_init(|| pattern))
    }

    /// Sets every byte to `value`.
    pub(crate) fn fill(&self, to: Span<'_>, value: u8) -> Result<(), BackendError> {
        let tail = self.tail_of(to)?;
        self.fill_words(to, value)?;
        let Some(tail) = tail else { return Ok(()) };
        self.recorder.record(&self.gpu, |commands| {
            let (staged, offset) = commands.stage(&[value; 4])?;
            tail.write(commands, (&staged, offset), to.word(), to.tail)
        })
    }

    /// wgpu clears to 0 and to nothing else. Any other value comes from the host, once, and is copied from there on.
    fn fill_words(&self, to: Span<'_>, value: u8) -> Result<(), BackendError> {
        if to.size == 0 {
            return Ok(());
        }
        if value == 0 {
            return self.recorder.record(&self.gpu, |commands| {
                commands.encoder().clear_buffer(to.buffer, to.offset, Some(to.size));
                Ok(())
            });
        }
        let most = self.sizes.small;
        let pattern = vec![value; to.size.min(most) as usize];
        self.recorder.make_room(&self.gpu, most)?;
        let source = self.pattern()?;
        self.recorder.record(&self.gpu, |commands| {
            let (staged, offset) = commands.stage(&pattern)?;
            if to.size <= most {
                copy(commands, (&staged, offset), to, 0..to.size);
                return Ok(());
            }
            let encoder = commands.encoder();
            encoder.copy_buffer_to_buffer(&staged, offset, source, 0, Some(most));
            for start in (0..to.size).step_by(most as usize) {
                copy(commands, (source, 0), to, start..to.size.min(start + most));
            }
            Ok(())
        })
    }

    /// The kernel for the tail of `to`, if it has one.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] of a device that runs no kernels, as wgpu's stub.
    fn tail_of(&self, to: Span<'_>) -> Result<Option<&PartialWord>, BackendError> {
        if to.tail == 0 {
            return Ok(None);
        }
        if self.limits.max_compute_workgroups_per_dimension == 0 || self.listed.interface == "noop" {
            return Err(BackendError::unsupported("writing a part of a word without kernels"));
        }
        if let Some(kernel) = self.partial_word.get() {
            return Ok(Some(kernel));
        }
        let made = self.gpu.ask("Device::create_compute_pipeline", || PartialWord::new(self.gpu.device()))?;
        Ok(Some(self.partial_word.get_or_init(|| made)))
    }
}

fn copy(commands: &mut Commands<'_>, from: (&wgpu::Buffer, u64), to: Span<'_>, range: Range<u64>) {
    if range.is_empty() {
        return;
    }
    let (start, size) = (to.offset + range.start, range.end - range.start);
    commands.encoder().copy_buffer_to_buffer(from.0, from.1, to.buffer, start, Some(size));
}
