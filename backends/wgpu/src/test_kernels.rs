//! Kernels for tests: writing a pattern, counting mismatches, and a delay.

use crate::device::WgpuDevice;
use crate::memory::WgpuMemory;
use crate::operand::{Operand, elements};
use crate::program::{Kernel, Program};
use crate::shared::DeviceCore;
use crate::stream::WgpuStream;
use vrampool_backend::{BackendError, Region, RegionMut, arguments, fork::ForkArc};

const WGSL: &str = include_str!("test_kernels.wgsl");

/// Kernels that verify memory and the order of streams, compiled by wgpu for one device. Tests use them, and
/// so does `vrampool replay --touch`.
///
/// Each enqueues its work on `stream` and returns. Each refuses, as [`BackendError::InvalidArgument`],
/// regions of another stream or device, of memory without the usage `STORAGE`, of the wrong size or
/// alignment, larger than the device can bind, and written ones that overlap others. Regions may be parts of
/// one buffer.
#[derive(Debug)]
pub struct TestKernels {
    write_pattern: Kernel,
    count_mismatches: Kernel,
    occupy: Kernel,
    device: ForkArc<DeviceCore>,
}

impl TestKernels {
    /// The kernels, compiled for `device`.
    ///
    /// # Errors
    /// Errors that wgpu reports.
    pub fn load(device: &WgpuDevice) -> Result<Self, BackendError> {
        let program = Program::build(device, WGSL)?;
        let kernels = Self {
            write_pattern: program.kernel("write_pattern", 1)?,
            count_mismatches: program.kernel("count_mismatches", 2)?,
            occupy: program.kernel("occupy", 1)?,
            device: device.core.clone(),
        };
        device.core.gpu.check()?;
        Ok(kernels)
    }

    /// Writes bytes that show which `seed` wrote them, and where. They begin at a multiple of 4.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn write_pattern(
        &self,
        stream: &WgpuStream,
        bytes: RegionMut<'_, WgpuMemory>,
        seed: u64,
    ) -> Result<(), BackendError> {
        arguments::check_stream(stream, self.device.id)?;
        self.pieces(&bytes.as_region(), seed, |piece, seed, mask| {
            let a = Operand::bytes(stream, &piece)?;
            let [low, high] = halves(seed);
            let parameters = [low, high, a.at, a.words, mask];
            self.write_pattern.run(&[&a], &parameters, elements(a.words))
        })
    }

    /// Adds to the `u64` in `count` how many bytes are not as [`write_pattern`](Self::write_pattern) writes
    /// them.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn count_mismatches(
        &self,
        stream: &WgpuStream,
        bytes: Region<'_, WgpuMemory>,
        seed: u64,
        count: RegionMut<'_, WgpuMemory>,
    ) -> Result<(), BackendError> {
        arguments::check_stream(stream, self.device.id)?;
        let count = count.as_region();
        stream.check_regions(&[&bytes], &[&count])?;
        let b = Operand::of_length(stream, &count, 2)?;
        self.pieces(&bytes, seed, |piece, seed, mask| {
            let a = Operand::bytes(stream, &piece)?;
            let [low, high] = halves(seed);
            let parameters = [low, high, a.at, a.words, mask, b.at];
            self.count_mismatches.run(&[&a, &b], &parameters, elements(a.words))
        })
    }

    /// Keeps the device busy for so many rounds for each word of `words`, which are overwritten.
    ///
    /// # Errors
    /// As [all](Self).
    pub fn occupy(
        &self,
        stream: &WgpuStream,
        words: RegionMut<'_, WgpuMemory>,
        rounds: u32,
    ) -> Result<(), BackendError> {
        arguments::check_stream(stream, self.device.id)?;
        let words = words.as_region();
        let a = Operand::new(stream, &words)?;
        if a.words == 0 {
            return Ok(());
        }
        self.occupy.run(&[&a], &[a.at, a.words, rounds], elements(a.words))
    }

    /// Calls `run` for parts of `bytes` that the device can bind, in order, each with the seed of its first
    /// word and the mask of its last.
    fn pieces(
        &self,
        bytes: &Region<'_, WgpuMemory>,
        seed: u64,
        run: impl Fn(Region<'_, WgpuMemory>, u64, u32) -> Result<(), BackendError>,
    ) -> Result<(), BackendError> {
        let limits = &self.device.limits;
        // Less what a binding begins before its region.
        let most = limits.max_storage_buffer_binding_size.min(MOST_BOUND);
        let most = most.saturating_sub(u64::from(limits.min_storage_buffer_offset_alignment)) / 4 * 4;
        for start in (0..bytes.len()).step_by(most.max(4) as usize) {
            let piece = bytes.slice(start..bytes.len().min(start + most))?;
            let mask = match piece.len() % 4 {
                0 => u32::MAX,
                tail => (1 << (8 * tail)) - 1,
            };
            let first = seed.wrapping_add((start / 4 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
            run(piece, first, mask)?;
        }
        Ok(())
    }
}

/// Bytes bound at once at most, so that the number of a word and of threads behind it are within 32 bits.
const MOST_BOUND: u64 = 1 << 30;

fn halves(number: u64) -> [u32; 2] {
    [number as u32, (number >> 32) as u32]
}
