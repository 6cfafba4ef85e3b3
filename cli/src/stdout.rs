//! Printing to standard output. A closed pipe ends the program without an error message.

use serde::Serialize;
use std::error::Error;
use std::fmt::Display;
use std::io::{self, Write};

/// The exit code of a program that a closed output pipe ends.
const CLOSED: u8 = 128 + 13;

/// Why a program ends early, and its exit code.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Ended {
    /// For standard error; empty if nothing is to be printed.
    pub text: String,
    /// The exit code.
    pub exit_code: u8,
}

/// Prints a line. Not `println!`, which panics when the reader has ended.
///
/// # Errors
/// [`Ended`], without a text, if the reader has ended; otherwise what the system reports.
pub fn print(text: impl Display) -> Result<(), Box<dyn Error>> {
    writeln!(io::stdout(), "{text}").map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Ended { text: String::new(), exit_code: CLOSED }.into(),
        _ => format!("standard output: {error}; check where it leads, and that there is room").into(),
    })
}

/// Prints a line of JSON, as [`print`].
///
/// # Errors
/// Those of [`print`].
pub(crate) fn print_json(row: &impl Serialize) -> Result<(), Box<dyn Error>> {
    print(serde_json::to_string(row)?)
}

/// Prints a line on standard error. A closed standard error is ignored.
pub fn warn(text: impl Display) {
    let _ = writeln!(io::stderr(), "{text}");
}
