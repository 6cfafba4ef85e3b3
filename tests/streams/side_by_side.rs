//! Streams that share no data run side by side, from every source, for every size: while one stream is held
//! back, the work of all others completes. Counted, not timed: a stream that waits for a closed gate never
//! completes.

use crate::bench::{ARENA, Bench, EDGE, SIZES, Seeded, TURNS, cases, sources};
use proptest::prelude::*;
use std::time::Duration;
use vrampool::arena::DeviceArena;
use vrampool::host::{HostDevice, HostStream};
use vrampool::{Backend, Buffer, Error, Placement, Pool, SizeClasses, Source};
use vrampool_test_support::{close_gate, has_virtual_memory};

/// In steady state, too: `is_warm` runs steps before one stream is held back.
#[test]
fn a_stream_that_is_held_back_delays_no_other() {
    for case in cases() {
        for (streams, held_back) in [(2, 0), (2, 1), (4, 0), (4, 2)] {
            for is_warm in [false, true] {
                let mut bench = Bench::new(streams);
                let pool = bench.pool(case.source, &case.classes);
                let pools = vec![&pool; streams];
                if is_warm {
                    bench.turns(&pools, &case);
                }
                let open = bench.hold_back(&pool, case.bytes, held_back);
                bench.turns(&pools, &case);
                bench.assert_others_complete(held_back, &case);
                drop(open);
                bench.assert_contents(&case);
            }
        }
    }
}

/// Each stream is one thread's own, so that small blocks rest with their threads, or have come back from one
/// that ended.
#[test]
fn streams_of_several_threads_do_not_delay_each_other() {
    for case in cases() {
        let mut bench = Bench::new(3);
        let pool = bench.pool(case.source, &case.classes);
        let open = bench.hold_back(&pool, case.bytes, 0);
        for stream in [0, 1, 2, 1] {
            let turn = || (0..TURNS).try_for_each(|_| bench.turn(&pool, &case, stream));
            std::thread::scope(|scope| scope.spawn(turn).join().expect("no panic")).expect("memory");
        }
        bench.assert_others_complete(0, &case);
        drop(open);
        bench.assert_contents(&case);
    }
}

/// A request with a deadline, and one for another kind of memory, go the same way.
#[test]
fn every_kind_of_request_finds_memory_without_a_wait() {
    type Ask = fn(&Pool<HostDevice>, u64, &HostStream) -> Result<Buffer<HostDevice>, Error>;
    let asks: [(&str, Ask); 3] = [
        ("allocate_kind", |pool, bytes, stream| pool.allocate_kind(bytes, Placement::HostVisible, stream)),
        ("allocate_timeout", |pool, bytes, stream| {
            pool.allocate_timeout(bytes, stream, Duration::from_secs(10))
        }),
        ("allocate_zeroed", |pool, bytes, stream| pool.allocate_zeroed(bytes, stream)),
    ];
    for source in sources() {
        for (name, ask) in asks {
            let bench = Bench::new(2);
            let pool = bench.pool(source, &SizeClasses::Fixed);
            let _held_back = close_gate(&bench.streams[0]);
            for _ in 0..TURNS {
                for stream in &bench.streams {
                    let mut buffer = ask(&pool, 1 << 20, stream).expect("memory");
                    buffer.fill(1, stream).expect("queued");
                }
            }
            bench.assert_others_complete(0, format_args!("{source}, {name}"));
        }
    }
}

/// Of an arena that is used without a pool.
#[test]
fn streams_of_an_arena_do_not_delay_each_other() {
    for bytes in SIZES {
        for is_growing in [false, true] {
            let bench = Bench::new(2);
            if is_growing && !has_virtual_memory(&bench.device) {
                continue;
            }
            let builder = DeviceArena::builder(&bench.device).limit(ARENA);
            let arena = if is_growing { builder.growing() } else { builder }.build().expect("an arena");
            let _held_back = close_gate(&bench.streams[0]);
            for _ in 0..TURNS {
                for stream in &bench.streams {
                    let mut buffer = arena.allocate(bytes, stream).expect("memory");
                    let region = buffer.on_mut(stream).expect("a region").slice(..EDGE as u64);
                    bench.device.fill(stream, region.expect("it fits"), 1).expect("queued");
                }
            }
            bench.assert_others_complete(0, format_args!("{bytes} bytes, growing: {is_growing}"));
        }
    }
}

/// While all streams are busy, the price is that of separate pools. Streams that are idle now and then take complete
/// memory of each other, and lack it once all are busy: up to a fifth more was seen.
#[test]
fn one_pool_holds_at_most_what_a_pool_for_each_stream_holds() {
    for case in cases() {
        for streams in [2, 4] {
            let held = |pools: usize| {
                let mut bench = Bench::new(streams);
                let pools: Vec<_> = (0..pools).map(|_| bench.pool(case.source, &case.classes)).collect();
                let of_streams: Vec<_> = pools.iter().cycle().take(streams).collect();
                let busy: Vec<_> = of_streams
                    .iter()
                    .zip(0..)
                    .map(|(pool, n)| bench.hold_back(pool, case.bytes, n))
                    .collect();
                bench.turns(&of_streams, &case);
                drop(busy);
                bench.assert_contents(&case);
                // Of an arena, the part that was used; else, what was taken from the device.
                let taken: u64 = pools.iter().map(|pool| pool.stats().peak.limit_bytes).sum();
                let held: u64 = pools.iter().map(|pool| pool.stats().peak.held_bytes).sum();
                (taken, held)
            };
            let (one, each) = (held(1), held(streams));
            assert!(one.0 <= each.0, "{case}, {streams} streams: {} bytes taken, not {}", one.0, each.0);
            assert!(one.1 <= each.1, "{case}, {streams} streams: {} bytes held, not {}", one.1, each.1);
        }
    }
}

