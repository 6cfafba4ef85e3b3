//! `Debug` of errors: the text that a program prints when its `main` returns one.

use super::{Error, chain};
use std::fmt;

/// The text of [`Display`](fmt::Display) and of all causes. `{:#?}` lists the variant and its fields.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !f.alternate() {
            return write!(f, "{}", chain(self));
        }
        match self {
            Self::OutOfMemory(figures) => f.debug_tuple("OutOfMemory").field(figures).finish(),
            Self::TooLarge { requested_bytes, max_allocation } => f
                .debug_struct("TooLarge")
                .field("requested_bytes", requested_bytes)
                .field("max_allocation", max_allocation)
                .finish(),
            Self::WrongDevice(devices) => f.debug_tuple("WrongDevice").field(devices).finish(),
            Self::Closed => f.write_str("Closed"),
            Self::Capture { requested_bytes, class_bytes, forbidden } => f
                .debug_struct("Capture")
                .field("requested_bytes", requested_bytes)
                .field("class_bytes", class_bytes)
                .field("forbidden", forbidden)
                .finish(),
            Self::Asleep { requested_bytes, live_bytes } => f
                .debug_struct("Asleep")
                .field("requested_bytes", requested_bytes)
                .field("live_bytes", live_bytes)
                .finish(),
            Self::Configuration(setting) => f.debug_tuple("Configuration").field(setting).finish(),
            Self::Environment(variable) => f.debug_tuple("Environment").field(variable).finish(),
            Self::NotOpened(device) => f.debug_tuple("NotOpened").field(device).finish(),
            Self::Arena(cause) => f.debug_tuple("Arena").field(cause).finish(),
            Self::Backend(cause) => f.debug_tuple("Backend").field(cause).finish(),
        }
    }
}
