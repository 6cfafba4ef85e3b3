//! Refused requests in the log, at most one record a minute for each pool.

use super::OutOfMemory;
use crate::sync::{GlobalMutex, Instant};
use std::time::Duration;
use vrampool_backend::logging;

/// The time between two records of a pool.
const INTERVAL: Duration = Duration::from_secs(60);

/// Decides which refused requests of a pool are logged.
#[derive(Debug, Default)]
pub(crate) struct RefusalLog(GlobalMutex<Logged>);

#[derive(Debug, Default)]
struct Logged {
    last: Option<Instant>,
    /// Number of refusals without a record since the last one.
    silent: u64,
}

impl RefusalLog {
    /// Logs a refused request of the pool, unless one was logged within the last minute.
    pub(crate) fn log(&self, pool: &str, error: &OutOfMemory) {
        match self.due(Instant::now()) {
            Some(0) => logging::warn!("pool {pool}: a request was refused: {error}"),
            Some(silent) => logging::warn!(
                "pool {pool}: a request was refused, and {silent} more since the last such record: {error}"
            ),
            None => {}
        }
    }

    /// Returns the number of refusals since the last record if another one is due, and counts this refusal if not.
    fn due(&self, now: Instant) -> Option<u64> {
        let mut logged = self.0.lock();
        if logged.last.is_some_and(|last| now.saturating_duration_since(last) < INTERVAL) {
            logged.silent += 1;
            return None;
        }
        let silent = logged.silent;
        *logged = Logged { last: Some(now), silent: 0 };
        Some(silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_record_a_minute_counts_the_others() {
        let (refusals, start) = (RefusalLog::default(), Instant::now());
        let due = |seconds| refusals.due(start + Duration::from_secs(seconds));
        assert_eq!([0, 1, 59, 60, 61, 200].map(due), [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
