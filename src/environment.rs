//! Settings from environment variables, under our name and netcl's. [`mebibytes`] and [`gibibytes`] are for crates that
//! build on this one.

use crate::error::Error;
use std::ffi::OsString;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};
use vrampool_backend::logging;

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

/// Names of one setting, first the one that comes first.
pub(crate) type Names = &'static [&'static str];

/// The cap on idle bytes, GiB.
pub(crate) const MAX_CACHED: Names = &["VRAMPOOL_MAX_CACHED_GB", "NETCL_MAX_CACHED_GB"];
/// The share of a discrete device that a pool stays within where it can.
pub(crate) const BUDGET_FRACTION: Names = &["VRAMPOOL_POOL_BUDGET_FRAC", "NETCL_POOL_BUDGET_FRAC"];
/// The unit that large requests round up to, MiB; 0 = fixed buckets.
pub(crate) const LARGE_BUCKET: Names = &["VRAMPOOL_POOL_LARGE_BUCKET_MB", "NETCL_POOL_LARGE_BUCKET_MB"];
/// The cap on bytes taken from the device, GiB.
pub(crate) const LIMIT: Names = &["VRAMPOOL_LIMIT_GB"];
/// The cap on idle buffers in a bucket.
pub(crate) const MAX_BUFFERS: Names = &["VRAMPOOL_MAX_BUFFERS_PER_BUCKET"];
/// What serves misses, by its name.
pub(crate) const SOURCE: &str = "VRAMPOOL_SOURCE";
/// The rule of size classes, as its text.
pub(crate) const SIZE_CLASSES: &str = "VRAMPOOL_SIZE_CLASSES";
/// The bound on memory that spares waits between streams, as its text.
pub(crate) const OVERLAP: &str = "VRAMPOOL_OVERLAP";

/// Memory that a pool maps when it is made, as its text.
pub(crate) const INITIAL: &str = "VRAMPOOL_INITIAL";

/// The device that is opened where none is named.
pub(crate) const BACKEND: &str = "VRAMPOOL_BACKEND";

pub(crate) const GIB: f64 = (1u64 << 30) as f64;
pub(crate) const MIB: f64 = (1u64 << 20) as f64;

/// All variables that the library reads, by groups of names.
const KNOWN: [Names; 10] = [
    MAX_CACHED,
    BUDGET_FRACTION,
    LARGE_BUCKET,
    LIMIT,
    MAX_BUFFERS,
    &[SOURCE],
    &[SIZE_CLASSES],
    &[OVERLAP],
    &[INITIAL],
    &[BACKEND],
];

/// The beginning of the names of the library's variables.
const PREFIX: &str = "VRAMPOOL_";

/// Other variables with this prefix: those of extensions, of the Python package, of tests, checks and builds. One that
/// ends with `_` stands for all that begin so.
const OTHERS: [&str; 12] = [
    "PINNED_STAGING_MB",
    "VLLM",
    "LIBRARY",
    "REQUIRE",
    "SIMULATOR",
    "TEST_",
    "CI_",
    "BENCH_",
    "PROFILE",
    "FEATURES",
    "BUILT_LIBRARY",
    "TORCH",
];

/// The process's environment. The first call warns of variables with a name that nothing reads.
pub(crate) fn process(name: &str) -> Option<OsString> {
    static WAS_CHECKED: AtomicBool = AtomicBool::new(false);
    // Relaxed: only one call has to be the first.
    if !WAS_CHECKED.swap(true, Ordering::Relaxed) {
        for name in unknown(std::env::vars_os().map(|(name, _)| name)) {
            let known: Vec<_> =
                KNOWN.into_iter().flatten().filter(|name| name.starts_with(PREFIX)).copied().collect();
            let known = known.join(", ");
            logging::warn!(
                "the environment variable {name} has no effect: nothing reads it; use one of {known}"
            );
        }
    }
    std::env::var_os(name)
}

/// Returns names that begin like those of the library, and are none of them.
fn unknown(names: impl Iterator<Item = OsString>) -> Vec<String> {
    let is_known = |name: &str| KNOWN.into_iter().flatten().any(|&known| known == name);
    let is_other = |rest: &str| {
        OTHERS.iter().any(|other| rest == *other || other.ends_with('_') && rest.starts_with(other))
    };
    let names = names.map(|name| name.to_string_lossy().into_owned());
    let ours = names.filter(|name| name.strip_prefix(PREFIX).is_some_and(|rest| !is_other(rest)));
    ours.filter(|name| !is_known(name)).collect()
}

