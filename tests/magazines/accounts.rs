//! The accounts of several pools on one thread, against a naive twin.

use super::{Device, KIB, device, pool};
use proptest::prelude::*;
use std::thread;
use vrampool::{Backend, Buffer, Pool};

/// The operations of a thread on several pools in turn.
#[derive(Debug, Clone)]
enum Turn {
    Allocate { pool: usize, bytes: u64 },
    // Out and back at once.
    Pair { pool: usize, bytes: u64 },
    Drop(usize),
    Trim(usize),
    // No handle is left; another pool in its place.
    Replace(usize),
    // Another thread drops it, and ends.
    DropElsewhere(usize),
    // The statistics are as the table says.
    Look(usize),
}

fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let sizes = prop::sample::select(vec![1, 1000, 4 * KIB, 4 * KIB + 1, 64 * KIB, 2 * KIB * KIB]);
    let turn = prop_oneof![
        6 => (0..3usize, sizes.clone()).prop_map(|(pool, bytes)| Turn::Allocate { pool, bytes }),
        12 => (0..3usize, sizes).prop_map(|(pool, bytes)| Turn::Pair { pool, bytes }),
        6 => any::<usize>().prop_map(Turn::Drop),
        1 => (0..3usize).prop_map(Turn::Trim),
        1 => (0..3usize).prop_map(Turn::Replace),
        1 => any::<usize>().prop_map(Turn::DropElsewhere),
        3 => (0..3usize).prop_map(Turn::Look),
    ];
    prop::collection::vec(turn, 1..200)
}

/// A live buffer, and the number of its pool if that has a handle.
type Live = (Option<usize>, Buffer<Device>);

/// Bytes of what is live of a pool.
fn bytes(live: &[Live], of: usize, size: impl Fn(&Buffer<Device>) -> u64) -> u64 {
    live.iter().filter(|(pool, _)| *pool == Some(of)).map(|(_, buffer)| size(buffer)).sum()
}

fn look(
    pool: &Pool<Device>,
    live: &[Live],
    number: usize,
    requests: u64,
    most: u64,
) -> Result<(), TestCaseError> {
    let stats = pool.stats();
    let classes = bytes(live, number, Buffer::capacity);
    prop_assert_eq!(stats.live_buffers, bytes(live, number, |_| 1));
    prop_assert_eq!((stats.live_bytes, stats.peak.live_bytes), (classes, most));
    prop_assert_eq!(stats.requested_bytes, bytes(live, number, Buffer::len));
    prop_assert_eq!(stats.held_bytes, classes + stats.idle_bytes);
    prop_assert_eq!(stats.served.total(), requests);
    Ok(())
}

proptest! {
    /// Against a table of live buffers: each pool counts its own buffers, whichever pool a thread used last, and
    /// dropped pools leave no memory on the device.
    #[test]
    fn several_pools_of_a_thread_keep_separate_accounts(turns in turns()) {
        let device = device();
        let stream = device.create_stream().expect("a stream");
        let fresh = || pool(&device, |builder| builder.max_buffers_per_bucket(4).magazine_bytes(64 * KIB));
        let mut pools = [fresh(), fresh(), fresh()];
        let mut live: Vec<Live> = Vec::new();
        let (mut requests, mut most) = ([0; 3], [0; 3]);
        for turn in turns {
            match turn {
                Turn::Allocate { pool, bytes } => {
                    live.push((Some(pool), pools[pool].allocate(bytes, &stream).expect("memory")));
                    requests[pool] += 1;
                }
                Turn::Pair { pool, bytes } => {
                    let pair = pools[pool].allocate(bytes, &stream).expect("memory");
                    requests[pool] += 1;
                    most[pool] = most[pool].max(pair.capacity() + self::bytes(&live, pool, Buffer::capacity));
                }
                Turn::Drop(which) if !live.is_empty() => drop(live.swap_remove(which % live.len())),
                Turn::DropElsewhere(which) if !live.is_empty() => {
                    // A peak includes another thread's changes once that thread reports them.
                    pools.iter().for_each(|pool| drop(pool.stats()));
                    let freed = live.swap_remove(which % live.len());
                    thread::spawn(move || drop(freed)).join().expect("no panic");
                }
                Turn::Drop(_) | Turn::DropElsewhere(_) => {}
                Turn::Trim(pool) => {
                    pools[pool].trim().expect("a trim");
                    prop_assert_eq!(pools[pool].stats().idle_bytes, 0);
                }
                Turn::Look(which) => look(&pools[which], &live, which, requests[which], most[which])?,
                Turn::Replace(which) => {
                    pools[which] = fresh();
                    (requests[which], most[which]) = (0, 0);
                    live.iter_mut().filter(|(of, _)| *of == Some(which)).for_each(|(of, _)| *of = None);
                }
            }
            for (number, most) in most.iter_mut().enumerate() {
                *most = (*most).max(bytes(&live, number, Buffer::capacity));
            }
        }
        for number in 0..3 {
            look(&pools[number], &live, number, requests[number], most[number])?;
        }
        drop((live, pools));
        // Blocks of a closed pool in this thread's magazines are released when the thread calls another pool.
        drop(fresh().allocate(4 * KIB, &stream));
        prop_assert_eq!(device.taken(), 0);
    }
}
