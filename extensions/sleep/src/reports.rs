//! Results of a sleep and a wake.

use bytesize::ByteSize;
use std::fmt;
use std::time::{Duration, Instant};
use vrampool::figures;
use vrampool::figures::FigureLabel;

figures! {
    /// Results of a sleep or a wake.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    #[must_use]
    pub struct SleepReport("", FigureLabel::None) {
        Counter physical_bytes: u64, "bytes",
            "Bytes of physical memory that a sleep released to the device, or a wake took from it.";
        Counter copied_bytes: u64, "bytes",
            "Bytes of blocks that a sleep copied to the host, or a wake copied back.";
        Counter discarded_bytes: u64, "bytes", "Bytes of blocks whose contents a sleep discarded.";
        Setting no_op: bool, "",
            "Whether nothing was done, because all of the memory was asleep, or awake, already. Backups are unchanged.";
        Time elapsed: Duration, "nanoseconds", "Time of the call, the wait for work included.";
    }
}

impl SleepReport {
    /// Returns the rate of the copies over the whole call, bytes a second; 0 for a call that took no time.
    ///
    /// ```
    /// # use std::time::{Duration, Instant};
    /// # use vrampool_sleep::SleepReport;
    /// let mut report = SleepReport::default();
    /// (report.copied_bytes, report.elapsed) = (3 << 30, Duration::from_millis(1500));
    /// assert_eq!(report.copied_bytes_per_second(), (2u64 << 30) as f64);
    /// ```
    #[must_use]
    pub fn copied_bytes_per_second(&self) -> f64 {
        if self.elapsed.is_zero() { 0.0 } else { self.copied_bytes as f64 / self.elapsed.as_secs_f64() }
    }
}

/// The start of a call. A browser has no such clock.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock(Option<Instant>);

impl Clock {
    pub(super) fn start() -> Self {
        Self((!cfg!(target_family = "wasm")).then(Instant::now))
    }

    /// Sets the time of a report.
    pub(super) fn stop(self, report: SleepReport) -> SleepReport {
        SleepReport { elapsed: self.0.map_or(Duration::ZERO, |begin| begin.elapsed()), ..report }
    }
}

impl fmt::Display for SleepReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [physical, copied, discarded] =
            [self.physical_bytes, self.copied_bytes, self.discarded_bytes].map(ByteSize);
        let already = if self.no_op { " (already so)" } else { "" };
        write!(f, "physical {physical}, copied {copied}, discarded {discarded}")?;
        if !self.elapsed.is_zero() {
            let rate = ByteSize(self.copied_bytes_per_second() as u64);
            write!(f, ", in {:.3} s, {rate}/s", self.elapsed.as_secs_f64())?;
        }
        f.write_str(already)
    }
}
