//! What serves misses.

use crate::depot::Key;
use crate::error::Error;
use std::fmt;
use std::str::FromStr;
use vrampool_backend::{Backend, BackendError};

/// Where a pool gets the memory that its buckets do not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Source {
    /// Each block is an allocation of the device's own.
    #[default]
    Direct,
}

impl Source {
    /// All sources.
    pub const ALL: [Self; 1] = [Self::Direct];

    /// Its name in settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
        }
    }

    pub(crate) fn allocate<B: Backend>(self, device: &B, key: Key) -> Result<B::Memory, BackendError> {
        match self {
            Self::Direct => device.allocate(key.class, key.kind),
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Source {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Self::ALL.into_iter().find(|source| source.name() == text).ok_or_else(|| Error::Configuration {
            field: "source",
            value: text.into(),
            reason: format!("known are {}", Self::ALL.map(Self::name).join(", ")),
        })
    }
}
