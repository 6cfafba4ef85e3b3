//! A model that sleeps between two bursts of work: its memory returns to the device, and its weights are copied to
//! the host and return to the same addresses.

use std::error::Error;
use std::time::Duration;
use vrampool::{Backend, Pool, Source, any};
use vrampool_sleep::{Offload, SleepArena, sleep_all, wake_all};

const WEIGHTS: u64 = 64 << 20;
const KV_CACHE: u64 = 256 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let device = any::open("auto")?;
    let stream = device.create_stream()?;
    println!("on {}", device.properties().name);

    // A tag is a child of a pool over virtual memory.
    let pool = Pool::builder(&device).source(Source::Virtual).addresses_stay(true).build()?;
    let (weights, kv_cache) = (pool.child("weights").build()?, pool.child("kv_cache").build()?);
    let arena_of = |tag: &Pool<_>| tag.arena().cloned().map(SleepArena::new).ok_or("it is not virtual");
    let (weights_arena, cache_arena) = (arena_of(&weights)?, arena_of(&kv_cache)?);
    let mut model = weights.allocate(WEIGHTS, &stream)?;
    let cache = kv_cache.allocate(KV_CACHE, &stream)?;
    model.write(&vec![7; WEIGHTS as usize], &stream)?;

    // Contents of `weights` are kept on the host, those of `kv_cache` are not. Waits for pending work.
    let arenas = [(&weights_arena, Offload::Pinned), (&cache_arena, Offload::Discard)];
    let report = sleep_all(arenas, Duration::ZERO, &|_| ())?;
    println!("{} bytes are free, {} are on the host", report.physical_bytes, report.copied_bytes);

    // The weights first, so that they can be checked or updated before the cache takes memory.
    let _ = wake_all([&weights_arena], &|_| ())?;
    let mut first = [0; 16];
    model.read(&mut first, &stream)?;
    assert_eq!(first, [7; 16]);
    let _ = wake_all([&cache_arena], &|_| ())?;
    drop(cache);
    Ok(())
}
