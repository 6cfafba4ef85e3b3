//! The layers that serve requests, as metrics name them.

/// The layer that served a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ServedBy {
    /// An idle buffer of a bucket: a hit.
    Cache,
    /// Memory that the source had reserved before: a miss without a call of the driver.
    Arena,
    /// At least one call of the driver: an allocation, or memory mapped or unmapped.
    Driver,
}

impl ServedBy {
    /// All layers, cheapest first.
    pub const ALL: &'static [Self] = &[Self::Cache, Self::Arena, Self::Driver];

    /// The value of the label `served_by` in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Cache => "cache",
            Self::Arena => "arena",
            Self::Driver => "driver",
        }
    }
}
