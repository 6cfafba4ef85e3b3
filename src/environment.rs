//! Settings from environment variables, under our name and netcl's.

use crate::UNLIMITED;
use crate::error::Error;
use std::ffi::OsString;

/// Where variables are looked up: the process's environment, or a test's.
pub(crate) type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// The cap on idle bytes, GiB as a decimal number.
pub(crate) const MAX_CACHED: [&str; 2] = ["VRAMPOOL_MAX_CACHED_GB", "NETCL_MAX_CACHED_GB"];
/// The share of a discrete device that a pool stays within where it can.
pub(crate) const BUDGET_FRACTION: [&str; 2] = ["VRAMPOOL_POOL_BUDGET_FRAC", "NETCL_POOL_BUDGET_FRAC"];
/// The unit that large requests round up to, MiB as a decimal number; 0 = fixed buckets.
pub(crate) const LARGE_BUCKET: [&str; 2] = ["VRAMPOOL_POOL_LARGE_BUCKET_MB", "NETCL_POOL_LARGE_BUCKET_MB"];
/// The cap on a stager's pinned bytes, MiB as a decimal number.
pub(crate) const PINNED_STAGING: [&str; 2] = ["VRAMPOOL_PINNED_STAGING_MB", "NETCL_PINNED_STAGING_MB"];
/// The most bytes of one piece of physical memory of what can sleep, MiB as a decimal number.
pub(crate) const SLEEP_CHUNK: &str = "VRAMPOOL_SLEEP_CHUNK_MB";
/// The same under vLLM's name, read by vLLM's rules.
pub(crate) const VLLM_CHUNK: &str = "VLLM_ROCM_SLEEP_MEM_CHUNK_SIZE";

/// The device that is opened where none is named.
pub(crate) const BACKEND: &str = "VRAMPOOL_BACKEND";

pub(crate) const GIB: f64 = (1u64 << 30) as f64;
pub(crate) const MIB: f64 = (1u64 << 20) as f64;

/// The process's environment.
pub(crate) fn process(name: &str) -> Option<OsString> {
    std::env::var_os(name)
}

/// The number in the first of `names` that is set; an empty value counts as unset.
///
/// # Errors
/// [`Error::Environment`] when that one is not a finite decimal number. (netcl takes its default then, in silence.)
pub(crate) fn number(
    names: [&'static str; 2],
    lookup: Lookup<'_>,
) -> Result<Option<(&'static str, f64)>, Error> {
    for name in names {
        let Some(value) = lookup(name).filter(|value| !value.is_empty()) else { continue };
        let parsed =
            value.to_str().and_then(|text| text.trim().parse::<f64>().ok()).filter(|n| n.is_finite());
        return match parsed {
            Some(number) => Ok(Some((name, number))),
            None => Err(Error::Environment {
                variable: name,
                value: value.to_string_lossy().into_owned(),
                reason: "it is not a finite decimal number".into(),
            }),
        };
    }
    Ok(None)
}

/// The text of `name`, without spaces around it; an empty value counts as unset.
///
/// # Errors
/// [`Error::Environment`] when it is no UTF-8.
pub(crate) fn text(name: &'static str, lookup: Lookup<'_>) -> Result<Option<String>, Error> {
    let Some(value) = lookup(name) else { return Ok(None) };
    match value.to_str().map(str::trim) {
        Some(text) => Ok((!text.is_empty()).then(|| text.into())),
        None => Err(Error::Environment {
            variable: name,
            value: value.to_string_lossy().into_owned(),
            reason: "it is no text".into(),
        }),
    }
}

/// A number of `unit` bytes as bytes: below 0 it is 0 (as with netcl, where nothing is cached then), above what a `u64`
/// holds it is unlimited.
pub(crate) fn bytes(number: f64, unit: f64) -> u64 {
    let bytes = number * unit;
    if bytes >= UNLIMITED as f64 { UNLIMITED } else { bytes.max(0.0) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn max_cached(ours: Option<&str>, netcl: Option<&str>) -> Result<Option<u64>, Error> {
        let found = number(MAX_CACHED, &|name| {
            (if name == MAX_CACHED[0] { ours } else { netcl }).map(OsString::from)
        })?;
        Ok(found.map(|(_, number)| bytes(number, GIB)))
    }

    #[test]
    fn parsing_is_netcls_but_garbage_is_an_error() {
        let gib = 1u64 << 30;
        for (text, bytes) in [
            ("4", 4 * gib),
            ("0.5", gib / 2),
            (" 2 ", 2 * gib),
            ("1e-1", gib / 10),
            ("0", 0),
            ("-1", 0),
            ("1e300", UNLIMITED),
        ] {
            assert_eq!(max_cached(Some(text), None).expect(text), Some(bytes), "{text}");
        }
        assert_eq!(max_cached(Some(""), None).expect("empty is unset"), None);
        for text in ["four", "4GB", "nan", "inf", "--1", " "] {
            let error = max_cached(Some(text), None).expect_err(text);
            assert!(error.to_string().contains("VRAMPOOL_MAX_CACHED_GB"), "{error}");
        }
    }

    #[test]
    fn our_name_comes_before_netcls() {
        assert_eq!(max_cached(Some("1"), Some("2")).expect("numbers"), Some(1 << 30));
        assert_eq!(max_cached(None, Some("2")).expect("a number"), Some(2 << 30));
        assert_eq!(max_cached(Some(""), Some("2")).expect("a number"), Some(2 << 30));
        assert!(max_cached(Some("1"), Some("garbage")).is_ok(), "what is not needed is not read");
        assert!(
            max_cached(None, Some("garbage"))
                .expect_err("garbage")
                .to_string()
                .contains("NETCL_MAX_CACHED_GB")
        );
    }
}
