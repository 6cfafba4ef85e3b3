//! The builder of a host device.

use crate::capacity::Capacity;
use crate::device::HostDevice;
use crate::driver::{ALIGNMENT, Claims, Slabs};
use crate::fault::Faults;
use crate::shared::DeviceCore;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vrampool_backend::{Capabilities, DeviceId, DeviceKind, Properties, fork, logging};

/// The smallest page of most GPUs' virtual memory, bytes.
const GRANULARITY: u64 = 2 << 20;

/// Capabilities that depend on the operating system.
const MAPPING: Capabilities = if cfg!(target_os = "linux") {
    Capabilities::VIRTUAL_MEMORY.union(Capabilities::SHARED_HANDLES)
} else {
    Capabilities::empty()
};

/// How a [`HostDevice`] is to be.
///
/// ```
/// use vrampool_host::{Backend, DeviceKind, HostDevice};
/// let device = HostDevice::builder().memory_limit(1 << 20).kind(DeviceKind::Discrete).build();
/// assert_eq!(device.memory_info()?.free_bytes, 1 << 20);
/// # Ok::<(), vrampool_host::BackendError>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct HostBuilder {
    capacity: Option<u64>,
    max_allocation: u64,
    kind: DeviceKind,
    allocation_latency: Duration,
    work_latency: Duration,
    granularity: u64,
    virtual_memory: bool,
}

impl Default for HostBuilder {
    fn default() -> Self {
        Self {
            capacity: None,
            max_allocation: isize::MAX as u64,
            kind: DeviceKind::Cpu,
            allocation_latency: Duration::ZERO,
            work_latency: Duration::ZERO,
            granularity: GRANULARITY,
            virtual_memory: true,
        }
    }
}

impl HostBuilder {
    /// Memory in all, bytes. Default: the machine's; on Linux less where a control group or a limit of the
    /// process [leaves less](vrampool_backend::spi::host_memory), and what the group leaves is checked at each
    /// allocation, too. It may be more: pages that nothing touches cost nothing. In a control group that has less, the
    /// system then ends a process that touches too many.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.capacity = Some(bytes);
        self
    }

    /// The largest single allocation, bytes, as OpenCL devices have one. Default: as large as an address
    /// space.
    pub fn max_allocation(mut self, bytes: u64) -> Self {
        self.max_allocation = bytes.min(isize::MAX as u64);
        self
    }

    /// Sets the kind that the device reports. Default: [`DeviceKind::Cpu`], which shares the host's memory.
    pub fn kind(mut self, kind: DeviceKind) -> Self {
        self.kind = kind;
        self
    }

    /// How long every allocation takes longer. Default: 0.
    pub fn allocation_latency(mut self, latency: Duration) -> Self {
        self.allocation_latency = latency;
        self
    }

    /// How long every copy, fill and kernel takes longer. Default: 0.
    pub fn work_latency(mut self, latency: Duration) -> Self {
        self.work_latency = latency;
        self
    }

    /// The [granularity of virtual memory](vrampool_backend::VirtualMemory::granularity), bytes, rounded up
    /// to a power of two and to a page of the host's. Default: 2 MiB, as GPUs have it.
    pub fn granularity(mut self, bytes: u64) -> Self {
        self.granularity = bytes;
        self
    }

    /// Whether it has virtual memory and shared handles, where the system has: without, it passes for a
    /// device that has none, as OpenCL's and wgpu's. Default: true.
    pub fn virtual_memory(mut self, has: bool) -> Self {
        self.virtual_memory = has;
        self
    }

    /// Makes the device.
    #[must_use]
    pub fn build(self) -> HostDevice {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        // In a child all of the device's calls fail.
        let _ = fork::opening();
        let capacity = self.capacity.unwrap_or_else(machine_memory);
        let mut properties = Properties::new("host", "host memory");
        properties.kind = self.kind;
        properties.total_bytes = capacity;
        properties.max_allocation = self.max_allocation;
        properties.alignment = ALIGNMENT;
        properties.capabilities = Capabilities::HOST_VISIBLE
            | Capabilities::STREAM_ORDERED
            | Capabilities::MANAGED
            | Capabilities::CONCURRENT_STREAMS
            | Capabilities::COPY_WITHIN_MEMORY;
        if self.virtual_memory {
            properties.capabilities |= MAPPING;
        }
        let key = u128::from(NEXT.fetch_add(1, Ordering::Relaxed));
        HostDevice::of(DeviceCore {
            id: DeviceId::new("host", key),
            properties,
            capacity: Capacity::new(capacity),
            claims: Claims::default(),
            slabs: Arc::new(Slabs::new(self.capacity.is_none())),
            faults: Faults::default(),
            allocation_latency: self.allocation_latency,
            work_latency: self.work_latency,
            #[cfg(target_os = "linux")]
            granularity: granularity(self.granularity),
            #[cfg(target_os = "linux")]
            files: crate::file::Files::default(),
        })
    }
}

impl Default for HostDevice {
    fn default() -> Self {
        Self::new()
    }
}

impl HostDevice {
    /// A device of the machine's own size, without latency.
    #[must_use]
    pub fn new() -> Self {
        Self::builder().build()
    }

    /// A device of your choice.
    pub fn builder() -> HostBuilder {
        HostBuilder::default()
    }
}

#[cfg(target_os = "linux")]
fn machine_memory() -> u64 {
    vrampool_backend::spi::host_memory().unwrap_or_else(|| {
        // By a call of the system's, which needs no file.
        let system = rustix::system::sysinfo();
        #[allow(clippy::unnecessary_cast, reason = "their types differ between processors")]
        let bytes = (system.totalram as u64).saturating_mul(u64::from(system.mem_unit));
        logging::warn!(
            "no /proc: limits of this process and its control group are unknown; the host device has all {bytes} bytes of the \
             machine, unless it is given a capacity"
        );
        bytes
    })
}

#[cfg(not(target_os = "linux"))]
fn machine_memory() -> u64 {
    let mut system = sysinfo::System::new();
    system.refresh_memory();
    known_or_assumed(system.total_memory())
}

/// Returns the bytes that the system reports, or a default if it reports 0, as Wine does.
#[cfg(any(not(target_os = "linux"), test))]
fn known_or_assumed(bytes: u64) -> u64 {
    const ASSUMED: u64 = 4 << 30;
    if bytes > 0 {
        return bytes;
    }
    logging::warn!(
        "the system does not report its memory; the host device has {ASSUMED} bytes, unless it is given a capacity"
    );
    ASSUMED
}

/// Returns the supported granularity nearest to a requested one.
#[cfg(target_os = "linux")]
fn granularity(bytes: u64) -> u64 {
    // No size above half of all is a power of two, nor can that much be reserved.
    bytes.clamp(rustix::param::page_size() as u64, 1 << 62).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::known_or_assumed;

    #[test]
    fn a_system_that_reports_no_memory_has_some() {
        assert_eq!(known_or_assumed(1 << 20), 1 << 20);
        assert_eq!(known_or_assumed(0), 4 << 30);
    }
}
