//! The part of the table of figures about time: histograms, and the calls for virtual memory.

use crate::figures;
use crate::figures::FigureLabel::{Histogram, None as Plain};
use crate::sync::Instant;
use std::cell::Cell;
use std::time::Duration;

figures! {
    /// Device calls for virtual memory, since a growing arena was built or a pool was created.
    ///
    /// ```
    /// # use vrampool::{Backend, arena::DeviceArena, host::HostDevice};
    /// # let device = HostDevice::builder().virtual_memory(false).build();
    /// let arena = DeviceArena::builder(&device).limit(1 << 20).build()?;
    /// assert_eq!(arena.mapping().calls, 0); // its size is fixed
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct MappingCalls("mapping_", Plain) {
        Counter calls: u64, "calls", "Device calls to create, map, unmap and release virtual memory.";
        #[cfg_attr(
            feature = "serde",
            serde(rename = "nanoseconds", serialize_with = "nanoseconds")
        )]
        Time time: Duration, "nanoseconds", "Time of the mapping calls.";
    }
}

/// Serializes a duration as whole nanoseconds.
#[cfg(feature = "serde")]
fn nanoseconds<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

/// Makes a histogram of times, and the method that adds one.
macro_rules! histogram {
    ($(#[$attribute:meta])* $name:ident, $prefix:literal, $metric:literal, $help:literal) => {
        figures! {
            $(#[$attribute])*
            #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
            #[cfg_attr(feature = "serde", derive(serde::Serialize))]
            pub struct $name($prefix, Histogram($metric, $help)) {
                Counter within_10us: u64, "times", "Number of times of at most 10 µs.";
                Counter within_100us: u64, "times", "Number of longer times, of at most 100 µs.";
                Counter within_1ms: u64, "times", "Number of longer times, of at most 1 ms.";
                Counter within_10ms: u64, "times", "Number of longer times, of at most 10 ms.";
                Counter within_100ms: u64, "times", "Number of longer times, of at most 100 ms.";
                Counter within_1s: u64, "times", "Number of longer times, of at most 1 s.";
                Counter within_10s: u64, "times", "Number of longer times, of at most 10 s.";
                Counter within_100s: u64, "times", "Number of longer times, of at most 100 s.";
                Counter longer: u64, "times", "Number of times of more than 100 s.";
                #[cfg_attr(
                    feature = "serde",
                    serde(rename = "nanoseconds", serialize_with = "nanoseconds")
                )]
                Time sum: Duration, "nanoseconds", "The sum of all times.";
            }
        }

        impl $name {
            /// Returns the number of times.
            #[must_use]
            pub fn count(&self) -> u64 {
                let all = [
                    self.within_10us, self.within_100us, self.within_1ms, self.within_10ms, self.within_100ms,
                    self.within_1s, self.within_10s, self.within_100s, self.longer,
                ];
                all.into_iter().fold(0, u64::saturating_add)
            }

            pub(crate) fn add(&mut self, time: Duration) {
                self.sum = self.sum.saturating_add(time);
                *match u64::try_from(time.as_micros()).unwrap_or(u64::MAX) {
                    0..=10 => &mut self.within_10us,
                    11..=100 => &mut self.within_100us,
                    101..=1_000 => &mut self.within_1ms,
                    1_001..=10_000 => &mut self.within_10ms,
                    10_001..=100_000 => &mut self.within_100ms,
                    100_001..=1_000_000 => &mut self.within_1s,
                    1_000_001..=10_000_000 => &mut self.within_10s,
                    10_000_001..=100_000_000 => &mut self.within_100s,
                    _ => &mut self.longer,
                } += 1;
            }
        }
    };
}

histogram! {
    /// Waits of requests for memory ([`Pool::allocate_timeout`](crate::Pool::allocate_timeout)), served and refused
    /// ones, by their length. Those that wait at this moment are not included.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use vrampool::{Backend, Pool, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// let pool = Pool::builder(&device).limit(1 << 20).build()?;
    /// let live = pool.allocate(1 << 20, &stream)?;
    /// assert!(pool.allocate_timeout(1000, &stream, Duration::from_millis(20)).is_err());
    /// let waits = pool.stats().waits;
    /// assert!(waits.count() == 1 && waits.sum > Duration::from_millis(1));
    /// # drop(live);
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    Waits, "wait_", "vrampool_wait_seconds", "Time that requests waited for memory, by `allocate_timeout`."
}

histogram! {
    /// Requests that were served with a driver call, by the time that they took at the source: the driver's calls, and
    /// the steps of the out-of-memory ladder.
    DriverTimes,
    "driver_",
    "vrampool_driver_seconds",
    "Time at the source of requests that were served with a driver call, steps of the out-of-memory ladder included."
}

histogram! {
    /// Requests past the magazines, served and refused ones, by the time of the whole call; of each thread one in 509.
    ///
    /// Waits of [`Pool::allocate_timeout`](crate::Pool::allocate_timeout) are included. Hits in magazines, which have no
    /// clock, are not.
    ///
    /// ```
    /// # use vrampool::{Backend, Pool, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// let pool = Pool::builder(&device).max_cached_bytes(0).build()?;
    /// for _ in 0..10 * 509 {
    ///     drop(pool.allocate(1000, &stream)?);
    /// }
    /// let times = pool.stats().allocation;
    /// assert_eq!(times.count(), 10);
    /// assert!(!times.sum.is_zero());
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    AllocationTimes,
    "allocation_",
    "vrampool_allocation_seconds",
    "Time of requests that the magazines did not serve, waits for memory included: a sample of one in 509 of each thread."
}

/// One request in this many is timed, of each thread. A prime, so that a loop does not have the same request timed in
/// each pass.
const SAMPLE: u32 = 509;

thread_local! {
    /// Requests before the next one that is timed.
    static LEFT: Cell<u32> = const { Cell::new(SAMPLE - 1) };
}

/// Whether the next request of this thread that is counted is timed.
pub(crate) fn is_due() -> bool {
    !cfg!(model) && LEFT.get() == 0
}

/// Counts a request of this thread. Returns whether it is timed, and restarts the count at one that is.
#[inline]
pub(crate) fn is_sampled() -> bool {
    // Executions of a model share no state.
    if cfg!(model) {
        return false;
    }
    let left = LEFT.get();
    LEFT.set(left.checked_sub(1).unwrap_or(SAMPLE - 1));
    left == 0
}

/// Returns the current time if the request [is timed](is_sampled).
pub(crate) fn begin() -> Option<Instant> {
    is_sampled().then(Instant::now)
}
