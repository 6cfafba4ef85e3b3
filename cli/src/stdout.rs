//! Printing to standard output. A closed pipe ends the program without an error message.

use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};

/// The reader of standard output has ended: the program ends quietly.
#[derive(Debug, thiserror::Error)]
#[error("standard output is closed")]
pub(crate) struct Closed;

/// Prints a line. Not `println!`, which panics when the reader has ended.
pub(crate) fn print(text: impl Display) -> Result<(), Box<dyn Error>> {
    writeln!(io::stdout(), "{text}").map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Closed.into(),
        _ => format!("standard output: {error}; check where it leads, and that there is room").into(),
    })
}

/// Prints a line on standard error. A closed standard error is ignored.
pub(crate) fn warn(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}
