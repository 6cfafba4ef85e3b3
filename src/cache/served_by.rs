//! The layers that serve requests.

/// The layer that served a request.
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
