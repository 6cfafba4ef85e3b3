//! The tags whose contents a sleep level keeps.

use crate::error::Error;

/// A sleep level as in vLLM: the tags that are copied to the host. Contents of all others are discarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub(super) struct Level {
    /// Its number.
    pub(super) number: u8,
    /// Tags that are kept; `None` for a pause, in which no tag sleeps.
    pub(super) offloaded: Option<&'static [&'static str]>,
}

impl Level {
    /// All levels: 0 only pauses; 1 keeps weights and the memory that a program needs to run; 2 also discards
    /// the weights, for a program that will load others.
    pub(super) const ALL: &'static [Self] = &[
        Self { number: 0, offloaded: None },
        Self { number: 1, offloaded: Some(&["weights", "runtime", "cudagraph"]) },
        Self { number: 2, offloaded: Some(&["runtime", "cudagraph"]) },
    ];

    /// Returns the level with this number.
    ///
    /// # Errors
    /// [`Error::UnknownLevel`] for an unknown number.
    pub(super) fn of(number: u8) -> Result<Self, Error> {
        let level = Self::ALL.iter().copied().find(|level| level.number == number);
        level.ok_or(Error::UnknownLevel { level: number })
    }
}
