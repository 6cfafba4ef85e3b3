//! The driver's own pools: allocating and freeing in the order of a stream (CuPy's `MemoryAsyncPool`).

use crate::charge::Charge;
use crate::device::CudaDevice;
use crate::driver::{Allocation, Figure, RawPool};
use crate::driver_pool_core::DriverPoolCore;
use crate::memory::CudaMemory;
use crate::pool_error::DriverPoolError;
use crate::stream::CudaStream;
use crate::stream_ordered::{allocate, device_number};
use cudarc::driver::sys::CUmemoryPool;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vrampool_backend::spi::{Announced, Hooks, Occasion, Ticket};
use vrampool_backend::{Amount, Backend, BackendError, DeviceId, Hook, HookEvent, Stream, fork};

/// The granularity of sizes, which are rounded up.
const UNIT: u64 = 512;

/// As hooks receive it.
const NAME: &str = "driver pool";

/// CuPy's variable for the limit.
const LIMIT: &str = "CUPY_GPU_MEMORY_LIMIT";

/// No limit, as [`DriverPool::limit`] says it.
const UNLIMITED: u64 = u64::MAX;

/// Which of the driver's pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum PoolHandle {
    /// The one that the device came with.
    Default,
    /// The one that `cuMemAllocAsync` uses now: the default one, or what another library has set.
    #[default]
    Current,
    /// A new one, destroyed when the last handle and the last memory are dropped.
    Created,
}

/// One of the driver's pools, on one device. A clone is another handle to it.
///
/// * Memory is taken and freed in the order of a stream, and the host waits for nothing. Use on another
///   stream is the caller's to order ([`CudaMemory`]); a [pool](https://docs.rs/vrampool) over it does that
///   by itself.
/// * The [limit](Self::set_limit) is hard, on the bytes that this pool allocated. How much the driver keeps
///   of what is free is another thing, the [release threshold](Self::set_release_threshold).
/// * Before a lack of memory is an error, the stream's work is awaited and unused memory released, then
///   that of the whole device.
/// * Nothing but these bytes is touched: no pool is made the device's current one, and no threshold set
///   unasked.
///
/// ```no_run
/// use vrampool_cuda::{Amount, Backend, CudaDevice, DriverPool, PoolHandle};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let device = CudaDevice::open(0)?;
/// let stream = device.create_stream()?;
/// let pool = DriverPool::new(&device, PoolHandle::Created)?;
/// pool.set_limit(Amount::Percent(50.0))?;
/// pool.set_release_threshold(u64::MAX)?; // keep all that is freed
/// let memory = pool.allocate_on(1 << 20, &stream)?;
/// drop(memory); // in the order of `stream`
/// pool.free_all_blocks(Some(&stream))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[doc(alias = "MemoryAsyncPool")]
pub struct DriverPool {
    core: Arc<DriverPoolCore>,
    /// For its properties and streams.
    device: CudaDevice,
    hooks: Hooks,
}

impl DriverPool {
    /// A handle to one of the device's pools, with the limit that `CUPY_GPU_MEMORY_LIMIT` sets, if it is set.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] where the device has no pools; [`BackendError::InvalidArgument`] for a
    /// variable that cannot be read; else errors of the driver.
    pub fn new(device: &CudaDevice, handle: PoolHandle) -> Result<Self, BackendError> {
        let (context, number) = (device.core().context(), device_number(device.core())?);
        let raw = match handle {
            PoolHandle::Default => RawPool::default_of(context, number),
            PoolHandle::Current => RawPool::current_of(context, number),
            PoolHandle::Created => RawPool::create(context, number),
        };
        Self::of(device, raw?)
    }

    pub(crate) fn of(device: &CudaDevice, raw: RawPool) -> Result<Self, BackendError> {
        let (live_bytes, limit) = (AtomicU64::new(0), AtomicU64::new(UNLIMITED));
        let core = Arc::new(DriverPoolCore { device: device.core().clone(), raw, live_bytes, limit });
        let pool = Self { core, device: device.clone(), hooks: Hooks::default() };
        if let Some(limit) = std::env::var_os(LIMIT).filter(|limit| !limit.is_empty()) {
            let limit = limit.to_string_lossy();
            let invalid = |error| BackendError::invalid(LIMIT, format!("`{limit}`: {error}"));
            pool.set_limit(limit.parse::<Amount>().map_err(invalid)?)?;
        }
        Ok(pool)
    }

