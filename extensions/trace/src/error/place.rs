//! Places in the file of a trace, or in a replay.

use std::fmt;

/// The place of a fault or of a contradiction: what is known of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Place {
    /// The line, from 1; `None` of what is not in a line.
    pub line: Option<u64>,
    /// The byte of the decompressed file, from 0; `None` except for damaged pickles, which have no lines.
    pub offset: Option<u64>,
    /// The device of a snapshot that the event belongs to.
    pub device: Option<u32>,
    /// The event in that device's history, from 0; of a recording and of a replay, the event of the trace.
    pub event: Option<u32>,
    /// The pass of a replay, from 0.
    pub pass: Option<u32>,
    /// The field; `None` of what is not in a field.
    pub field: Option<&'static str>,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        let numbers = [
            ("line", self.line),
            ("byte", self.offset),
            ("device", self.device.map(u64::from)),
            ("event", self.event.map(u64::from)),
            ("in pass", self.pass.map(|pass| u64::from(pass) + 1)),
        ];
        for (name, number) in numbers.into_iter().filter_map(|(name, number)| Some((name, number?))) {
            write!(f, "{between}{name} {number}")?;
            between = ", ";
        }
        match self.field {
            Some(field) => write!(f, "{between}field `{field}`"),
            None => Ok(()),
        }
    }
}