/// Returns the bytes that the first of these variables states that is set, in MiB; `None` if none is set.
///
/// A value is a decimal number, not negative and finite, of 0 or at least one byte; more bytes than a `u64` holds are
/// `u64::MAX`. An empty value is unset.
///
/// ```
/// assert_eq!(vrampool::environment::mebibytes(&["EXAMPLE_CACHE_MB"])?, None);
/// # Ok::<(), vrampool::Error>(())
/// ```
///
/// # Errors
/// [`Error::Environment`] for another value.
pub fn mebibytes(names: &'static [&'static str]) -> Result<Option<u64>, Error> {
    size(names, MIB, &process)
}

/// As [`mebibytes`], in GiB.
///
/// # Errors
/// [`Error::Environment`] for another value.
pub fn gibibytes(names: &'static [&'static str]) -> Result<Option<u64>, Error> {
    size(names, GIB, &process)
}

/// A number of `unit` bytes, as bytes.
pub(crate) fn size(names: Names, unit: f64, lookup: Lookup<'_>) -> Result<Option<u64>, Error> {
    number(names, lookup, |number| {
        if number > 0.0 && number * unit < 1.0 {
            return Err("it is less than one byte; write 0 or a larger number");
        }
        Ok(bytes(number, unit))
    })
}

pub(crate) fn share(names: Names, lookup: Lookup<'_>) -> Result<Option<f64>, Error> {
    number(names, lookup, |number| match number <= 1.0 {
        true => Ok(number),
        false => Err("it is a share of the device's memory, 0 to 1"),
    })
}

pub(crate) fn count(names: Names, lookup: Lookup<'_>) -> Result<Option<u64>, Error> {
    number(names, lookup, |number| match number.fract() == 0.0 {
        true => Ok(bytes(number, 1.0)),
        false => Err("it is a count, a whole number"),
    })
}

/// What the text of a variable names.
///
/// # Errors
/// [`Error::Environment`] when it names nothing.
pub(crate) fn parsed<T: FromStr<Err = Error>>(
    variable: &'static str,
    lookup: Lookup<'_>,
) -> Result<Option<T>, Error> {
    let Some(text) = text(variable, lookup)? else { return Ok(None) };
    let parsed = text.parse().map(Some);
    parsed.map_err(|error| match error {
        Error::Configuration(invalid) => Error::environment(variable, text, invalid.reason),
        other => other,
    })
}

/// The number in the first of `names` that is set, as what `accept` makes of it.
fn number<T>(
    names: Names,
    lookup: Lookup<'_>,
    accept: impl Fn(f64) -> Result<T, &'static str>,
) -> Result<Option<T>, Error> {
    let set = |name: &&'static str| Some((*name, lookup(name).filter(|value| !value.is_empty())?));
    let Some((variable, value)) = names.iter().find_map(set) else { return Ok(None) };
    let parsed = value.to_str().and_then(|text| text.trim().parse::<f64>().ok());
    let accepted = match parsed.filter(|number| number.is_finite()) {
        None => Err("it is not a finite decimal number"),
        Some(number) if number < 0.0 => Err("it is negative; write 0 or a larger number"),
        Some(number) => accept(number),
    };
    accepted
        .map(Some)
        .map_err(|reason| Error::environment(variable, value.to_string_lossy().into_owned(), reason))
}

/// The text of `name`, without spaces around it; an empty value counts as unset.
///
/// # Errors
/// [`Error::Environment`] when it is no UTF-8.
pub(crate) fn text(name: &'static str, lookup: Lookup<'_>) -> Result<Option<String>, Error> {
    let Some(value) = lookup(name) else { return Ok(None) };
    match value.to_str().map(str::trim) {
        Some(text) => Ok((!text.is_empty()).then(|| text.into())),
        None => Err(Error::environment(name, value.to_string_lossy().into_owned(), "it is no text")),
    }
}

/// A number of `unit` bytes as bytes; above what a `u64` holds it is unlimited.
pub(crate) fn bytes(number: f64, unit: f64) -> u64 {
    let bytes = number * unit;
    if bytes >= UNLIMITED as f64 { UNLIMITED } else { bytes as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_nothing_reads_are_found() {
        let found = |names: &[&str]| unknown(names.iter().map(OsString::from));
        let known = KNOWN.into_iter().flatten().copied().collect::<Vec<_>>();
        assert!(known.len() >= 10 && found(&known).is_empty());
        assert!(
            found(&["PATH", "VRAMPOOL", "NETCL_LIMITGB", "VRAMPOOL_LIBRARY", "VRAMPOOL_TEST_X"]).is_empty()
        );
        let mistakes = [
            "VRAMPOOL_LIMITGB",
            "VRAMPOOL_",
            "VRAMPOOL_limit_gb",
            "VRAMPOOL_OVERLAP_",
            "VRAMPOOL_SLEEP_CHUNK_MB",
            "VRAMPOOL_VLLM_EXTENSION",
            "VRAMPOOL_PINNED_STAGING",
        ];
        assert_eq!(found(&mistakes), mistakes);
    }
}