    /// The same pool, that calls `hook` around each request, each allocation and each free of what is asked
    /// for by this handle and its clones from now on; after those added before. To hooks its name is
    /// `driver pool`.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] when a hook of that name is there.
    pub fn hook(mut self, hook: impl Hook + 'static) -> Result<Self, BackendError> {
        self.hooks.add(Arc::new(hook))?;
        Ok(self)
    }

    /// The device it is on.
    #[must_use]
    pub fn device(&self) -> &CudaDevice {
        &self.device
    }

    /// The driver's own handle, for other libraries. They are done with it before the last handle here is
    /// dropped, where the pool was created here.
    #[must_use]
    pub fn raw_handle(&self) -> CUmemoryPool {
        self.core.raw.handle()
    }

    /// `bytes` of device memory, rounded up to 512, in the order of this thread's
    /// [current stream](CudaDevice::current_stream). 0 bytes are no memory, at address 0.
    ///
    /// # Errors
    /// As [`allocate_on`](Self::allocate_on).
    #[track_caller]
    pub fn allocate(&self, bytes: u64) -> Result<CudaMemory, DriverPoolError> {
        self.allocate_on(bytes, &self.device.current_stream()?)
    }

    /// As [`allocate`](Self::allocate), in the order of `stream`: work on it may use the memory at once.
    ///
    /// # Errors
    /// [`DriverPoolError::OutOfMemory`] when the limit or, in spite of all that could be released, the
    /// device does not allow it; [`DriverPoolError::Backend`] for a stream of another device or one that was
    /// retired, and for what the driver reports.
    #[track_caller]
    pub fn allocate_on(&self, bytes: u64, stream: &CudaStream) -> Result<CudaMemory, DriverPoolError> {
        fork::check()?;
        if self.hooks.is_empty() {
            let (allocation, charge) = self.take(bytes, stream, None)?;
            return Ok(CudaMemory::charged(allocation, bytes, charge));
        }
        let rounded = bytes.checked_next_multiple_of(UNIT).unwrap_or(u64::MAX);
        let ticket = Ticket::new(Location::caller());
        let event = |ticket| HookEvent::new(NAME, self.device.id(), ticket, bytes, rounded, stream.id());
        let request = self.hooks.announce(Occasion::Request, event(ticket));
        let (allocation, mut charge) = self.take(bytes, stream, request.as_ref())?;
        if let Some(request) = request {
            let address = Some(allocation.address());
            let mut free = event(request.done(rounded, address));
            free.address = address;
            charge.call_on_free(&self.hooks, free);
        }
        Ok(CudaMemory::charged(allocation, bytes, charge))
    }

    /// Memory and what it counts as, for a `request` that hooks were called for, if there are any.
    fn take(
        &self,
        bytes: u64,
        stream: &CudaStream,
        request: Option<&Announced<'_>>,
    ) -> Result<(Allocation, Charge), DriverPoolError> {
        let core = &self.core;
        if stream.device() != self.device.id() {
            return Err(wrong_device(stream.device()).into());
        }
        let charge = self.charge(bytes)?;
        // 0 bytes are not the driver's.
        let event = request.filter(|_| charge.bytes() > 0).map(|request| request.event().clone());
        let announced = event.and_then(|event| self.hooks.announce(Occasion::Allocation, event));
        let allocation =
            allocate(&core.raw, charge.bytes(), stream.stream_core()).map_err(|error| match error {
                BackendError::OutOfMemory { .. } => self.out_of_memory(bytes, Some(error)),
                error => error.into(),
            })?;
        if let Some(announced) = announced {
            let _ = announced.done(charge.bytes(), Some(allocation.address()));
        }
        Ok((allocation, charge))
    }

