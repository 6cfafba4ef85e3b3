//! Instructions of a request and its drop, by what serves it.
//!
//! `cargo bench --bench pool_instructions` prints instructions for each pair, counted by valgrind. They are those of many
//! pairs less those of few in the same pool, so that making it does not count.

use std::hint::black_box;
use vrampool::host::{HostDevice, HostStream};
use vrampool::{Error, Pool, Source};
use vrampool_test_support::instructions;

/// Pairs for the two counts of instructions.
const PAIRS: [u64; 2] = [1_000, 21_000];

const KIB: u64 = 1024;

/// What is allocated and freed, and from where.
const CASES: [(&str, &str); 10] = [
    ("hit", "a block of 4 KiB, from the thread's magazine"),
    ("hits", "blocks of 4 and 64 KiB at a time, from the thread's magazine"),
    ("turns", "a block of 4 KiB, then one of 64 KiB, from the thread's magazine"),
    ("eight", "eight blocks of 4 KiB at a time, from the thread's magazine"),
    ("child", "as hit, of a child"),
    ("large", "a block of 8 MiB, from the depot"),
    ("child-8M", "as large, of a child"),
    ("arena", "a block of 4 KiB, from an arena and back"),
    ("arena-8M", "a block of 8 MiB, from an arena and back"),
    ("miss", "a block of 4 KiB, from the host device and back"),
];

fn run(case: &str, pairs: u64) -> Result<(), Error> {
    let device = HostDevice::builder().memory_limit(1 << 30).build();
    let stream: HostStream = vrampool::Backend::create_stream(&device)?;
    let builder = Pool::builder(&device);
    let pool = match case {
        "miss" => builder.max_cached_bytes(0),
        "arena" | "arena-8M" => builder.source(Source::Arena).limit(1 << 30).max_cached_bytes(0),
        // The thread's magazine has room for all of them.
        "eight" => builder.max_buffers_per_bucket(64),
        _ => builder,
    }
    .build()?;
    let pool = if case.starts_with("child") { pool.child("child").build()? } else { pool };
    let allocate = |kib| pool.allocate(kib * KIB, &stream).map(black_box);
    match case {
        "hits" => (0..pairs / 2).try_for_each(|_| {
            let first = allocate(4)?;
            drop((first, allocate(64)?));
            Ok(())
        }),
        "turns" => {
            (0..pairs / 2).try_for_each(|_| [4, 64].into_iter().try_for_each(|kib| allocate(kib).map(drop)))
        }
        "eight" => (0..pairs / 8).try_for_each(|_| {
            let live: [_; 8] = std::array::from_fn(|_| allocate(4));
            live.into_iter().try_for_each(|buffer| buffer.map(drop))
        }),
        "large" | "child-8M" | "arena-8M" => (0..pairs).try_for_each(|_| allocate(8192).map(drop)),
        _ => (0..pairs).try_for_each(|_| allocate(4).map(drop)),
    }
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [case, pairs] = &arguments[..] {
        return run(case, pairs.parse().unwrap_or(0));
    }
    println!("instructions for each pair");
    for (case, what) in CASES {
        let [few, many] = PAIRS.map(|pairs| instructions(&[case.to_string(), pairs.to_string()]));
        match few.zip(many) {
            Some((few, many)) => {
                println!("{case:8} {:8.1}   {what}", (many - few) as f64 / (PAIRS[1] - PAIRS[0]) as f64);
            }
            None => println!("{case:8} no valgrind"),
        }
    }
    Ok(())
}
