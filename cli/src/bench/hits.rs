//! The time of a hit, and its scaling over threads.

use super::name::Name;
use super::row::Row;
use crate::timing::allocator::pooled;
use crate::timing::clock::{Effort, Samples};
use crate::timing::workload::{self, RANGE};
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Barrier, mpsc};
use std::{iter, thread};
use vrampool::{Backend, Buffer, Error, Pool};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Threads at the same time, as far as there are cores.
const THREADS: [u32; 5] = [1, 2, 4, 8, 16];

/// Pairs in a sample.
const PAIRS: usize = 4096;

/// Buffers handed over at a time.
const BATCH: usize = 32;

/// Buffers that a bucket keeps: more than all threads hand over at a time.
const BUFFERS: u64 = 1 << 16;

/// Pairs of one size, of two sizes in turn, of a size that all threads share a bucket for; and buffers that
/// one thread allocates and another drops.
pub(crate) fn measure<B: Backend>(bench: Name, device: &B, effort: Effort) -> Result<Vec<Row>, Error> {
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let mut rows = Vec::new();
    for (case, sizes) in [
        ("4 KiB", (4 * KIB, None)),
        ("4 KiB and 64 KiB", (4 * KIB, Some(64 * KIB))),
        ("8 MiB", (8 * MIB, None)),
    ] {
        for threads in THREADS.into_iter().filter(|&threads| threads <= cores) {
            let pool = pool(device)?;
            let figures = Samples::merged(pairs(&pool, sizes, threads, effort)?);
            rows.push(Row { threads, ..Row::new(bench, case, "pool", figures) });
        }
    }
    for threads in THREADS.into_iter().filter(|&threads| threads > 1 && threads <= cores) {
        let pool = pool(device)?;
        let figures = Samples::merged(hand_overs(&pool, threads / 2, effort)?);
        rows.push(Row { threads, ..Row::new(bench, "4 KiB, 32 handed over", "pool", figures) });
    }
    Ok(rows)
}

fn pool<B: Backend>(device: &B) -> Result<Pool<B>, Error> {
    Pool::builder(device).max_cached_bytes(RANGE).max_buffers_per_bucket(BUFFERS).build()
}

/// Each thread has its own stream and pairs, and goes on until all have been timed.
fn pairs<B: Backend>(
    pool: &Pool<B>,
    (bytes, other_bytes): (u64, Option<u64>),
    threads: u32,
    effort: Effort,
) -> Result<Vec<Samples>, Error> {
    let (start, timed) = (Barrier::new(threads as usize), AtomicU32::new(0));
    let worker = || -> Result<Samples, Error> {
        let mut allocate = pooled(pool.clone())?;
        let mut sample = || match other_bytes {
            None => workload::times(&mut allocate, PAIRS, [bytes]),
            Some(other) => workload::times(&mut allocate, PAIRS / 2, [bytes, other]),
        };
        let mut samples = Samples::new(effort, PAIRS);
        start.wait();
        let outcome: Result<(), Error> = effort.rounds().try_for_each(|_| samples.time(&mut sample));
        timed.fetch_add(1, Ordering::Relaxed);
        outcome?;
        while timed.load(Ordering::Relaxed) < threads {
            sample()?;
        }
        Ok(samples)
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
        workers
            .into_iter()
            .map(|worker| worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    })
}

/// Couples of threads: one allocates, the other drops, batch by batch. Timed are the allocations and the
/// drops, not what hands them over.
fn hand_overs<B: Backend>(pool: &Pool<B>, couples: u32, effort: Effort) -> Result<Vec<Samples>, Error> {
    thread::scope(|scope| {
        let couples: Vec<_> = (0..couples)
            .map(|_| {
                let (give, take) = mpsc::sync_channel::<Vec<Buffer<B>>>(1);
                let (reuse, reused) = mpsc::channel();
                let _ = reuse.send(Vec::with_capacity(BATCH));
                let _ = reuse.send(Vec::with_capacity(BATCH));
                let allocating = scope.spawn(move || -> Result<Samples, Error> {
                    let mut allocate = pooled(pool.clone())?;
                    let mut samples = Samples::new(effort, BATCH);
                    for (_, mut batch) in effort.rounds().zip(reused) {
                        samples.time(|| {
                            iter::repeat_with(|| allocate(4 * KIB))
                                .take(BATCH)
                                .try_for_each(|buffer| buffer.map(|buffer| batch.push(black_box(buffer))))
                        })?;
                        let _ = give.send(batch);
                    }
                    Ok(samples)
                });
                let dropping = scope.spawn(move || {
                    let mut samples = Samples::new(effort, BATCH);
                    for mut batch in take {
                        samples.time(|| batch.clear());
                        let _ = reuse.send(batch);
                    }
                    samples
                });
                (allocating, dropping)
            })
            .collect();
        couples
            .into_iter()
            .map(|(allocating, dropping)| {
                let dropped = dropping.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                let allocated = allocating.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
                Ok(allocated.plus(dropped))
            })
            .collect()
    })
}
