//! Kernels in Rust, found by the names that modules give them. Each declares the ranges that it touches.

mod line;
mod memory;
mod network;

use crate::work::Range;

/// A kernel. Its arguments are numbers of 64 bits, whatever their types.
pub(crate) struct Kernel {
    name: &'static str,
    /// The ranges that it reads and writes.
    pub(crate) touches: fn(&[u64]) -> Vec<Range>,
    pub(crate) run: fn(&[u64]),
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel").field("name", &self.name).finish_non_exhaustive()
    }
}

pub(crate) fn find(name: &str) -> Option<&'static Kernel> {
    memory::KERNELS.iter().chain(&network::KERNELS).chain(&line::KERNELS).find(|kernel| kernel.name == name)
}

/// The argument at `index`; 0 if there are fewer.
fn number(arguments: &[u64], index: usize) -> u64 {
    arguments.get(index).copied().unwrap_or(0)
}

fn float(arguments: &[u64], index: usize) -> f32 {
    f32::from_bits(number(arguments, index) as u32)
}

fn reads(address: u64, bytes: u64) -> Range {
    Range { address, bytes, write: false, host: false }
}

fn writes(address: u64, bytes: u64) -> Range {
    Range { address, bytes, write: true, host: false }
}

/// Reads the element `index` of an array.
fn load<T: Copy>(array: u64, index: u64) -> T {
    let place = std::ptr::with_exposed_provenance::<T>(array as usize).wrapping_add(index as usize);
    // SAFETY: the element lies in a range that the kernel declared and that was found accessible before it
    // ran.
    unsafe { place.read_unaligned() }
}

/// Writes the element `index` of an array.
fn store<T>(array: u64, index: u64, value: T) {
    let place = std::ptr::with_exposed_provenance_mut::<T>(array as usize).wrapping_add(index as usize);
    // SAFETY: as in `load`.
    unsafe { place.write_unaligned(value) };
}
