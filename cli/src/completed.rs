//! Values of a flag that completions offer, of a flag that takes others, too.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};
use std::ffi::OsStr;

/// Parses by `parse`. Completions offer `names`.
#[derive(Debug, Clone)]
pub(crate) struct Completed<T> {
    pub(crate) names: &'static [&'static str],
    pub(crate) parse: fn(&str) -> Result<T, String>,
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Completed<T> {
    type Value = T;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        self.parse.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(self.names.iter().map(PossibleValue::new)))
    }
}

/// The names of devices that a machine may have.
pub(crate) const BACKENDS: &[&str] = &["auto", "host", "cuda", "opencl", "wgpu"];

/// Parses as the type does.
pub(crate) fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.parse().map_err(|error: T::Err| error.to_string())
}
