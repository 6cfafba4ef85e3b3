//! The tags whose contents a sleep level keeps.

use crate::error::Error;

/// A level of sleep, as vLLM has them: which tags are copied to the host; the contents of all others go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Level {
    /// Its number.
    pub number: u8,
    /// Tags that are kept; `None` for a pause, in which nothing sleeps.
    pub offloaded: Option<&'static [&'static str]>,
}

impl Level {
    /// All of them: 0 pauses only; 1 keeps weights and what a program needs to run; 2 lets the weights go
    /// too, for a program that will load others.
    pub const ALL: &'static [Self] = &[
        Self { number: 0, offloaded: None },
        Self { number: 1, offloaded: Some(&["weights", "runtime", "cudagraph"]) },
        Self { number: 2, offloaded: Some(&["runtime", "cudagraph"]) },
    ];

    /// The level of this number.
    ///
    /// # Errors
    /// [`Error::Configuration`] when there is none.
    pub fn of(number: u8) -> Result<Self, Error> {
        Self::ALL.iter().copied().find(|level| level.number == number).ok_or_else(|| Error::Configuration {
            field: "level",
            value: number.to_string(),
            reason: "there are 0 (pause), 1 (keep the weights) and 2 (let them go)".into(),
        })
    }
}