/// Where no memory is left for two streams side by side, one waits for the other on the device: what one
/// stream needs alone is enough.
#[test]
fn at_every_limit_that_serves_one_stream_none_is_refused() {
    const STEPS: u64 = 10;
    for case in cases().into_iter().filter(|case| case.source != Source::Arena) {
        let peak = |streams: usize| {
            let mut bench = Bench::new(streams);
            let pools: Vec<_> = (0..streams).map(|_| bench.pool(case.source, &case.classes)).collect();
            bench.turns(&pools.iter().collect::<Vec<_>>(), &case);
            bench.assert_contents(&case);
            pools.iter().map(|pool| pool.stats().peak.limit_bytes).sum::<u64>()
        };
        let (least, most) = (peak(1), peak(2));
        for step in 0..=STEPS {
            let limit = least + (most - least) * step / STEPS;
            let mut bench = Bench::new(2);
            let builder = Pool::builder(&bench.device).source(case.source).limit(limit);
            let pool = builder.size_classes(case.classes.clone()).build().expect("a pool");
            for _ in 0..2 {
                bench.turns(&[&pool, &pool], &case);
            }
            bench.assert_contents(format_args!("{case}, a limit of {limit}, step {step}"));
            assert!(pool.stats().peak.reserved_bytes <= limit, "{case}, a limit of {limit}");
        }
    }
}

/// One block of memory, and a stream that is held back: the other one gets the block, and waits.
#[test]
fn at_the_limit_a_stream_waits_on_the_device_for_one_that_is_held_back() {
    for source in sources() {
        for bytes in SIZES {
            let mut bench = Bench::new(2);
            let page = 2 << 20;
            let limit = bytes.next_multiple_of(if source == Source::Virtual { page } else { 4096 });
            let classes = SizeClasses::PowerOfTwo;
            let pool = Pool::builder(&bench.device).source(source).limit(limit).size_classes(classes);
            let pool = pool.build().expect("a pool");
            let open = bench.hold_back(&pool, limit, 0);
            let block = bench.produce(&pool, limit, 1).expect("it waits rather than fails");
            let written = bench.device.record(&bench.streams[1]).expect("an event");
            assert_eq!(
                vrampool::Event::is_complete(&written),
                Ok(false),
                "{source}, {bytes} bytes: it is the same memory, which the first stream still reads"
            );
            bench.verify(&block, 1);
            drop((block, open));
            bench.assert_contents(format_args!("{source}, {bytes} bytes"));
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Operation {
    /// On a stream, of so many bytes.
    Allocate(usize, u64),
    /// Of the live blocks, by number.
    Free(usize),
    /// Reads a live block.
    Verify(usize),
}

fn operation(streams: usize) -> impl Strategy<Value = Operation> {
    let bytes = prop_oneof![
        4 => 1u64..64 << 10,
        2 => 64u64 << 10..4 << 20,
        1 => 4u64 << 20..=64 << 20,
        3 => prop::sample::select(&SIZES[..]),
    ];
    prop_oneof![
        4 => (0..streams, bytes).prop_map(|(stream, bytes)| Operation::Allocate(stream, bytes)),
        4 => any::<usize>().prop_map(Operation::Free),
        1 => any::<usize>().prop_map(Operation::Verify),
    ]
}

/// Runs all operations, with one stream held back from the `gate`th one on.
fn run(
    bench: &mut Bench,
    pool: &Pool<HostDevice>,
    operations: &[Operation],
    (held_back, gate): (usize, usize),
) {
    let mut live: Vec<(usize, Seeded)> = Vec::new();
    let mut open = None;
    for (number, &operation) in operations.iter().enumerate() {
        if number == gate {
            open = Some(bench.hold_back(pool, 1 << 20, held_back));
        }
        match operation {
            Operation::Allocate(stream, bytes) => {
                live.push((stream, bench.produce(pool, bytes, stream).expect("memory")));
            }
            Operation::Free(which) if !live.is_empty() => {
                let (stream, block) = live.swap_remove(which % live.len());
                bench.verify(&block, stream);
            }
            Operation::Verify(which) if !live.is_empty() => {
                let (stream, block) = &live[which % live.len()];
                bench.verify(block, *stream);
            }
            _ => {}
        }
    }
    for (stream, block) in live.drain(..) {
        bench.verify(&block, stream);
    }
    bench.assert_others_complete(held_back, "random work");
    drop(open);
    bench.assert_contents("random work");
}

proptest! {
    // A failure takes as long as the bound, so it is made no shorter than a few tries allow.
    #![proptest_config(ProptestConfig { cases: 96, max_shrink_iters: 6, ..ProptestConfig::default() })]

    #[test]
    fn random_work_of_other_streams_completes(
        (streams, operations) in (2usize..=4).prop_flat_map(|streams| {
            (Just(streams), prop::collection::vec(operation(streams), 1..100))
        }),
        source in prop::sample::select(sources()),
        classes in prop::sample::select(vec![SizeClasses::Fixed, SizeClasses::PowerOfTwo, SizeClasses::Tight]),
        held_back in 0usize..4,
        gate in 0usize..60,
    ) {
        let mut bench = Bench::new(streams);
        let pool = bench.pool(source, &classes);
        run(&mut bench, &pool, &operations, (held_back % streams, gate));
    }
}
