//! Idle blocks of one thread never fail a request of another.

use super::{Device, KIB, Turns, device, keep, pairs, pool};
use fastrand::Rng;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, mpsc};
use std::thread;
use std::time::Instant;
use vrampool::host::HostDevice;
use vrampool::{Backend, Buffer, SizeClasses, Source};
use vrampool_test_support::{AuditDevice, has_virtual_memory};

#[test]
fn a_device_without_memory_calls_magazines_back() {
    let device = device();
    let stream = device.create_stream().expect("a stream");
    let pool = pool(&device, |builder| builder.limit(1040 * KIB).magazine_bytes(64 * KIB));
    let other = Turns::new();
    keep(&other, &pool, 64 * KIB);
    let allocate = |_| pool.allocate(64 * KIB, &stream).expect("there is room");
    let live: Vec<_> = (0..15).map(allocate).collect();
    let error = pool.allocate(60 * KIB, &stream).expect_err("the other thread has idle what is missing");
    assert!(error.is_out_of_memory(), "{error}");
    assert!(error.to_string().contains("64.0 KiB idle"), "{error}");
    // The other thread is asked to release it, and does so at its next call.
    keep(&other, &pool, KIB);
    drop(pool.allocate(60 * KIB, &stream).expect("there is room"));
    drop(live);
    other.end();
}

#[test]
fn one_thread_gets_its_own_idle_memory_back_before_it_fails() {
    let device = device();
    let stream = device.create_stream().expect("a stream");
    let pool = pool(&device, |builder| builder.limit(64 * KIB).magazine_bytes(64 * KIB));
    for bytes in [KIB, 4 * KIB, 16 * KIB, 64 * KIB, KIB, 64 * KIB] {
        drop(pool.allocate(bytes, &stream).expect("what is idle makes room"));
        assert!(device.peak() <= 64 * KIB);
    }
}

/// One thread allocates and another drops, over and over: memory goes round between them.
#[test]
fn hand_overs_do_not_drift_memory_to_one_side() {
    const BATCH: usize = 24;
    let device = device();
    let pool = pool(&device, |builder| builder.max_buffers_per_bucket(128));
    let (give, take) = mpsc::sync_channel::<Vec<Buffer<Device>>>(1);
    let dropping = thread::spawn(move || take.into_iter().for_each(drop));
    let stream = device.create_stream().expect("a stream");
    for _ in 0..2000 {
        let batch = (0..BATCH).map(|_| pool.allocate(4 * KIB, &stream).expect("memory")).collect();
        give.send(batch).expect("it listens");
    }
    drop(give);
    dropping.join().expect("no panic");
    let stats = pool.stats();
    // Three batches are on their way at a time, and each side keeps some.
    assert!(stats.source.allocations <= 256, "{stats:?}");
    assert!(stats.hit_rate() > 0.99, "{stats:?}");
}

/// All of the limit is live at times. In an arena, which has holes between its blocks, less. A thread that
/// makes no call for a tenth of a second, because the machine runs others, is not waited for any longer.
#[test]
fn no_thread_is_refused_for_what_others_keep_idle() {
    const THREADS: u64 = 16;
    const WAITED_FOR: u64 = 100;
    for (source, most) in [(Source::Direct, 4 << 20), (Source::Virtual, 3 << 20)] {
        let device = device();
        if source == Source::Virtual && !has_virtual_memory(&device) {
            continue;
        }
        let limit = 64 << 20;
        let pool = pool(&device, |builder| {
            let exact = builder.size_classes(SizeClasses::PowerOfTwo).borrow_classes(0);
            exact.source(source).limit(limit).magazine_bytes(8 << 20)
        });
        let start = Barrier::new(THREADS as usize);
        // When each thread began its last call, in milliseconds.
        let (began, calls) = (Instant::now(), [const { AtomicU64::new(u64::MAX) }; THREADS as usize]);
        let now = || began.elapsed().as_millis() as u64;
        let a_thread_is_silent =
            || calls.iter().any(|call| now().saturating_sub(call.load(Ordering::Relaxed)) >= WAITED_FOR);
        thread::scope(|scope| {
            for seed in 0..THREADS {
                let (pool, device, start, call) = (&pool, &device, &start, &calls[seed as usize]);
                let (now, a_thread_is_silent) = (&now, &a_thread_is_silent);
                scope.spawn(move || {
                    let stream = device.create_stream().expect("a stream");
                    let mut rng = Rng::with_seed(seed);
                    let (mut live, mut bytes) = (Vec::new(), 0);
                    start.wait();
                    for _ in 0..20_000 {
                        let size = 4096 << rng.u64(..9);
                        while bytes + size > most {
                            let freed: Buffer<Device> = live.swap_remove(rng.usize(..live.len()));
                            bytes -= freed.len();
                        }
                        let buffer = loop {
                            call.store(now(), Ordering::Relaxed);
                            match pool.allocate(size, &stream) {
                                Ok(buffer) => break buffer,
                                Err(error) => assert!(a_thread_is_silent(), "{error}"),
                            }
                        };
                        live.push(buffer);
                        bytes += size;
                    }
                    call.store(u64::MAX, Ordering::Relaxed);
                });
            }
        });
        assert!(pool.stats().reserved_bytes <= limit);
    }
}

/// A thread's idle blocks are returned at its next call, and a request waits for that.
#[test]
fn a_request_waits_for_what_a_running_thread_keeps_idle() {
    for limited in [true, false] {
        let device = AuditDevice::new(HostDevice::builder().memory_limit(1024 * KIB).build());
        let pool = pool(&device, |builder| {
            let limit = if limited { 1024 * KIB } else { u64::MAX };
            builder.size_classes(SizeClasses::Multiple(KIB)).borrow_classes(0).limit(limit)
        });
        let stream = device.create_stream().expect("a stream");
        let (keeps, has_kept) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        thread::scope(|scope| {
            let (pool, device) = (&pool, &device);
            scope.spawn(move || {
                let stream = device.create_stream().expect("a stream");
                pairs(pool, &stream, &[60 * KIB, 40 * KIB, 20 * KIB], 10);
                keeps.send(()).expect("the receiver waits");
                while ended.try_recv() == Err(mpsc::TryRecvError::Empty) {
                    pairs(pool, &stream, &[KIB], 1);
                }
            });
            has_kept.recv().expect("it works");
            assert!(pool.stats().idle_bytes >= 100 * KIB);
            let sizes = [100 * KIB; 10].into_iter().chain([22 * KIB]);
            let allocate = |bytes| pool.allocate(bytes, &stream).expect("the other thread releases it");
            let live: Vec<_> = sizes.map(allocate).collect();
            drop((end, live));
        });
    }
}

/// Threads that find no slot left get some from those that have them.
#[test]
fn slots_go_to_threads_that_need_them() {
    let device = device();
    let pool = pool(&device, |builder| builder.max_buffers_per_bucket(4).max_cached_bytes(None));
    let others: Vec<Turns> = (0..8).map(|_| Turns::new()).collect();
    for _ in 0..300 {
        others.iter().for_each(|other| keep(other, &pool, 4 * KIB));
    }
    let stats = pool.stats();
    assert!(stats.peak.idle_bytes <= 4 * 4 * KIB, "{stats:?}");
    // Eight threads share four slots; half of what they drop can be kept at best.
    assert!(stats.hit_rate() > 0.3, "{stats:?}");
    others.into_iter().for_each(Turns::end);
}
