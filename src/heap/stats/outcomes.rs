//! The part of the table of figures about failures: failed requests and errors of the device.

use crate::figures;
use crate::figures::FigureLabel::Split;

/// A call of the device that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceCall {
    Allocate,
    Order,
    Copy,
    #[cfg_attr(not(feature = "metrics"), expect(dead_code, reason = "publishers make it"))]
    MemoryInfo,
}

/// Makes the reasons for which requests fail, and the two tables with a figure for each.
macro_rules! reasons {
    ($($Reason:ident $field:ident, $count:literal, $time:literal;)+) => {
        /// Why a request failed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Reason {
            $($Reason,)+
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
                $(Counter $field: u64, "requests", $count;)+
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
                $(Moment $field: u64, "seconds", $time;)+
            }
        }

        impl Failures {
            /// Counts a failure at a time, in seconds since 1970.
            pub(crate) fn add(&mut self, last: &mut LastFailures, reason: Reason, now: u64) {
                let (count, last) = match reason {
                    $(Reason::$Reason => (&mut self.$field, &mut last.$field),)+
                };
                *count += 1;
                *last = now.max(*last);
            }
        }
    };
}

reasons! {
    Limit by_limit, "Requests that failed because of the pool's limit.",
        "The time of the latest failure because of the pool's limit.";
    Device by_device, "Requests that failed because the device was out of memory.",
        "The time of the latest failure because the device was out of memory.";
    Arena by_arena, "Requests that failed because the arena was full.",
        "The time of the latest failure because the arena was full.";
    Fragmentation by_fragmentation,
        "Requests that failed although enough memory was free, because no free range was large enough.",
        "The time of the latest failure because of fragmentation.";
    Request by_request, "Requests of more than the limit or the arena ever allows.",
        "The time of the latest request of more than is ever allowed.";
    Timeout by_timeout, "Requests that waited for memory until their deadline.",
        "The time of the latest request that waited until its deadline.";
    Backend by_backend,
        "Requests that failed because of another error of the device, or of a call that a capture forbids.",
        "The time of the latest failure because of another error of the device, or of a call that a capture forbids.";
    Closed closed, "Requests of a closed pool.", "The time of the latest request of a closed pool.";
    Invalid invalid, "Invalid requests: no matching size class, or a stream of another device.",
        "The time of the latest invalid request.";
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
