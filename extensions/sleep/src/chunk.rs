//! The maximum size of one piece of physical memory.

use crate::error::Error;
use std::ffi::OsString;

/// The size of a piece, MiB.
const OURS: &str = "VRAMPOOL_SLEEP_CHUNK_MB";

/// The same under vLLM's name, read by vLLM's rules.
const VLLM: &str = "VLLM_ROCM_SLEEP_MEM_CHUNK_SIZE";

const MIB: u64 = 1 << 20;

/// Where variables are looked up: the process's environment, or a test's.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// Default size of a piece, MiB.
const DEFAULT: u64 = 256;

/// Returns the largest size of a piece in bytes, rounded up to the granularity: the given one, or that of
/// `VRAMPOOL_SLEEP_CHUNK_MB`, or that of vLLM's variable by vLLM's rules.
pub(super) fn bytes(given: Option<u64>, granularity: u64, lookup: Lookup<'_>) -> Result<u64, Error> {
    let ours = ours(lookup)?;
    let bytes = given.or(ours).unwrap_or_else(|| {
        let text = lookup(VLLM).map(|text| text.to_string_lossy().into_owned());
        vllm(text.as_deref().unwrap_or_default())
    });
    Ok(round_up(bytes, granularity))
}

/// The value of our variable, bytes: a decimal number of MiB, not negative and finite. It is checked with any argument.
fn ours(lookup: Lookup<'_>) -> Result<Option<u64>, Error> {
    let Some(value) = lookup(OURS).filter(|value| !value.is_empty()) else { return Ok(None) };
    let number = value.to_str().and_then(|text| text.trim().parse::<f64>().ok());
    let reason = match number.filter(|number| number.is_finite()).map(|number| number * MIB as f64) {
        None => "it is not a finite decimal number",
        Some(bytes) if bytes < 0.0 => "it is negative; write 0 or a larger number",
        Some(bytes) if bytes > 0.0 && bytes < 1.0 => "it is less than one byte; write 0 or a larger number",
        // As large as there is above what the type holds.
        Some(bytes) => return Ok(Some(bytes as u64)),
    };
    Err(Error::Environment { variable: OURS, value: value.to_string_lossy().into_owned(), reason })
}

/// Rounds up to the granularity, at least one unit.
fn round_up(bytes: u64, granularity: u64) -> u64 {
    bytes.max(1).checked_next_multiple_of(granularity).unwrap_or(u64::MAX - u64::MAX % granularity)
}

/// Parses `VLLM_ROCM_SLEEP_MEM_CHUNK_SIZE`, and returns bytes. The value is in MiB, read like C's `strtoull`
/// with base 0: octal after 0, hexadecimal after 0x, trailing text ignored. It is 256 if there is no number,
/// or it is 0 or too large.
fn vllm(text: &str) -> u64 {
    let mebibytes = strtoull(text).filter(|&number| number > 0);
    mebibytes.and_then(|number| number.checked_mul(MIB)).unwrap_or(DEFAULT * MIB)
}

/// As C's function with base 0: `None` without a number or on overflow. Negative numbers wrap around.
fn strtoull(text: &str) -> Option<u64> {
    let text = text.trim_start_matches([' ', '\t', '\n', '\x0b', '\x0c', '\r']);
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(text) => (true, text),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hexadecimal = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let (base, digits) =
        match hexadecimal.filter(|digits| digits.starts_with(|c: char| c.is_ascii_hexdigit())) {
            Some(digits) => (16, digits),
            None if text.starts_with('0') => (8, text),
            None => (10, text),
        };
    let mut digits = digits.chars().map_while(|digit| digit.to_digit(base)).peekable();
    digits.peek()?;
    let number = digits
        .try_fold(0u64, |number, digit| number.checked_mul(u64::from(base))?.checked_add(u64::from(digit)))?;
    Some(if is_negative { number.wrapping_neg() } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// vLLM has no test for these values.
    #[test]
    fn vllms_variable_is_read_as_c_reads_it() {
        for (text, mebibytes) in [
            ("", 256),
            ("abc", 256),
            ("0", 256),
            ("64", 64),
            ("0x100", 256),
            ("0X40", 64),
            ("0400", 256),
            ("0100", 64),
            ("64abc", 64),
            ("-1", 256),
            ("18446744073709551615", 256),
            ("18446744073709551616", 256),
            (" \t+32", 32),
            ("-18446744073709551615", 1),
            ("0x", 256),
            ("08", 256),
            ("-", 256),
            ("17592186044415", 17592186044415),
            ("17592186044416", 256),
        ] {
            assert_eq!(vllm(text), mebibytes * MIB, "{text}");
        }
    }

    fn chunk(ours: Option<&str>, vllms: Option<&str>, granularity: u64) -> Result<u64, Error> {
        bytes(None, granularity, &|name| {
            let value = match name {
                OURS => ours,
                VLLM => vllms,
                _ => None,
            };
            value.map(OsString::from)
        })
    }

    #[test]
    fn a_chunk_is_a_multiple_of_the_granularity_and_our_name_comes_first() {
        assert_eq!(chunk(None, None, 2 * MIB).expect("the default"), 256 * MIB);
        assert_eq!(chunk(None, Some("3"), 2 * MIB).expect("rounded"), 4 * MIB);
        assert_eq!(chunk(Some("7"), Some("3"), 2 * MIB).expect("ours"), 8 * MIB);
        assert_eq!(chunk(Some("0.5"), None, 2 * MIB).expect("ours"), 2 * MIB);
        assert_eq!(chunk(Some(""), Some("1"), 4096).expect("empty is unset"), MIB);
        assert_eq!(chunk(Some("1e300"), None, 2 * MIB).expect("all there is") % (2 * MIB), 0);
        for wrong in ["64abc", "-1", "inf", "1e-9"] {
            let error = chunk(Some(wrong), None, 4096).expect_err("ours is a number or an error").to_string();
            assert!(error.contains(OURS) && error.contains(wrong), "{error}");
        }
        let given = |variable: &'static str| {
            bytes(Some(5 * MIB), 2 * MIB, &|name| (name == variable).then(|| OsString::from("-1")))
        };
        assert_eq!(given("none").expect("the argument"), 6 * MIB);
        assert!(given(OURS).is_err(), "its value is checked with any argument");
    }
}
