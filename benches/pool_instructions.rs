//! Instructions of a request and its drop, by what serves it.
//!
//! `cargo bench --bench pool_instructions` prints instructions for each pair, counted by valgrind. They are those of many
//! pairs less those of few in the same pool, so that making it does not count.

use std::hint::black_box;
use std::process::Command;
use vrampool::host::{HostDevice, HostStream};
use vrampool::{Error, Pool};

/// Pairs for the two counts of instructions.
const PAIRS: [u64; 2] = [1_000, 21_000];

const KIB: u64 = 1024;

/// Sizes that are allocated together and then freed, and whether the pool keeps idle memory.
const CASES: [(&str, &[u64], bool, &str); 4] = [
    ("hit", &[4 * KIB], true, "a block of 4 KiB, from the thread's magazine"),
    ("hits", &[4 * KIB, 64 * KIB], true, "blocks of 4 and 64 KiB at a time, from the thread's magazine"),
    ("large", &[8192 * KIB], true, "a block of 8 MiB, from the depot"),
    ("miss", &[4 * KIB], false, "a block of 4 KiB, from the host device and back"),
];

fn run(sizes: &[u64], keeps: bool, pairs: u64) -> Result<(), Error> {
    let device = HostDevice::builder().memory_limit(1 << 30).build();
    let stream: HostStream = vrampool::Backend::create_stream(&device)?;
    let builder = Pool::builder(&device);
    let pool = if keeps { builder } else { builder.max_cached_bytes(0) }.build()?;
    for _ in 0..pairs / sizes.len() as u64 {
        match *sizes {
            [one, other] => {
                let first = black_box(pool.allocate(one, &stream)?);
                drop((first, black_box(pool.allocate(other, &stream)?)));
            }
            _ => drop(black_box(pool.allocate(sizes[0], &stream)?)),
        }
    }
    Ok(())
}

/// Instructions that this program takes, by valgrind; `None` where there is no valgrind.
fn instructions(case: &str, pairs: u64) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(std::env::current_exe().ok()?)
        .args([case.to_string(), pairs.to_string()])
        .output()
        .ok()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    text.lines().find_map(|line| line.split_once("Collected :"))?.1.trim().parse().ok()
}

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    if let [case, pairs] = &arguments[..] {
        let known = CASES.iter().find(|(name, ..)| name == case);
        let Some((_, sizes, keeps, _)) = known else { return Ok(()) };
        return run(sizes, *keeps, pairs.parse().unwrap_or(0));
    }
    println!("instructions for each pair");
    for (case, _, _, what) in CASES {
        let [few, many] = PAIRS.map(|pairs| instructions(case, pairs));
        match few.zip(many) {
            Some((few, many)) => {
                println!("{case:8} {:8.1}   {what}", (many - few) as f64 / (PAIRS[1] - PAIRS[0]) as f64);
            }
            None => println!("{case:8} no valgrind"),
        }
    }
    Ok(())
}
