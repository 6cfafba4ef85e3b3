//! The reader of environment variables. [`amount`] is for crates that build on this one.

use crate::error::Error;
use crate::settings_table::rows;
use std::ffi::OsString;
use std::sync::atomic::{AtomicBool, Ordering};
use vrampool_backend::{Amount, InvalidAmount, logging};

/// No cap, as a number: internal comparisons need no other case. Public signatures have `None` instead.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// Returns a cap as a number.
pub(crate) fn as_cap(limit: impl Into<Option<u64>>) -> u64 {
    limit.into().unwrap_or(UNLIMITED)
}

/// Returns the limit that a cap stands for; `None` for no limit.
pub(crate) fn as_limit(cap: u64) -> Option<u64> {
    (cap != UNLIMITED).then_some(cap)
}

/// Where variables are looked up: the process's environment, or a test's.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A variable of a setting, and the unit of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "crates that build on this one have variables, too")]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The unit of its value.
    pub unit: Unit,
}

/// The unit of a variable's value: the text of its setting, or a number, finite and not negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unit {
    /// The text.
    Text,
    /// GiB.
    Gib,
    /// MiB.
    Mib,
    /// A share of the device's memory, 0 to 1.
    Share,
    /// MiB that large requests round up to a multiple of; 0 = fixed size classes.
    LargeBucket,
}

/// The device that is opened where none is named.
pub(crate) const BACKEND: [Variable; 1] = [Variable { name: "VRAMPOOL_BACKEND", unit: Unit::Text }];

/// The beginning of the names of the library's variables.
const PREFIX: &str = "VRAMPOOL_";

/// Variables that others read: extensions, the Python package and its builds, the simulated driver, tests, checks.
const OTHERS: [&str; 19] = [
    "VRAMPOOL_PINNED_STAGING",
    "VRAMPOOL_PINNED_STAGING_MB",
    "VRAMPOOL_VLLM",
    "VRAMPOOL_LIBRARY",
    "VRAMPOOL_TORCH",
    "VRAMPOOL_REQUIRE",
    "VRAMPOOL_SIMULATOR",
    "VRAMPOOL_PROFILE",
    "VRAMPOOL_FEATURES",
    "VRAMPOOL_BUILT_LIBRARY",
    "VRAMPOOL_TORCH_MODULES",
    "VRAMPOOL_TARGET",
    "VRAMPOOL_GLIBC",
    "VRAMPOOL_CARGO_ARGUMENTS",
    "VRAMPOOL_CI_PLATFORMS",
    "VRAMPOOL_CI_BROWSER",
    "VRAMPOOL_TEST_BACKENDS",
    "VRAMPOOL_TEST_OPERATIONS",
    "VRAMPOOL_TEST_REQUESTS",
];

/// The process's environment. The first call warns of variables with a name that nothing reads.
pub(crate) fn process(name: &str) -> Option<OsString> {
    static WAS_CHECKED: AtomicBool = AtomicBool::new(false);
    // A page in a browser has no environment, and a list of its variables panics there.
    let has_list = !cfg!(all(target_family = "wasm", target_os = "unknown"));
    // Relaxed: only one call has to be the first.
    if has_list && !WAS_CHECKED.swap(true, Ordering::Relaxed) {
        for name in unknown(std::env::vars_os().map(|(name, _)| name)) {
            let known: Vec<_> = KNOWN.iter().filter(|name| name.starts_with(PREFIX)).copied().collect();
            let known = known.join(", ");
            logging::warn!(
                "the environment variable {name} has no effect: nothing reads it; use one of {known}"
            );
        }
    }
    std::env::var_os(name)
}

