//! The rungs of the out-of-memory ladder.

/// The steps that a pool takes when memory runs out, in order.
///
/// The last attempts of a pool over [`Source::Virtual`](crate::Source::Virtual) may also block the host until
/// the device's work completes, without holding a lock. That wait is not counted separately.
///
/// ```
/// # use vrampool::{Backend, Pool, Rung, host::HostDevice};
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// let pool = Pool::builder(&device).limit(1 << 20).build()?;
/// assert!(pool.allocate(2 << 20, &stream).is_err());
/// assert_eq!(pool.stats().rung(Rung::Fail), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rung {
    /// Idle buffers were released to stay within the limit or the budget.
    Evict,
    /// A thread waited for memory that another thread was releasing, or for its turn to ask a device that was
    /// out of memory. Waits for the device's work do not count.
    Wait,
    /// The device was out of memory. The least recently requested classes were released, then if necessary
    /// all idle memory, and the request was retried.
    Trim,
    /// Holes of the arena were closed, and the request was retried.
    Compact,
    /// All rungs failed: an error was returned.
    Fail,
}

impl Rung {
    /// All rungs, in order.
    pub const ALL: &'static [Self] = &[Self::Evict, Self::Wait, Self::Trim, Self::Compact, Self::Fail];

    /// Returns its name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Evict => "evict",
            Self::Wait => "wait",
            Self::Trim => "trim",
            Self::Compact => "compact",
            Self::Fail => "fail",
        }
    }
}
