//! Idle blocks that a thread takes by a caller's numbers are of the pool and the stream that it knows by these numbers,
//! and of that pool's present epoch.
//!
//! The naive twin maps a caller's numbers to the name of its pool; names are never reused.

use proptest::prelude::*;
use std::collections::HashMap;
use std::thread;
use vrampool::host::HostDevice;
use vrampool::internal::{self, Numbers};
use vrampool::{Backend, Buffer, Pool, Source, Stream};
use vrampool_test_support as _;

/// Numbers of pools and of streams: more pairs than a thread keeps.
const POOLS: usize = 6;
const STREAMS: usize = 16;

/// Bytes of requests: of two classes of magazines, and of one that no magazine takes.
const BYTES: [u64; 3] = [1000, 5000, 2 << 20];

#[derive(Debug, Clone)]
enum Step {
    /// Allocates and knows the numbers, then frees.
    Request(usize, usize, u64),
    /// Takes by the numbers.
    Take(usize, usize, u64),
    /// Frees what was taken.
    Free,
    /// Begins a new epoch, from this thread or another one.
    Trim(usize, bool),
    /// Drops the pool of a number. Another one gets the number, and usually the place of its magazines.
    Replace(usize),
    Forget,
}

fn step() -> impl Strategy<Value = Step> {
    let of = || (0..POOLS, 0..STREAMS, prop::sample::select(&BYTES[..]));
    prop_oneof![
        6 => of().prop_map(|(pool, stream, bytes)| Step::Request(pool, stream, bytes)),
        8 => of().prop_map(|(pool, stream, bytes)| Step::Take(pool, stream, bytes)),
        2 => Just(Step::Free),
        1 => (0..POOLS, any::<bool>()).prop_map(|(pool, here)| Step::Trim(pool, here)),
        1 => (0..POOLS).prop_map(Step::Replace),
        1 => Just(Step::Forget),
    ]
}

/// Some of these numbers have the same place in a thread's table.
fn numbers(pool: usize, stream: usize) -> Numbers {
    Numbers { pool: pool as u64 * 1025 + 1024, stream: stream as u64 * 0x10a0, epoch: 7 }
}

proptest! {
    #[test]
    fn a_block_taken_by_numbers_is_of_its_pool_and_its_stream(steps in prop::collection::vec(step(), 0..80)) {
        let device = HostDevice::builder().memory_limit(1 << 30).build();
        let streams = [(); STREAMS].map(|()| device.create_stream().expect("a stream"));
        let mut made = 0;
        let mut new_pool = || {
            made += 1;
            let source = if cfg!(target_os = "linux") && made % 2 == 0 { Source::Virtual } else { Source::Direct };
            Pool::builder(&device).name(format!("pool {made}")).source(source).build().expect("a pool")
        };
        let mut pools: [Pool<HostDevice>; POOLS] = std::array::from_fn(|_| new_pool());
        let mut twin: HashMap<(usize, usize), String> = HashMap::new();
        let mut taken: Vec<Buffer<HostDevice>> = Vec::new();
        let (mut last_freed, mut hits) = (None, 0);
        for step in steps {
            let freed = last_freed.take();
            match step {
                Step::Request(pool, stream, bytes) => {
                    let buffer = pools[pool].allocate(bytes, &streams[stream]).expect("memory");
                    internal::know(numbers(pool, stream), bytes, &pools[pool], buffer.stream_id());
                    twin.insert((pool, stream), pools[pool].name().to_owned());
                    // An arena that maps memory recalls what is idle.
                    let stays = bytes < 1 << 20 && pools[pool].arena().is_none();
                    last_freed = stays.then_some((pool, stream, bytes));
                }
                Step::Take(pool, stream, bytes) => {
                    let numbers = numbers(pool, stream);
                    let buffer: Option<Buffer<HostDevice>> =
                        internal::take_known(numbers, bytes).or_else(|| internal::take_known_large(numbers, bytes));
                    prop_assert!(buffer.is_some() || freed != Some((pool, stream, bytes)), "it was just freed");
                    if let Some(buffer) = buffer {
                        let of = twin.get(&(pool, stream)).map(String::as_str);
                        prop_assert_eq!(of, Some(buffer.pool_name()));
                        prop_assert_eq!(buffer.pool_name(), pools[pool].name(), "the pool was dropped");
                        prop_assert_eq!(buffer.stream().id(), streams[stream].id());
                        prop_assert_eq!(buffer.len(), bytes);
                        prop_assert!(buffer.capacity() >= bytes);
                        taken.push(buffer);
                        hits += 1;
                    }
                }
                Step::Free => taken.clear(),
                Step::Trim(pool, true) => drop(pools[pool].trim().expect("a trim")),
                Step::Trim(pool, false) => {
                    let trimmed = thread::scope(|scope| scope.spawn(|| pools[pool].trim()).join());
                    trimmed.expect("no panic").expect("a trim");
                    for stream in 0..STREAMS {
                        let numbers = numbers(pool, stream);
                        let small: Option<Buffer<HostDevice>> = internal::take_known(numbers, BYTES[0]);
                        let large: Option<Buffer<HostDevice>> = internal::take_known_large(numbers, BYTES[2]);
                        prop_assert!(small.is_none() && large.is_none(), "the memory was recalled");
                    }
                }
                Step::Replace(pool) => {
                    taken.retain(|buffer| buffer.pool_name() != pools[pool].name());
                    pools[pool] = new_pool();
                }
                Step::Forget => {
                    internal::forget_known();
                    twin.clear();
                }
            }
        }
        let live: u64 = pools.iter().map(|pool| pool.stats().live_buffers).sum();
        prop_assert_eq!(live, taken.len() as u64, "{} were taken", hits);
    }
}
