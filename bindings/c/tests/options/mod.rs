//! Options of pools, as text, against a naive second reader: they are refused, or the pool is as the last
//! value of each key says.

use std::ffi::CString;
use vrampool_c::boundary::Out;
use vrampool_c::*;

/// A device of its own, whatever the text says before.
const DEVICE: &str = "\ndevice=host;host_capacity=1MiB";

type Figure = fn(&Stats) -> u64;

/// Keys of caps, and what they are in a pool's figures.
const CAPS: [(&str, Figure); 4] = [
    ("limit", |stats| stats.limit_bytes),
    ("budget", |stats| stats.budget_bytes),
    ("max_cached_bytes", |stats| stats.max_cached_bytes),
    ("max_buffers_per_bucket", |stats| stats.max_buffers_per_bucket),
];

/// Makes a pool of any text. Returns whether that was accepted.
pub(crate) fn check(bytes: &[u8]) -> bool {
    // Whatever else is in a file is not its business.
    let Some(text) = std::str::from_utf8(bytes).ok().filter(|text| !text.contains("fitted:")) else {
        return false;
    };
    let Ok(options) = CString::new(format!("{text}{DEVICE}")) else { return false };
    let mut pool = 0;
    match vrampool_create(options.as_c_str().into(), Out::from(&mut pool)) {
        Status::OK => {}
        status => {
            assert!(pool == 0 && status == vrampool_last_error_code() && status != Status::INTERNAL);
            assert!(!last_error_text().is_empty());
            return false;
        }
    }
    let mut stats = Stats { struct_size: size_of::<Stats>(), ..Stats::default() };
    assert_eq!(vrampool_get_stats(pool, Out::from(&mut stats)), Status::OK);
    for (key, figure) in CAPS {
        if let Some(Some(value)) = last(text, key).map(bytes_of) {
            assert_eq!(figure(&stats), value, "{key} of {text:?}");
        }
    }
    assert_eq!(vrampool_destroy(pool), Status::OK);
    true
}

/// The last value of a key. A pool was made, so each part is a pair or empty.
fn last<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let pairs = text.rsplit([';', '\n']).filter(|pair| !pair.trim().is_empty());
    let mut pairs = pairs.map(|pair| pair.split_once('=').expect("a pair"));
    pairs.find(|pair| pair.0.trim() == key).map(|pair| pair.1.trim())
}

/// A size in whole bytes or binary units. `None` for other ways to write one.
fn bytes_of(text: &str) -> Option<u64> {
    if text == "unlimited" {
        return Some(u64::MAX);
    }
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        _ => return None,
    };
    digits
        .bytes()
        .all(|digit| digit.is_ascii_digit())
        .then(|| digits.parse::<u64>().ok()?.checked_mul(unit))?
}
