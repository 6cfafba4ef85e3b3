//! The driver's own pools: allocating and freeing in the order of a stream (CuPy's `MemoryAsyncPool`).

use crate::device::CudaDevice;
use crate::driver::{Figure, RawPool};
use crate::memory::CudaMemory;
use crate::stream::CudaStream;
use crate::stream_ordered::{allocate, device_number};
use cudarc::driver::sys::CUmemoryPool;
use vrampool_backend::spi::Ledger;
use vrampool_backend::{
    Amount, Backend, BackendError, arguments,
    fork::{self, ForkArc},
};

/// The granularity of sizes, which are rounded up.
const UNIT: u64 = 512;

/// CuPy's variable for the limit.
const LIMIT: &str = "CUPY_GPU_MEMORY_LIMIT";

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
/// pool.free_all_blocks(&stream)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[doc(alias = "MemoryAsyncPool")]
pub struct DriverPool {
    raw: ForkArc<RawPool>,
    /// Bytes that this and its clones allocated, rounded.
    ledger: Ledger,
    device: CudaDevice,
}

impl DriverPool {
    /// A handle to one of the device's pools, with the limit that `CUPY_GPU_MEMORY_LIMIT` sets, if it is set.
    ///
    /// # Errors
    /// [`BackendError::Unsupported`] where the device has no pools; [`BackendError::InvalidArgument`] for a
    /// variable that cannot be read; else errors of the driver.
    pub fn new(device: &CudaDevice, handle: PoolHandle) -> Result<Self, BackendError> {
        let (context, number) = (&device.core.context, device_number(&device.core)?);
        let raw = match handle {
            PoolHandle::Default => RawPool::default_of(context, number),
            PoolHandle::Current => RawPool::current_of(context, number),
            PoolHandle::Created => RawPool::create(context, number),
        };
        Self::of(device, raw?)
    }

    pub(crate) fn of(device: &CudaDevice, raw: RawPool) -> Result<Self, BackendError> {
        let ledger = Ledger::named("driver pool", None);
        let pool = Self { raw: ForkArc::new(raw), ledger, device: device.clone() };
        if let Some(limit) = std::env::var_os(LIMIT).filter(|limit| !limit.is_empty()) {
            let limit = limit.to_string_lossy();
            let invalid = |error| BackendError::invalid(LIMIT, format!("`{limit}`: {error}"));
            pool.set_limit(limit.parse::<Amount>().map_err(invalid)?)?;
        }
        Ok(pool)
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
        self.raw.handle()
    }

    /// `bytes` of device memory, rounded up to 512, in the order of `stream`: work on it may use the memory at once.
    /// 0 bytes are no memory, at address 0.
    ///
    /// # Errors
    /// [`BackendError::OutOfMemory`] when the limit, which the error then names, or, in spite of all that could be
    /// released, the device does not allow it; [`BackendError::InvalidArgument`] for a stream of another device or
    /// one that was retired; else errors of the driver.
    pub fn allocate_on(&self, bytes: u64, stream: &CudaStream) -> Result<CudaMemory, BackendError> {
        fork::check()?;
        arguments::check_stream(stream, self.device.id())?;
        let Some(rounded) = bytes.checked_next_multiple_of(UNIT) else {
            return Err(BackendError::out_of_memory(bytes, None));
        };
        let grant = self.ledger.reserve(rounded)?;
        let allocation = allocate(&self.raw, rounded, stream.stream_core())?;
        Ok(CudaMemory::charged(allocation.shown_as(bytes), grant, &self.raw))
    }

    /// Waits for `stream`, and releases all unused memory to the device.
    ///
    /// # Errors
    /// Errors of the driver, failures of the stream's work included.
    pub fn free_all_blocks(&self, stream: &CudaStream) -> Result<(), BackendError> {
        self.device.synchronize(stream)?;
        self.trim_to(0)
    }

    /// Releases unused memory until the pool has at most `keep` bytes. Waits for nothing: memory that work
    /// may still use stays.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn trim_to(&self, keep: u64) -> Result<(), BackendError> {
        self.raw.trim_to(keep)
    }

    /// Bytes that this and its clones allocated and that were not dropped, rounded. What the limit bounds.
    #[must_use]
    pub fn live_bytes(&self) -> u64 {
        self.ledger.charged()
    }

    /// Bytes of the driver's pool that are in use, by any code in the process.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn used_bytes(&self) -> Result<u64, BackendError> {
        self.raw.figure(Figure::Used)
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
        self.raw.figure(Figure::Reserved)
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
        self.ledger.set_limit(limit.bytes_of(whole).filter(|&bytes| bytes > 0));
        Ok(())
    }

    /// The limit in bytes; `None` without one.
    #[must_use]
    #[doc(alias = "get_limit")]
    pub fn limit(&self) -> Option<u64> {
        self.ledger.limit()
    }

    /// How many bytes the driver keeps when a wait for work finds more of them free. 0: none, a new pool's.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn release_threshold(&self) -> Result<u64, BackendError> {
        self.raw.figure(Figure::ReleaseThreshold)
    }

    /// Sets the [threshold](Self::release_threshold). It is the driver's pool's: of the default and the
    /// current one, every user in the process has it.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn set_release_threshold(&self, bytes: u64) -> Result<(), BackendError> {
        self.raw.set_release_threshold(bytes)
    }
}
