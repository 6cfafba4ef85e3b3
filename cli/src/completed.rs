//! Values that completions offer for a flag that also accepts others.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};
use std::ffi::OsStr;

/// Parses by `parse`. Completions offer `names`.
#[derive(Debug, Clone)]
pub(crate) struct Completed<F> {
    pub(crate) names: Vec<&'static str>,
    pub(crate) parse: F,
}

impl<T, F> TypedValueParser for Completed<F>
where
    T: Clone + Send + Sync + 'static,
    F: Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(&self, command: &Command, argument: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        self.parse.parse_ref(command, argument, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        (!self.names.is_empty()).then(|| Box::new(self.names.iter().map(PossibleValue::new)) as _)
    }
}

/// Parses a device by its name.
pub(crate) fn device() -> impl TypedValueParser<Value = vrampool::any::Name> {
    let names = vec!["auto", "host", "cuda", "opencl", "wgpu"];
    Completed { names, parse: |text: &str| text.parse().map_err(|error: vrampool::Error| error.to_string()) }
}
