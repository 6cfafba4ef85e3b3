//! The allocator of a broker's clients.

use crate::error::BrokerError;
use std::fmt;
use std::str::FromStr;

/// The allocator of a broker's clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Allocator {
    /// The device, for each array separately; freed memory returns to the device at once. CuBIE's `default`.
    Default,
    /// A caching pool. CuBIE's `cupy`.
    #[default]
    Pool,
    /// The driver's own pool, in the order of a stream. CuBIE's `cupy_async`.
    DriverPool,
}

impl Allocator {
    /// All allocators.
    pub const ALL: &'static [Self] = &[Self::Default, Self::Pool, Self::DriverPool];

    /// Returns its name in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Pool => "pool",
            Self::DriverPool => "driver-pool",
        }
    }
}

impl fmt::Display for Allocator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Allocator {
    type Err = BrokerError;

    /// Parses these names, and CuBIE's.
    fn from_str(text: &str) -> Result<Self, BrokerError> {
        let cubies = match text {
            "cupy" => Some(Self::Pool),
            "cupy_async" => Some(Self::DriverPool),
            _ => None,
        };
        let ours = Self::ALL.iter().copied().find(|allocator| allocator.name() == text);
        cubies.or(ours).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|allocator| allocator.name()).collect();
            let reason = format!("`{text}` is unknown; known are {}, cupy, cupy_async", names.join(", "));
            BrokerError::Setting { field: "allocator", reason }
        })
    }
}