    /// Counts the bytes as allocated, where the limit allows it.
    fn charge(&self, bytes: u64) -> Result<Charge, DriverPoolError> {
        let pool = Arc::clone(&self.core);
        let Some(rounded) = bytes.checked_next_multiple_of(UNIT) else {
            return Err(self.out_of_memory(bytes, None));
        };
        let limit = pool.limit.load(Relaxed);
        let add = |used: u64| used.checked_add(rounded).filter(|&used| used <= limit);
        match pool.live_bytes.fetch_update(Relaxed, Relaxed, add) {
            Ok(_) => Ok(Charge::new(pool, rounded)),
            Err(_) => Err(self.out_of_memory(bytes, None)),
        }
    }

    fn out_of_memory(&self, requested: u64, cause: Option<BackendError>) -> DriverPoolError {
        DriverPoolError::OutOfMemory {
            requested_bytes: requested,
            live_bytes: self.live_bytes(),
            reserved_bytes: self.total_bytes().ok(),
            limit: self.limit(),
            cause,
        }
    }

    /// Waits for `stream`, or this thread's current one, and releases all unused memory to the
    /// device.
    ///
    /// # Errors
    /// Errors of the driver, failures of the stream's work included.
    pub fn free_all_blocks(&self, stream: Option<&CudaStream>) -> Result<(), BackendError> {
        let device = &self.device;
        match stream {
            Some(stream) => device.synchronize(stream)?,
            None => device.synchronize(&device.current_stream()?)?,
        }
        self.trim_to(0)
    }

    /// Releases unused memory until the pool has at most `keep` bytes. Waits for nothing: memory that work
    /// may still use stays.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn trim_to(&self, keep: u64) -> Result<(), BackendError> {
        self.core.raw.trim_to(keep)
    }

    /// Bytes that this and its clones allocated and that were not dropped, rounded. What the limit bounds.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.core.live_bytes.load(Relaxed)
    }

    /// Bytes of the driver's pool that are in use, by any code in the process.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn used_bytes(&self) -> Result<u64, BackendError> {
        self.core.raw.figure(Figure::Used)
    }

    /// Bytes that the driver's pool has and nothing uses.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn free_bytes(&self) -> Result<u64, BackendError> {
        // In this order, because others may allocate in between.
        let used = self.used_bytes()?;
        Ok(self.total_bytes()?.saturating_sub(used))
    }

    /// Bytes that the driver's pool has from the device.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn total_bytes(&self) -> Result<u64, BackendError> {
        self.core.raw.figure(Figure::Reserved)
    }

    /// The driver does not say how many free blocks its pools have.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`], always.
    pub fn n_free_blocks(&self) -> Result<u64, BackendError> {
        Err(BackendError::unsupported("counting the free blocks of a driver's pool"))
    }

    /// The most bytes that may be allocated at once, also as a percentage of the device's memory; what is allocated
    /// already stays. As in CuPy, 0 is no limit.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] for a percentage that is not from 0 to 100; what the driver reports.
    pub fn set_limit(&self, limit: impl Into<Amount>) -> Result<(), BackendError> {
        fork::check()?;
        let limit =
            limit.into().check().map_err(|error| BackendError::invalid("limit", error.to_string()))?;
        let whole = match limit {
            Amount::Percent(_) => self.device.memory_info()?.total_bytes,
            _ => 0,
        };
        let bytes = limit.bytes_of(whole).filter(|&bytes| bytes > 0);
        self.core.limit.store(bytes.unwrap_or(UNLIMITED), Relaxed);
        Ok(())
    }

    /// The limit in bytes; `None` without one.
    #[must_use]
    #[doc(alias = "get_limit")]
    pub fn limit(&self) -> Option<u64> {
        Some(self.core.limit.load(Relaxed)).filter(|&limit| limit != UNLIMITED)
    }

    /// How many bytes the driver keeps when a wait for work finds more of them free. 0: none, a new pool's.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn release_threshold(&self) -> Result<u64, BackendError> {
        self.core.raw.figure(Figure::ReleaseThreshold)
    }

    /// Sets the [threshold](Self::release_threshold). It is the driver's pool's: of the default and the
    /// current one, every user in the process has it.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn set_release_threshold(&self, bytes: u64) -> Result<(), BackendError> {
        self.core.raw.set_release_threshold(bytes)
    }
}

fn wrong_device(id: DeviceId) -> BackendError {
    BackendError::invalid("stream", format!("it is one of device {id}"))
}
