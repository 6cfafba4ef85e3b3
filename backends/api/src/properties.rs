//! Properties of a device: its identity, kind, capabilities, limits and memory.

use crate::Placement;
use bitflags::bitflags;
use std::fmt;

/// Identifies a device in this process: equal if and only if two handles are the same device (and, where it
/// matters, the same context of it).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct DeviceId {
    /// The backend's name.
    pub backend: &'static str,
    /// The backend's own key: a UUID, a context's address, an ordinal.
    pub key: u128,
}

impl DeviceId {
    /// The device of a backend that has this key there.
    #[must_use]
    pub const fn new(backend: &'static str, key: u128) -> Self {
        Self { backend, key }
    }
}

/// The backend and the key: a UUID, which is 2⁶⁴ or more, as `nvidia-smi -L` prints it; a smaller key in decimal
/// digits.
///
/// ```
/// use vrampool_backend::DeviceId;
/// assert_eq!(DeviceId::new("host", 3).to_string(), "host:3");
/// let uuid = DeviceId::new("cuda", 0xe1f0_9a2c_0b1d_4c3e_8f70_1a2b_3c4d_5e6f);
/// assert_eq!(uuid.to_string(), "cuda:GPU-e1f09a2c-0b1d-4c3e-8f70-1a2b3c4d5e6f");
/// ```
impl fmt::Display for DeviceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { backend, key } = *self;
        if key <= u128::from(u64::MAX) {
            return write!(f, "{backend}:{key}");
        }
        write!(f, "{backend}:{}", uuid_text(key))
    }
}

/// The UUID of a GPU as `nvidia-smi` writes it.
pub(crate) fn uuid_text(uuid: u128) -> String {
    let group = |from: u32, digits: u32| (uuid >> from) & ((1 << (4 * digits)) - 1);
    let (one, two, three, four, five) =
        (group(96, 8), group(80, 4), group(64, 4), group(48, 4), group(0, 12));
    format!("GPU-{one:08x}-{two:04x}-{three:04x}-{four:04x}-{five:012x}")
}

/// How a device's memory relates to the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DeviceKind {
    /// A device with memory of its own.
    #[default]
    Discrete,
    /// A device that shares the host's memory.
    Integrated,
    /// The host's own processor.
    Cpu,
}

bitflags! {
    /// Capabilities of a device beyond the contract's core.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct Capabilities: u32 {
        /// [`Placement::HostVisible`] memory, with [`Backend::write_mapped`](crate::Backend::write_mapped)
        /// and [`Backend::read_mapped`](crate::Backend::read_mapped).
        const HOST_VISIBLE = 1;
        /// [`Placement::Managed`] memory.
        const MANAGED = 1 << 1;
        /// [`Backend::virtual_memory`](crate::Backend::virtual_memory).
        const VIRTUAL_MEMORY = 1 << 2;
        /// [`Backend::shared_handles`](crate::Backend::shared_handles).
        const SHARED_HANDLES = 1 << 3;
        /// Several streams run at the same time.
        const CONCURRENT_STREAMS = 1 << 4;
        /// A copy may have both ranges in one memory (they never overlap).
        const COPY_WITHIN_MEMORY = 1 << 5;
        /// [`Backend::allocate_on`](crate::Backend::allocate_on): memory comes and goes in the order of a
        /// stream.
        const STREAM_ORDERED = 1 << 6;
    }
}

/// The properties of a device. They do not change.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Properties {
    /// The backend's name: `host`, `cuda`, `opencl`, `wgpu`, or a third party's.
    pub backend: &'static str,
    /// The device's name, for people.
    pub name: String,
    /// Discrete, integrated or the host's processor.
    pub kind: DeviceKind,
    /// Memory in all, bytes; 0, the default, where the driver does not report it.
    pub total_bytes: u64,
    /// The largest single allocation, bytes.
    pub max_allocation: u64,
    /// The alignment of every allocation, to which offsets of ranges inside one should be aligned, bytes, a power
    /// of two.
    pub alignment: u64,
    /// The granularity of offsets of copies and fills, bytes. Lengths may be any; a device that copies
    /// whole words only writes the last one at least cost where the region ends with its memory, or has
    /// [room](crate::Region::room) for the rest.
    pub copy_granularity: u64,
    /// Capabilities beyond the core.
    pub capabilities: Capabilities,
}

impl Properties {
    /// Properties with cautious values; set the fields that the device knows better.
    #[must_use]
    pub fn new(backend: &'static str, name: impl Into<String>) -> Self {
        Self {
            backend,
            name: name.into(),
            kind: DeviceKind::Discrete,
            total_bytes: 0,
            max_allocation: u64::MAX,
            alignment: 1,
            copy_granularity: 1,
            capabilities: Capabilities::empty(),
        }
    }

    /// Whether host and device share one memory.
    #[must_use]
    pub fn is_integrated(&self) -> bool {
        self.kind != DeviceKind::Discrete
    }

    /// Where buffers should live by default: host-visible on a device that shares the host's memory (there it
    /// costs nothing and saves copies), the device's own memory elsewhere. netcl's rule for OpenCL.
    #[must_use]
    pub fn preferred_placement(&self) -> Placement {
        if self.is_integrated() && self.capabilities.contains(Capabilities::HOST_VISIBLE) {
            Placement::HostVisible
        } else {
            Placement::Device
        }
    }
}

/// The memory of a device at this moment, other processes counted where the driver counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MemoryInfo {
    /// Bytes free.
    pub free_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
}

impl MemoryInfo {
    /// `free_bytes` of `total_bytes` are free.
    #[must_use]
    pub const fn new(free_bytes: u64, total_bytes: u64) -> Self {
        Self { free_bytes, total_bytes }
    }
}

impl fmt::Display for MemoryInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} bytes free", self.free_bytes, self.total_bytes)
    }
}
