//! Memory of an OpenCL device.

use crate::driver::{Allocation, KERNEL, Origin, Span};
use crate::shared::{DeviceCore, SharedMemory};
use crate::stream::OpenClStream;
use crate::stream_core::{StreamPoint, User};
use opencl_sys as cl;
use parking_lot::Mutex;
use std::sync::Arc;
use vrampool_backend::{
    BackendError, DeviceKind, Memory, MemoryKind, Placement, Region, arguments,
    fork::{self, ForkArc},
};

/// Memory of an [`OpenClDevice`](crate::OpenClDevice): a buffer, pinned memory of the host, or shared virtual
/// memory.
///
/// Dropping it never waits. A buffer is freed by the driver when the work that uses it is done. Of shared
/// memory, and of pinned memory that is still mapped, the driver does not know the users; it is freed when
/// the work of all streams on which it was used is seen to be done, at some later call that takes or gives
/// memory. On a discrete device a thread of this crate's releases what is dropped, because there the driver
/// may wait for the device.
///
/// Its [usage](vrampool_backend::Usage) is made of `cl_mem_flags`: one of `CL_MEM_READ_WRITE` (which is also
/// the default), `CL_MEM_READ_ONLY` and `CL_MEM_WRITE_ONLY` says what kernels do, at most one of
/// `CL_MEM_HOST_READ_ONLY`, `CL_MEM_HOST_WRITE_ONLY` and `CL_MEM_HOST_NO_ACCESS` what the host does, and
/// `CL_MEM_ALLOC_HOST_PTR` asks for memory of the host, which [`Placement::HostVisible`] always has.
/// [`Placement::Managed`] takes `CL_MEM_SVM_FINE_GRAIN_BUFFER` and `CL_MEM_SVM_ATOMICS` where the device has
/// them.
#[derive(Debug)]
pub struct OpenClMemory {
    pub(crate) allocation: Arc<Allocation>,
    kind: MemoryKind,
    /// On which streams its address was used, where the driver knows nothing else of it.
    users: Mutex<Users>,
    device: ForkArc<DeviceCore>,
}

/// Streams, each once. Those that were dropped and are done are forgotten whenever there are twice as many as were
/// left the last time.
#[derive(Debug, Default)]
struct Users {
    users: Vec<User>,
    left: usize,
}

/// Fewer users are not looked through.
const FEW: usize = 8;

impl Users {
    fn add(&mut self, stream: &OpenClStream) {
        if self.users.iter().any(|user| user.is(stream.stream_core())) {
            return;
        }
        if self.users.len() >= FEW.max(2 * self.left) {
            self.users.retain(|user| !user.is_done());
            self.left = self.users.len();
        }
        self.users.push(stream.stream_core().as_user());
    }
}

impl OpenClMemory {
    pub(crate) fn new(device: &ForkArc<DeviceCore>, allocation: Allocation, kind: MemoryKind) -> Self {
        let users = Mutex::default();
        Self { allocation: Arc::new(allocation), kind, users, device: device.clone() }
    }

    /// Of what kind it is.
    #[must_use]
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }

    /// The `cl_mem_flags` that the driver says its buffer has.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn flags(&self) -> Result<cl::cl_mem_flags, BackendError> {
        fork::check()?;
        self.allocation.flags()
    }

    /// Whether it is shared virtual memory that host and device may use at once, without mapping.
    #[must_use]
    pub fn is_fine_grained(&self) -> bool {
        self.kind.placement == Placement::Managed
            && matches!(self.device.shared_memory, SharedMemory::Fine { .. })
    }

    /// Notes that work on `stream` is about to use it.
    pub(crate) fn use_on(&self, stream: &OpenClStream) {
        if self.allocation.is_known_by_address() {
            self.users.lock().add(stream);
        }
    }

    /// Makes its buffer, and not the address at which it is mapped, what later work on `stream` uses.
    pub(crate) fn give_to_kernels(&self, stream: &OpenClStream) -> Result<(), BackendError> {
        self.allocation.give_to_kernels(|| self.record_users())?;
        self.allocation.context().order_after_unmap(stream.raw(), &self.allocation)
    }

    /// Records the end of the work that uses it.
    fn record_users(&self) -> Result<Vec<StreamPoint>, BackendError> {
        let users = std::mem::take(&mut *self.users.lock()).users;
        let points: Result<Vec<_>, _> = users.iter().map(User::point).collect();
        if points.is_err() {
            self.users.lock().users.extend(users);
        }
        points
    }

    /// A range for the host's own reads or writes.
    pub(crate) fn mapped(&self, offset: u64, bytes: usize, unless: u64) -> Result<Span<'_>, BackendError> {
        if self.kind.placement == Placement::Device {
            return Err(BackendError::unsupported("mapping memory that is not host-visible"));
        }
        self.check_host(unless)?;
        Span::new(&self.allocation, offset, bytes as u64)
    }

    /// Refuses what the memory was said not to be for by one of the flags `unless`.
    pub(crate) fn check_host(&self, unless: u64) -> Result<(), BackendError> {
        if self.kind.usage.0 & (unless | cl::CL_MEM_HOST_NO_ACCESS) == 0 {
            return Ok(());
        }
        Err(BackendError::invalid("memory", "its usage says that the host does not do that"))
    }
}

