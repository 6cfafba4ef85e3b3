//! Uploads through pinned blocks, which do not block the host while work on the stream is pending.

use super::{Answer, BlockBounds, DEFAULT_BYTES, Staging, pinned_bytes_from_environment};
use std::sync::Arc;
use vrampool::Error;
use vrampool_backend::spi::Ledger;
use vrampool_backend::{Backend, Region, RegionMut, fork};

/// The smallest staging slot, bytes; larger ones are eighths of powers of two.
const SMALLEST_SLOT: u64 = 1 << 20;
/// The largest slot: no slice is longer.
const LARGEST_SLOT: u64 = 1 << 63;

/// The outcome of an upload.
///
/// ```
/// # use vrampool::{Backend, Pool, Event, host::HostDevice};
/// # use vrampool_broker::{Stager, Upload};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// # let pool = Pool::new(&device)?;
/// let mut buffer = pool.allocate(1000, &stream)?;
/// match Stager::new(&device).upload(&[7; 1000], buffer.on_mut(&stream)?, &stream)? {
///     Upload::Staged(event) => assert!(event.is_complete().is_ok()), // now, or later
///     _ => println!("copied by the pageable path"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Upload<E> {
    /// Copied through a pinned slot, without blocking. The event completes when the bytes are on the device.
    Staged(Arc<E>),
    /// Copied by the backend's pageable path, which may have blocked the host.
    Pageable,
}

/// Copies from the host through pinned memory that stays mapped.
///
/// A pageable upload waits, in the driver, for all earlier work: 25 MB behind 250 ms of queued work blocked
/// the host for 247 ms (netcl, on NVIDIA's OpenCL). A staged upload copies to a pinned slot and returns. A
/// slot is reused only after the event of its copy is complete; the stager polls events and never waits. When
/// all slots are busy and the cap is reached, uploads take the pageable path. (A broker's runs use such slots
/// too, and wait for one.)
///
/// ```
/// # use vrampool::{Backend, Pool, host::HostDevice};
/// # use vrampool_broker::{Stager, Upload};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// # let pool = Pool::builder(&device).build()?;
/// let stager = Stager::new(&device);
/// let batch = vec![7; 1 << 20];
/// let mut input = pool.allocate(1 << 20, &stream)?;
/// let upload = stager.upload(&batch, input.on_mut(&stream)?, &stream)?;
/// assert!(matches!(upload, Upload::Staged(_)));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Stager<B: Backend> {
    device: B,
    staging: Staging<B>,
}

impl<B: Backend> Stager<B> {
    /// The smallest staged size in bytes: for smaller copies [`upload`](Self::upload) uses the pageable path,
    /// which costs less than the bookkeeping.
    pub const MIN_BYTES: u64 = 64 * 1024;

    /// Creates a stager with at most 512 MiB of pinned memory.
    pub fn new(device: &B) -> Self {
        Self::with_max_bytes(device, DEFAULT_BYTES)
    }

    /// Creates a stager with a cap on pinned memory from the environment.
    ///
    /// The cap is `VRAMPOOL_PINNED_STAGING`, then `VRAMPOOL_PINNED_STAGING_MB` or `NETCL_PINNED_STAGING_MB` (MiB,
    /// decimal), then 512 MiB. A percentage is of 512 MiB.
    ///
    /// # Errors
    /// [`Error::Environment`] for an invalid value.
    pub fn from_environment(device: &B) -> Result<Self, Error> {
        Ok(Self::with_max_bytes(device, pinned_bytes_from_environment()?))
    }

    /// Creates a stager with at most `max_bytes` of pinned memory; below 1 MiB it never stages.
    pub fn with_max_bytes(device: &B, max_bytes: u64) -> Self {
        let bounds = BlockBounds { smallest: SMALLEST_SLOT, largest: LARGEST_SLOT, grants_first: false };
        Self { device: device.clone(), staging: Staging::new(device, Ledger::new(max_bytes), bounds) }
    }

    /// Copies `source` to `destination` in order on `stream`.
    ///
    /// Copies of [`MIN_BYTES`](Self::MIN_BYTES) or more are staged if a slot is available, others take the
    /// pageable path. `source` may be reused at once either way.
    ///
    /// # Errors
    /// [`Error::Backend`] when the lengths differ or the device fails.
    pub fn upload(
        &self,
        source: &[u8],
        destination: RegionMut<'_, B::Memory>,
        stream: &B::Stream,
    ) -> Result<Upload<B::Event>, Error> {
        fork::check()?;
        let bytes = source.len() as u64;
        if bytes >= Self::MIN_BYTES && bytes == destination.len() {
            // The driver may now grant a block that it refused before.
            self.staging.blocks().is_refused = false;
            if let Answer::Block(slot) = self.staging.try_block(bytes)? {
                let written = self.device.write_mapped(&slot.memory, 0, source);
                let copied = written
                    .and_then(|()| Region::new(&slot.memory, 0, bytes, stream))
                    .and_then(|from| self.device.copy(stream, from, destination))
                    .and_then(|()| self.device.record(stream));
                return Ok(Upload::Staged(self.staging.finish(slot, copied)?));
            }
        }
        self.device.upload(stream, source, destination)?;
        Ok(Upload::Pageable)
    }

    /// Returns the bytes of its pinned memory, busy or idle.
    #[must_use]
    pub fn pinned_bytes(&self) -> u64 {
        if fork::is_forked() { 0 } else { self.staging.ledger().charged() }
    }

    /// Releases slots whose copies are complete, and returns their bytes. A slot whose state the device
    /// cannot report is released when a slot is next needed.
    #[allow(clippy::must_use_candidate, reason = "called for what it does; the figure is extra")]
    pub fn trim(&self) -> u64 {
        if fork::is_forked() { 0 } else { self.staging.trim() }
    }
}
