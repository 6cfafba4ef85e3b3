//! Settings from environment variables, under our name and netcl's.

use crate::error::Error;
use std::ffi::OsString;
use std::str::FromStr;

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
type Names = &'static [&'static str];

/// The cap on idle bytes, GiB.
const MAX_CACHED: Names = &["VRAMPOOL_MAX_CACHED_GB", "NETCL_MAX_CACHED_GB"];
/// The share of a discrete device that a pool stays within where it can.
const BUDGET_FRACTION: Names = &["VRAMPOOL_POOL_BUDGET_FRAC", "NETCL_POOL_BUDGET_FRAC"];
/// The unit that large requests round up to, MiB; 0 = fixed buckets.
const LARGE_BUCKET: Names = &["VRAMPOOL_POOL_LARGE_BUCKET_MB", "NETCL_POOL_LARGE_BUCKET_MB"];
/// The cap on a stager's pinned bytes, MiB.
const PINNED_STAGING: Names = &["VRAMPOOL_PINNED_STAGING_MB", "NETCL_PINNED_STAGING_MB"];
/// The cap on bytes taken from the device, GiB.
const LIMIT: Names = &["VRAMPOOL_LIMIT_GB"];
/// The cap on idle buffers in a bucket.
const MAX_BUFFERS: Names = &["VRAMPOOL_MAX_BUFFERS_PER_BUCKET"];
/// What serves misses, by its name.
pub(crate) const SOURCE: &str = "VRAMPOOL_SOURCE";
/// The rule of size classes, as its text.
pub(crate) const SIZE_CLASSES: &str = "VRAMPOOL_SIZE_CLASSES";
/// The most bytes of one piece of physical memory of what can sleep, MiB.
const SLEEP_CHUNK: Names = &["VRAMPOOL_SLEEP_CHUNK_MB"];
/// The same under vLLM's name, read by vLLM's rules.
pub(crate) const VLLM_CHUNK: &str = "VLLM_ROCM_SLEEP_MEM_CHUNK_SIZE";

/// The device that is opened where none is named.
pub(crate) const BACKEND: &str = "VRAMPOOL_BACKEND";

const GIB: f64 = (1u64 << 30) as f64;
const MIB: f64 = (1u64 << 20) as f64;

/// The process's environment.
pub(crate) fn process(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// Every numeric setting, by one rule: a value is a decimal number, not negative and finite; a share is at
/// most 1; a count is whole; a size is 0 or at least one byte, and one that no `u64` holds is [`UNLIMITED`].
/// An empty value is unset. All of them are checked whenever one may be needed, so that a mistake is found on any device and
/// with any arguments. A second name is not read where the first is set: it is another program's.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(crate) struct Settings {
    pub(crate) max_cached_bytes: Option<u64>,
    pub(crate) budget_fraction: Option<f64>,
    /// 0 = fixed buckets.
    pub(crate) large_bucket: Option<u64>,
    pub(crate) pinned_staging: Option<u64>,
    pub(crate) sleep_chunk: Option<u64>,
    pub(crate) limit: Option<u64>,
    pub(crate) max_buffers_per_bucket: Option<u64>,
}

impl Settings {
    /// # Errors
    /// [`Error::Environment`] for the first value that breaks the rule.
    pub(crate) fn read(lookup: Lookup<'_>) -> Result<Self, Error> {
        Ok(Self {
            max_cached_bytes: size(MAX_CACHED, GIB, lookup)?,
            budget_fraction: share(BUDGET_FRACTION, lookup)?,
            large_bucket: size(LARGE_BUCKET, MIB, lookup)?,
            pinned_staging: size(PINNED_STAGING, MIB, lookup)?,
            sleep_chunk: size(SLEEP_CHUNK, MIB, lookup)?,
            limit: size(LIMIT, GIB, lookup)?,
            max_buffers_per_bucket: count(MAX_BUFFERS, lookup)?,
        })
    }

    /// The name of a setting of pools that is another one in `later`.
    pub(crate) fn changed_in(&self, later: &Self) -> Option<&'static str> {
        let of_pools = [
            (MAX_CACHED, self.max_cached_bytes != later.max_cached_bytes),
            (BUDGET_FRACTION, self.budget_fraction != later.budget_fraction),
            (LARGE_BUCKET, self.large_bucket != later.large_bucket),
            (LIMIT, self.limit != later.limit),
            (MAX_BUFFERS, self.max_buffers_per_bucket != later.max_buffers_per_bucket),
        ];
        of_pools.into_iter().find(|(_, is_changed)| *is_changed).map(|(names, _)| names[0])
    }
}

