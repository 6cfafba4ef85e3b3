//! The layers that serve requests.

/// The layer that served a request.
///
/// ```
/// # use vrampool::{Backend, Pool, ServedBy, host::HostDevice};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// let pool = Pool::new(&device)?;
/// drop(pool.allocate(1000, &stream)?);
/// drop(pool.allocate(1000, &stream)?);
/// let stats = pool.stats();
/// assert_eq!((stats.served_by(ServedBy::Driver), stats.served_by(ServedBy::Cache)), (1, 1));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServedBy {
    /// A bucket: the request was a hit.
    Cache,
    /// Memory that the source had reserved before: a miss without a driver call.
    Arena,
    /// At least one driver call: an allocation, or memory mapped or unmapped.
    Driver,
}

impl ServedBy {
    /// All layers, cheapest first.
    pub const ALL: &'static [Self] = &[Self::Cache, Self::Arena, Self::Driver];

    /// Returns the value of the metrics label `served_by`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Arena => "arena",
            Self::Driver => "driver",
        }
    }
}
