//! Options of pools that were changed at random, as the fuzz target `c_options` has them;
//! `VRAMPOOL_MUTATIONS` says how many, if more than a few.

mod options;

use fastrand::Rng;
use std::ffi::CString;
use vrampool_c::boundary::Out;
use vrampool_c::{Status, vrampool_create, vrampool_destroy};

/// Valid options.
const SEEDS: [&str; 4] = [
    "limit=1MiB;budget=unlimited;max_cached_bytes=65536;max_buffers_per_bucket=3;source=direct",
    "name = a\nsource=virtual; limit=4MiB;size_classes=geometric:8:1MiB;offload=pageable",
    "source=arena;limit=512KiB;magazine_bytes=0;magazine_class=4KiB;cached_class=64KiB;borrow_classes=2;memory=device",
    "source=virtual;overlap=25%;limit=2MiB\noverlap=64KiB",
];

/// Text that asks for much: long text, and keys over and over, also of files.
#[test]
fn options_take_no_longer_than_their_length_allows() {
    let pairs = format!("source=direct;{}", "limit=1MiB;budget=2MiB\n".repeat(2800));
    assert!(pairs.len() < 64 << 10);
    assert!(options::check(pairs.as_bytes()), "{}", vrampool_c::last_error_text());
    for hostile in ["limit=1MiB;".repeat(6000), "x".repeat(1 << 20), "=".repeat(1 << 20), ";".repeat(1 << 20)]
    {
        assert!(!options::check(hostile.as_bytes()), "{} bytes", hostile.len());
        assert!(vrampool_c::last_error_text().contains("65536"), "{}", vrampool_c::last_error_text());
    }
    // Each load would be an error: only the last value counts.
    let file = "size_classes=fitted:/nowhere;".repeat(2000);
    let text = CString::new(format!("device=host;host_capacity=1MiB;source=direct;{file}size_classes=fixed"))
        .expect("text");
    let mut pool = 0;
    let made = vrampool_create(text.as_c_str().into(), Out::from(&mut pool));
    assert_eq!(made, Status::OK, "{}", vrampool_c::last_error_text());
    assert_eq!(vrampool_destroy(pool), Status::OK);
}

/// What means something to the reader.
const TOKENS: [&str; 18] = [
    ";",
    "\n",
    "=",
    " ",
    "unlimited",
    "limit=",
    "budget=",
    "max_cached_bytes=7",
    "max_buffers_per_bucket=0",
    "overlap=",
    "25%",
    "20EiB",
    "1e3",
    "-1",
    "0",
    "KiB",
    "source=driver;",
    "18446744073709551616",
];

#[test]
fn a_pool_of_changed_options_is_as_a_naive_reader_reads_them() {
    let count =
        std::env::var("VRAMPOOL_MUTATIONS").ok().and_then(|count| count.parse().ok()).unwrap_or(20_000);
    let mut random = Rng::with_seed(23);
    for seed in SEEDS {
        assert!(options::check(seed.as_bytes()), "{}", vrampool_c::last_error_text());
    }
    for _ in 0..count {
        let mut text: Vec<u8> = random.choice(SEEDS).unwrap_or_default().into();
        for _ in 0..random.usize(1..=4) {
            let at = random.usize(..=text.len());
            let end = (at + random.usize(..12)).min(text.len());
            let token = random.choice(TOKENS).unwrap_or_default().bytes();
            match random.u8(..4) {
                0 => drop(text.splice(at..at, token)),
                1 => drop(text.splice(at..end, token)),
                2 => drop(text.drain(at..end)),
                _ if at < text.len() => text[at] = random.u8(..),
                _ => {}
            }
        }
        options::check(&text);
    }
}
