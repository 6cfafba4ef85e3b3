//! The part of the table of figures about failures: failed requests and errors of the device.

use crate::figures;
use crate::figures::FigureLabel::Split;

/// Why a request failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reason {
    Limit,
    Device,
    Arena,
    Fragmentation,
    Request,
    Timeout,
    Backend,
    Closed,
    Invalid,
}

/// A call of the device that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceCall {
    Allocate,
    Order,
    Copy,
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "publishers make it"))]
    MemoryInfo,
}

figures! {
    /// Requests that failed, counted by reason. A request counts once, when it is refused.
    ///
    /// ```
    /// # use vrampool::{Backend, Pool, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// let pool = Pool::builder(&device).limit(1 << 20).build()?;
    /// let live = pool.allocate(1 << 20, &stream)?;
    /// assert!(pool.allocate(1000, &stream).is_err() && pool.allocate(2 << 20, &stream).is_err());
    /// let failed = pool.stats().failed;
    /// assert_eq!((failed.by_limit, failed.by_request, failed.total()), (1, 1, 2));
    /// # drop(live);
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct Failures(
        "failed_", Split("vrampool_failed_total", "reason", "Requests that failed, by reason.")
    ) {
        Counter by_limit: u64, "requests", "Requests that failed because of the pool's limit.";
        Counter by_device: u64, "requests", "Requests that failed because the device was out of memory.";
        Counter by_arena: u64, "requests", "Requests that failed because the arena was full.";
        Counter by_fragmentation: u64, "requests",
            "Requests that failed although enough memory was free, because no free range was large enough.";
        Counter by_request: u64, "requests", "Requests of more than the limit or the arena ever allows.";
        Counter by_timeout: u64, "requests", "Requests that waited for memory until their deadline.";
        Counter by_backend: u64, "requests",
            "Requests that failed because of another error of the device, or of a call that a capture forbids.";
        Counter closed: u64, "requests", "Requests of a closed pool.";
        Counter invalid: u64, "requests", "Invalid requests: no matching size class, or a stream of another device.";
        + total "Returns the number of failed requests, whatever the reason."
    }
}

figures! {
    /// The time of the latest failure, by reason, in seconds since 1970; 0 before the first one.
    ///
    /// ```
    /// # use vrampool::{Backend, Pool, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// let pool = Pool::builder(&device).limit(1 << 20).build()?;
    /// assert!(pool.allocate(2 << 20, &stream).is_err());
    /// let last = pool.stats().last_failure;
    /// assert!(last.by_request > 1_700_000_000 && last.by_limit == 0);
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct LastFailures(
        "last_failure_",
        Split(
            "vrampool_last_failure_timestamp_seconds",
            "reason",
            "The time of the latest failure by a reason, in seconds since 1970; no series before the first one.",
        )
    ) {
        Moment by_limit: u64, "seconds", "The time of the latest failure because of the pool's limit.";
        Moment by_device: u64, "seconds", "The time of the latest failure because the device was out of memory.";
        Moment by_arena: u64, "seconds", "The time of the latest failure because the arena was full.";
        Moment by_fragmentation: u64, "seconds", "The time of the latest failure because of fragmentation.";
        Moment by_request: u64, "seconds", "The time of the latest request of more than is ever allowed.";
        Moment by_timeout: u64, "seconds", "The time of the latest request that waited until its deadline.";
        Moment by_backend: u64, "seconds", "The time of the latest failure because of another error of the device.";
        Moment closed: u64, "seconds", "The time of the latest request of a closed pool.";
        Moment invalid: u64, "seconds", "The time of the latest invalid request.";
    }
}

figures! {
    /// Errors that the device reported to a pool or its buffers, counted by call. Out-of-memory errors and invalid
    /// arguments are not included.
    ///
    /// ```
    /// # use vrampool::{Backend, Pool, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// let pool = Pool::new(&device)?;
    /// let mut buffer = pool.allocate(1000, &stream)?;
    /// device.faults().lose_device();
    /// assert!(buffer.write(&[1], &stream).is_err());
    /// assert_eq!((pool.stats().device_errors.copy, pool.stats().failed.total()), (1, 0));
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct DeviceErrors(
        "device_errors_",
        Split("vrampool_device_errors_total", "call", "Errors that the device reported, by call.")
    ) {
        Counter allocate: u64, "errors", "Errors of allocations and mappings.";
        Counter order: u64, "errors", "Errors of events and waits, which order work of different streams.";
        Counter copy: u64, "errors", "Errors of copies and fills of buffers.";
        Counter memory_info: u64, "errors", "Errors of queries of the device's free memory, which metrics make.";
        + total "Returns the number of errors, of all calls."
    }
}

impl Failures {
    fn count(&mut self, reason: Reason) -> &mut u64 {
        match reason {
            Reason::Limit => &mut self.by_limit,
            Reason::Device => &mut self.by_device,
            Reason::Arena => &mut self.by_arena,
            Reason::Fragmentation => &mut self.by_fragmentation,
            Reason::Request => &mut self.by_request,
            Reason::Timeout => &mut self.by_timeout,
            Reason::Backend => &mut self.by_backend,
            Reason::Closed => &mut self.closed,
            Reason::Invalid => &mut self.invalid,
        }
    }

    /// Counts a failure at a time, in seconds since 1970.
    pub(crate) fn add(&mut self, last: &mut LastFailures, reason: Reason, now: u64) {
        *self.count(reason) += 1;
        last.set(reason, now);
    }
}

impl LastFailures {
    fn set(&mut self, reason: Reason, now: u64) {
        let last = match reason {
            Reason::Limit => &mut self.by_limit,
            Reason::Device => &mut self.by_device,
            Reason::Arena => &mut self.by_arena,
            Reason::Fragmentation => &mut self.by_fragmentation,
            Reason::Request => &mut self.by_request,
            Reason::Timeout => &mut self.by_timeout,
            Reason::Backend => &mut self.by_backend,
            Reason::Closed => &mut self.closed,
            Reason::Invalid => &mut self.invalid,
        };
        *last = now.max(*last);
    }
}

impl DeviceErrors {
    pub(crate) fn add(&mut self, call: DeviceCall) {
        *match call {
            DeviceCall::Allocate => &mut self.allocate,
            DeviceCall::Order => &mut self.order,
            DeviceCall::Copy => &mut self.copy,
            DeviceCall::MemoryInfo => &mut self.memory_info,
        } += 1;
    }
}