macro_rules! known {
    ($(
        $(#[$doc:meta])* $name:ident($argument:ty): $type:ty, $default:literal, $scope:ident, $since:literal,
        [$(($variable:literal, $unit:ident)),*], $help:literal;
    )+) => {
        /// All variables that the library reads.
        const KNOWN: &[&str] = &[$($($variable,)*)+ BACKEND[0].name];
    };
}
rows!(known);

/// Returns the names with the prefix of the library that nothing reads.
fn unknown(names: impl Iterator<Item = OsString>) -> Vec<String> {
    let names = names.map(|name| name.to_string_lossy().into_owned());
    let is_known = |name: &str| OTHERS.contains(&name) || KNOWN.contains(&name);
    names.filter(|name| name.starts_with(PREFIX) && !is_known(name)).collect()
}

/// Returns the amount that the first of these variables states that is set; `None` if none is set. An empty value is
/// unset.
///
/// ```
/// use vrampool::environment::{self, Unit, Variable};
/// const CACHE: &[Variable] = &[Variable { name: "EXAMPLE_CACHE_MB", unit: Unit::Mib }];
/// assert_eq!(environment::amount(CACHE)?, None);
/// # Ok::<(), vrampool::Error>(())
/// ```
///
/// # Errors
/// [`Error::Environment`] for a value that is not valid.
pub fn amount(variables: &'static [Variable]) -> Result<Option<Amount>, Error> {
    read(variables, &process, |text| text.parse().map_err(|invalid: InvalidAmount| invalid.to_string()))
}

/// The first variable that is set and not empty, and its value.
pub(crate) fn first_set(
    variables: &'static [Variable],
    lookup: Lookup<'_>,
) -> Option<(&'static Variable, OsString)> {
    variables.iter().find_map(|of| Some((of, lookup(of.name).filter(|value| !value.is_empty())?)))
}

/// Parses the first of `variables` that is set. Others are not read: they may belong to another program.
///
/// # Errors
/// [`Error::Environment`] with the reason of `parse`.
pub(crate) fn read<T>(
    variables: &'static [Variable],
    lookup: Lookup<'_>,
    parse: impl FnOnce(&str) -> Result<T, String>,
) -> Result<Option<T>, Error> {
    let Some((variable, value)) = first_set(variables, lookup) else { return Ok(None) };
    let text = value.to_str().ok_or_else(|| "it is no text".into());
    text.and_then(|text| variable.unit.text_of(text))
        .and_then(|text| parse(&text))
        .map(Some)
        .map_err(|reason| Error::environment(variable.name, value.to_string_lossy(), reason))
}

impl Unit {
    /// The text of the setting that a value states.
    ///
    /// # Errors
    /// The reason why it states none.
    fn text_of(self, text: &str) -> Result<String, String> {
        let unit = match self {
            Self::Text => return Ok(text.into()),
            Self::Share => 1.0,
            Self::Gib => (1u64 << 30) as f64,
            Self::Mib | Self::LargeBucket => (1u64 << 20) as f64,
        };
        let number = match text.trim().parse::<f64>().ok().filter(|number| number.is_finite()) {
            None => return Err("it is not a finite decimal number".into()),
            Some(number) if number < 0.0 => return Err("it is negative; write 0 or a larger number".into()),
            Some(number) => number,
        };
        let bytes = number * unit;
        match self {
            Self::Share if number > 1.0 => Err("it is a share of the device's memory, 0 to 1".into()),
            Self::Share => Ok(format!("{}%", number * 100.0)),
            _ if number > 0.0 && bytes < 1.0 => {
                Err("it is less than one byte; write 0 or a larger number".into())
            }
            Self::LargeBucket if number == 0.0 => Ok("fixed".into()),
            Self::LargeBucket => Ok(format!("multiple:{}B", bytes as u64)),
            _ => Ok(Amount::from(bytes as u64).to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_of_a_row_that_is_added_to_the_table_is_known() {
        rows! { known
            added(u32): u32, "1", Any, "0.2", [("VRAMPOOL_ADDED", Text), ("OTHER_ADDED", Mib)], "Added for a test.";
        }
        let more: Vec<_> = KNOWN.iter().filter(|name| !super::KNOWN.contains(name)).collect();
        assert_eq!(more, [&"VRAMPOOL_ADDED", &"OTHER_ADDED"]);
    }

    #[test]
    fn names_that_nothing_reads_are_found() {
        let found = |names: &[&str]| unknown(names.iter().map(OsString::from));
        assert!(KNOWN.len() >= 10 && found(KNOWN).is_empty());
        assert!(found(&["PATH", "VRAMPOOL", "NETCL_LIMITGB", "VRAMPOOL_LIBRARY"]).is_empty());
        let mistakes = [
            "VRAMPOOL_LIMITGB",
            "VRAMPOOL_",
            "VRAMPOOL_limit_gb",
            "VRAMPOOL_OVERLAP_",
            "VRAMPOOL_SLEEP_CHUNK_MB",
            "VRAMPOOL_VLLM_EXTENSION",
            "VRAMPOOL_TEST_X",
        ];
        assert_eq!(found(&mistakes), mistakes);
    }
}
