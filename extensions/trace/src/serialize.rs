//! Durations as serialized numbers.

use serde::Serializer;
use std::time::Duration;

/// Serializes a duration as whole nanoseconds.
pub(crate) fn nanoseconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}
