//! Pools of one tree with separate sources.

use crate::{KIB, device_and_stream};
use vrampool::{Placement, Pool, Source};

const LIMIT: u64 = 64 << 20;

/// Memory that a growing arena keeps mapped, and that of arenas of fixed size, counts against the limits of the tree.
#[test]
fn memory_of_pools_of_all_sources_is_within_the_limit() {
    for (root, below) in
        Source::ALL.iter().flat_map(|root| Source::ALL.iter().map(move |below| (*root, *below)))
    {
        if root == Source::Arena {
            // It takes its limit at once.
            continue;
        }
        let (device, stream) = device_and_stream();
        let pool = Pool::builder(&device).source(root).limit(LIMIT).build().expect("a pool");
        drop(pool.allocate(60 << 20, &stream).expect("memory"));
        let live = pool.allocate(8 << 20, &stream).expect("memory");
        let child = pool.child("tenant").source(below).limit(48 << 20).build();
        let child = child.and_then(|child| Ok((child.allocate(32 << 20, &stream)?, child)));
        assert!(child.is_ok() || below == Source::Arena, "{root} {below}: {child:?}");
        assert!(device.peak() <= LIMIT, "{root} {below}: {}", device.peak());
        drop((child, live));
        drop(pool.allocate(60 << 20, &stream).expect("memory"));
        let other = pool.allocate_kind(32 << 20, Placement::HostVisible, &stream).expect("memory");
        assert!(device.peak() <= LIMIT, "{root} {below}: {}", device.peak());
        drop((other, pool));
        assert_eq!(device.taken(), 0, "{root} {below}");
    }
}

#[test]
fn a_share_of_another_source_is_not_mapped_by_the_pool() {
    let (device, stream) = device_and_stream();
    let pool = Pool::builder(&device).source(Source::Virtual).limit(LIMIT).build().expect("a pool");
    let child = pool.child("tenant").source(Source::Direct).share(31 << 20).build().expect("a pool");
    // Small blocks that keep a page each.
    let small: Vec<_> = [0, KIB]
        .into_iter()
        .flat_map(|more| {
            let pair = || {
                let small = pool.allocate(KIB, &stream).ok()?;
                Some((small, pool.allocate((2 << 20) - KIB + more, &stream).ok()?))
            };
            let pairs: Vec<_> = std::iter::from_fn(pair).collect();
            pairs.into_iter().map(|(small, _)| small)
        })
        .collect();
    let _own = child.allocate(31 << 20, &stream).expect("its share");
    assert!(small.len() > 12 && device.peak() <= LIMIT, "{}", small.len());
}
