//! A kernel, the ranges that it touches, and access to its arguments and its memory.

/// A range of addresses that work touches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Range {
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) write: bool,
    /// Memory of the host that the driver knows nothing of. All other memory is released once it has left
    /// the map of addresses.
    pub(crate) host: bool,
}

/// A kernel. Its arguments are numbers of 64 bits, whatever their types.
pub(crate) struct Kernel {
    pub(super) name: &'static str,
    /// The ranges that it reads and writes.
    pub(crate) touches: fn(&[u64]) -> Vec<Range>,
    pub(crate) run: fn(&[u64]),
}

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Kernel").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The argument at `index`; 0 if there are fewer.
pub(super) fn number(arguments: &[u64], index: usize) -> u64 {
    arguments.get(index).copied().unwrap_or(0)
}

pub(super) fn float(arguments: &[u64], index: usize) -> f32 {
    f32::from_bits(number(arguments, index) as u32)
}

pub(super) fn reads(address: u64, bytes: u64) -> Range {
    Range { address, bytes, write: false, host: false }
}

pub(super) fn writes(address: u64, bytes: u64) -> Range {
    Range { address, bytes, write: true, host: false }
}

/// Reads the element `index` of an array.
pub(super) fn load<T: Copy>(array: u64, index: u64) -> T {
    let place = std::ptr::with_exposed_provenance::<T>(array as usize).wrapping_add(index as usize);
    // SAFETY: the element lies in a range that the kernel declared and that was found accessible before it
    // ran.
    unsafe { place.read_unaligned() }
}

/// Writes the element `index` of an array.
pub(super) fn store<T>(array: u64, index: u64, value: T) {
    let place = std::ptr::with_exposed_provenance_mut::<T>(array as usize).wrapping_add(index as usize);
    // SAFETY: as in `load`.
    unsafe { place.write_unaligned(value) };
}
