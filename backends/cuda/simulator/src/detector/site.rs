//! Calls of the driver.

use std::fmt;

/// A call of the driver: one end of a race.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Site {
    pub(crate) call: &'static str,
    /// Its number among all calls.
    pub(crate) number: u64,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (call {})", self.call, self.number)
    }
}
