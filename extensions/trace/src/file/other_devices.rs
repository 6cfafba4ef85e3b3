//! The devices of a snapshot that a reader skipped.

/// Contents of a snapshot for devices that were not read. [`Default`] means none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct OtherDevices {
    /// The lowest number among them; 0 if there are none.
    pub first: u32,
    /// Events in their histories, of any kind.
    pub events: u64,
    /// Their segments.
    pub segments: u64,
}

impl OtherDevices {
    /// Adds what `device` has.
    pub(crate) fn add(&mut self, device: u32, events: u64, segments: u64) {
        if events + segments == 0 {
            return;
        }
        self.first = if *self == Self::default() { device } else { self.first.min(device) };
        self.events += events;
        self.segments += segments;
    }
}
