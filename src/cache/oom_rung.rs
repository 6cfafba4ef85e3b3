//! The rungs of the out-of-memory ladder, as statistics count them.

/// The rungs of the ladder that a pool climbs when memory runs out, in order.
///
/// The last attempts of a pool over [`Source::Virtual`](crate::Source::Virtual) may also wait on the host for
/// the device's work, without a lock, before the request fails. That is not counted by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rung {
    /// Idle buffers were given back to stay within the limit or the budget.
    Evict,
    /// A thread waited for memory that another thread was giving back, or for its turn to ask a device that
    /// was out of memory. Not a wait for the device's work.
    Wait,
    /// The device was out of memory: least recently requested classes were given back, and if that was not
    /// enough all idle memory, and it was asked again.
    Trim,
    /// Holes of the arena were closed, and it was asked again.
    Compact,
    /// Nothing helped: an error was returned.
    Fail,
}

impl Rung {
    /// All rungs, in order.
    pub const ALL: &'static [Self] = &[Self::Evict, Self::Wait, Self::Trim, Self::Compact, Self::Fail];

    /// Its name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Evict => "evict",
            Self::Wait => "wait",
            Self::Trim => "trim",
            Self::Compact => "compact",
            Self::Fail => "fail",
        }
    }
}