impl OpenClStream {
    /// Refuses regions of other streams and devices, and a written one that overlaps the one that is read.
    pub(crate) fn check_regions(
        &self,
        read: Option<&Region<'_, OpenClMemory>>,
        written: Option<&Region<'_, OpenClMemory>>,
    ) -> Result<(), BackendError> {
        arguments::check_regions(self, read.into_iter(), written.into_iter(), |memory| {
            self.core().context.is_same(memory.allocation.context())
        })
    }
}

impl Drop for OpenClMemory {
    fn drop(&mut self) {
        if fork::is_forked() {
            return;
        }
        let work = match self.allocation.is_known_by_address() {
            true => self.record_users(),
            false => Ok(Vec::new()),
        };
        let allocation = Arc::clone(&self.allocation);
        match work {
            Ok(work) => self.device.deferred.push(work, allocation),
            // Whether work still uses it cannot be known, so it is not freed, unless the device does no work
            // any more.
            Err(error) if error.is_device_lost() => {}
            Err(_) => std::mem::forget(allocation),
        }
    }
}

/// The call that makes memory of a kind on a device.
pub(crate) fn origin_of(kind: MemoryKind, device: &DeviceCore) -> Result<Origin, BackendError> {
    const HOST: u64 = cl::CL_MEM_HOST_READ_ONLY | cl::CL_MEM_HOST_WRITE_ONLY | cl::CL_MEM_HOST_NO_ACCESS;
    const FINE: u64 = cl::CL_MEM_SVM_FINE_GRAIN_BUFFER | cl::CL_MEM_SVM_ATOMICS;
    let refuse = |reason: &str| Err(BackendError::invalid("usage", format!("{:#x}: {reason}", kind.usage.0)));
    let asked = kind.usage.0;
    let known = match kind.placement {
        Placement::Managed => KERNEL | FINE,
        _ => KERNEL | HOST | cl::CL_MEM_ALLOC_HOST_PTR,
    };
    if asked & !known != 0 {
        return refuse("it has flags that are not a usage of this placement");
    }
    if (asked & KERNEL).count_ones() > 1 || (asked & HOST).count_ones() > 1 {
        return refuse("it has flags that exclude each other");
    }
    let flags = if asked & KERNEL == 0 { asked | cl::CL_MEM_READ_WRITE } else { asked };
    let discrete = device.properties.kind == DeviceKind::Discrete;
    match (kind.placement, device.shared_memory) {
        (Placement::Device, _) => Ok(Origin::Buffer { flags, now: discrete }),
        (Placement::HostVisible, _) if asked & cl::CL_MEM_HOST_NO_ACCESS != 0 => {
            refuse("host-visible memory needs access by the host")
        }
        (Placement::HostVisible, _) => {
            let flags = flags | cl::CL_MEM_ALLOC_HOST_PTR;
            // Mapping for one direction only is what the other flags leave, so that it is not kept.
            let keep = discrete && asked & HOST == 0;
            Ok(if keep { Origin::Pinned { flags } } else { Origin::Buffer { flags, now: discrete } })
        }
        (Placement::Managed, SharedMemory::None) => Err(BackendError::unsupported("shared virtual memory")),
        (Placement::Managed, SharedMemory::Coarse) if asked & FINE != 0 => {
            refuse("this device has no fine-grained shared memory")
        }
        (Placement::Managed, SharedMemory::Fine { atomics: false })
            if asked & cl::CL_MEM_SVM_ATOMICS != 0 =>
        {
            refuse("this device's shared memory has no atomics")
        }
        (Placement::Managed, SharedMemory::Fine { .. }) => {
            Ok(Origin::Shared { flags: flags | cl::CL_MEM_SVM_FINE_GRAIN_BUFFER, fine: true })
        }
        (Placement::Managed, SharedMemory::Coarse) => Ok(Origin::Shared { flags, fine: false }),
        _ => Err(BackendError::unsupported("this placement")),
    }
}

/// The bytes that a region names.
pub(crate) fn span<'a>(region: &'a Region<'_, OpenClMemory>) -> Result<Span<'a>, BackendError> {
    Span::new(&region.memory().allocation, region.offset(), region.len())
}

impl Memory for OpenClMemory {
    fn len(&self) -> u64 {
        self.allocation.len()
    }

    fn address(&self) -> Option<u64> {
        self.allocation.shared_address()
    }
}
