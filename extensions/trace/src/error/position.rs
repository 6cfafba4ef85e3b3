//! Positions in the file of a trace.

use std::fmt;

/// A place in a file: what is known of it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: Option<u64>,
    pub(crate) offset: Option<u64>,
    pub(crate) device: Option<u32>,
    pub(crate) event: Option<u32>,
    pub(crate) pass: Option<u32>,
    pub(crate) field: Option<&'static str>,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        let numbers = [
            ("line", self.line),
            ("byte", self.offset),
            ("device", self.device.map(u64::from)),
            ("event", self.event.map(u64::from)),
        ];
        for (name, number) in numbers.into_iter().filter_map(|(name, number)| Some((name, number?))) {
            write!(f, "{between}{name} {number}")?;
            between = ", ";
        }
        if let Some(pass) = self.pass {
            write!(f, "{between}in pass {}", pass + 1)?;
            between = ", ";
        }
        match self.field {
            Some(field) => write!(f, "{between}field `{field}`"),
            None => Ok(()),
        }
    }
}
