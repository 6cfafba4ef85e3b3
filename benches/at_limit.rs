//! A virtual pool whose program keeps it at its limit: 4 GiB, 64 sizes of 1 to 64 MiB in random order, blocks
//! freed at random, and a few whenever a request is refused.
//!
//! `cargo bench --bench at_limit -- [operations] [seed]` prints one JSON object for each tenth of the
//! operations: the mean time of a request, refusals, and what the pool takes of the process.

use std::error::Error;
use std::time::{Duration, Instant};
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool, Source};

const LIMIT: u64 = 4 << 30;
const SIZES: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let mut numbers = std::env::args().skip(1).filter_map(|argument| argument.parse::<u64>().ok());
    let (operations, seed) = (numbers.next().unwrap_or(1_000_000), numbers.next().unwrap_or(1));
    let device = HostDevice::builder().memory_limit(1 << 40).build();
    if device.virtual_memory().is_none() {
        println!("skipped: the host has no virtual memory on this system");
        return Ok(());
    }
    let stream = device.create_stream()?;
    let pool = Pool::builder(&device).source(Source::Virtual).limit(LIMIT).build()?;
    let mut random = fastrand::Rng::with_seed(seed);
    let sizes: Vec<u64> = (0..SIZES).map(|_| random.u64(1 << 20..=64 << 20)).collect();
    let mut live = Vec::new();
    for tenth in 1..=10 {
        let (mut time, mut requests, mut refused, mut longest) = (Duration::ZERO, 0, 0, Duration::ZERO);
        for _ in 0..operations / 10 {
            if !live.is_empty() && random.u8(..9) < 4 {
                live.swap_remove(random.usize(..live.len()));
                continue;
            }
            let bytes = sizes[random.usize(..SIZES)];
            let began = Instant::now();
            let answer = pool.allocate(bytes, &stream);
            let took = began.elapsed();
            (time, longest, requests) = (time + took, longest.max(took), requests + 1);
            match answer {
                Ok(buffer) => live.push(buffer),
                Err(error) if error.is_out_of_memory() => {
                    refused += 1;
                    for _ in 0..3.min(live.len()) {
                        live.swap_remove(random.usize(..live.len()));
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
        let stats = pool.stats();
        println!(
            "{{\"tenth\":{tenth},\"requests\":{requests},\"refused\":{refused},\"mean_ns\":{},\"longest_ns\":{},\"live\":{},\"reserved\":{},\"mapping_calls\":{},\"addresses\":{},\"process_mappings\":{}}}",
            time.as_nanos() / requests.max(1),
            longest.as_nanos(),
            stats.live_bytes,
            stats.reserved_bytes,
            stats.mapping.calls,
            pool.arena().map_or(0, vrampool::arena::DeviceArena::address_bytes),
            std::fs::read_to_string("/proc/self/maps").map_or(0, |maps| maps.lines().count()),
        );
    }
    drop(live);
    pool.trim().expect("a trim");
    println!("{{\"reserved_after_trim\":{}}}", pool.stats().reserved_bytes);
    Ok(())
}