/// A number of `unit` bytes, as bytes.
fn size(names: Names, unit: f64, lookup: Lookup<'_>) -> Result<Option<u64>, Error> {
    number(names, lookup, |number| {
        if number > 0.0 && number * unit < 1.0 {
            return Err("it is less than one byte; write 0 or a larger number");
        }
        Ok(bytes(number, unit))
    })
}

fn share(names: Names, lookup: Lookup<'_>) -> Result<Option<f64>, Error> {
    number(names, lookup, |number| match number <= 1.0 {
        true => Ok(number),
        false => Err("it is a share of the device's memory, 0 to 1"),
    })
}

fn count(names: Names, lookup: Lookup<'_>) -> Result<Option<u64>, Error> {
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

    const ALL: [(Names, f64); 6] = [
        (MAX_CACHED, GIB),
        (BUDGET_FRACTION, 1.0),
        (LARGE_BUCKET, MIB),
        (PINNED_STAGING, MIB),
        (SLEEP_CHUNK, MIB),
        (LIMIT, GIB),
    ];

    fn read(variables: &[(&str, &str)]) -> Result<Settings, Error> {
        Settings::read(&|name| {
            variables.iter().find(|(set, _)| *set == name).map(|(_, value)| OsString::from(value))
        })
    }

    #[test]
    fn sizes_are_decimal_numbers_of_their_unit() {
        let gib = 1u64 << 30;
        for (text, bytes) in [
            ("4", 4 * gib),
            ("0.5", gib / 2),
            (" 2 ", 2 * gib),
            ("1e-1", gib / 10),
            ("0", 0),
            ("-0", 0),
            ("1e300", UNLIMITED),
        ] {
            let settings = read(&[("VRAMPOOL_MAX_CACHED_GB", text)]).expect(text);
            assert_eq!(settings.max_cached_bytes, Some(bytes), "{text}");
        }
        assert_eq!(read(&[("VRAMPOOL_MAX_CACHED_GB", "")]).expect("empty is unset"), Settings::default());
    }

    #[test]
    fn every_variable_is_checked_by_one_rule() {
        for (names, unit) in ALL {
            for &name in names {
                for text in ["four", "4GB", "nan", "inf", "-inf", "--1", " ", "-1", "-1e-300", "0x10"] {
                    let error = read(&[(name, text)]).expect_err(text).to_string();
                    assert!(error.contains(name) && error.contains(text), "{error}");
                }
                assert!(read(&[(name, "0")]).is_ok() && read(&[(name, "1")]).is_ok(), "{name}");
                assert_eq!(read(&[(name, "1e-12")]).is_ok(), unit == 1.0, "less than a byte: {name}");
                assert_eq!(read(&[(name, "1.01")]).is_ok(), unit > 1.0, "more than all: {name}");
            }
        }
    }

    #[test]
    fn counts_are_whole() {
        let count = |text| read(&[(MAX_BUFFERS[0], text)]);
        assert_eq!(count("7").expect("a count").max_buffers_per_bucket, Some(7));
        for text in ["1.5", "-1"] {
            let error = count(text).expect_err(text).to_string();
            assert!(error.contains(MAX_BUFFERS[0]) && error.contains(text), "{error}");
        }
    }

    #[test]
    fn our_name_comes_before_netcls() {
        let (ours, netcl) = ("VRAMPOOL_MAX_CACHED_GB", "NETCL_MAX_CACHED_GB");
        let max_cached = |variables: &[_]| read(variables).expect("numbers").max_cached_bytes;
        assert_eq!(max_cached(&[(ours, "1"), (netcl, "2")]), Some(1 << 30));
        assert_eq!(max_cached(&[(netcl, "2")]), Some(2 << 30));
        assert_eq!(max_cached(&[(ours, ""), (netcl, "2")]), Some(2 << 30));
        assert_eq!(max_cached(&[(ours, "1"), (netcl, "garbage")]), Some(1 << 30), "it is another program's");
        let error = read(&[(netcl, "garbage")]).expect_err("garbage").to_string();
        assert!(error.contains(netcl), "{error}");
    }
}
