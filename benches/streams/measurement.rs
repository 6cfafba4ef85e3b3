//! Times of a case: one pool for all streams, and a pool for each stream, in turns.

use crate::case::Case;
use crate::kernels::{Kernels, Lane};
use crate::options::Amount;
use crate::scene::{Program, Side};
use std::time::{Duration, Instant};
use vrampool::{Backend, Error, Pool};

/// Steps before the timed ones: in the first one, blocks are allocated.
const WARM_UP: usize = 2;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Measurement {
    /// With one pool.
    pub(crate) one: Figures,
    /// With a pool for each stream. Equal to `one` on one stream.
    pub(crate) each: Figures,
    pub(crate) wrong_bytes: u64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    /// The median of a step.
    pub(crate) time: Duration,
    /// Waits between streams in a step, at most.
    pub(crate) stream_waits: u64,
    /// Those of them that a stream made for memory that another one still used.
    pub(crate) reuse_waits: u64,
    /// Driver calls for memory in a step, at most.
    pub(crate) memory_calls: u64,
    /// The highest number of bytes that the pools took from the device, or of an arena.
    pub(crate) held_bytes: u64,
    /// The highest number of bytes that were live or in flight.
    pub(crate) needed_bytes: u64,
}

pub(crate) fn measure<B: Backend, K: Kernels<B>>(
    device: &B,
    kernels: &K,
    case: &Case,
    streams: usize,
    amount: Amount,
) -> Result<Measurement, Error> {
    let wrong_before = kernels.wrong_bytes();
    let lanes = (0..streams).map(|_| Lane::new(device)).collect::<Result<Vec<_>, _>>()?;
    let mut one = Run::new(device, case, &lanes, 1)?;
    let mut each = if streams > 1 { Some(Run::new(device, case, &lanes, streams)?) } else { None };
    for round in 0..WARM_UP + amount.rounds {
        for run in std::iter::once(&mut one).chain(&mut each) {
            run.step(device, kernels, case, amount, round >= WARM_UP)?;
        }
    }
    let one = one.figures();
    let each = each.map_or(one, |run| run.figures());
    let mut wrong_bytes = kernels.wrong_bytes() - wrong_before;
    for lane in &lanes {
        wrong_bytes += lane.wrong_bytes(device)?;
    }
    Ok(Measurement { one, each, wrong_bytes })
}

/// The steps with one pool, or with a pool for each stream.
struct Run<'a, B: Backend> {
    lanes: &'a [Lane<B>],
    pools: Vec<Pool<B>>,
    times: Vec<Duration>,
    /// The most in a timed step: waits between streams, those for memory, and calls for memory.
    counts: [u64; 3],
}

impl<'a, B: Backend> Run<'a, B> {
    fn new(device: &B, case: &Case, lanes: &'a [Lane<B>], pools: usize) -> Result<Self, Error> {
        let pools = (0..pools).map(|_| case.pool(device, pools)).collect::<Result<_, _>>()?;
        Ok(Self { lanes, pools, times: Vec::new(), counts: [0; 3] })
    }

    fn step<K: Kernels<B>>(
        &mut self,
        device: &B,
        kernels: &K,
        case: &Case,
        amount: Amount,
        is_timed: bool,
    ) -> Result<(), Error> {
        let sides = self.lanes.iter().zip(self.pools.iter().cycle());
        let sides = sides.map(|(lane, pool)| Side { lane, pool }).collect();
        let program = Program::new(device, kernels, sides, case.block_bytes, amount);
        let before = self.counts();
        let began = Instant::now();
        program.step(case.scene)?;
        let time = began.elapsed();
        let counts = self.counts();
        if is_timed {
            self.times.push(time);
            for ((most, now), before) in self.counts.iter_mut().zip(counts).zip(before) {
                *most = (*most).max(now - before);
            }
        }
        Ok(())
    }

    fn counts(&self) -> [u64; 3] {
        let counts = |pool: &Pool<B>| {
            let stats = pool.stats();
            [stats.stream_waits, stats.reuse_waits, stats.memory_calls]
        };
        let add = |sum: [u64; 3], of: [u64; 3]| std::array::from_fn(|at| sum[at] + of[at]);
        self.pools.iter().map(counts).fold([0; 3], add)
    }

    fn figures(mut self) -> Figures {
        self.times.sort_unstable();
        let peaks = || self.pools.iter().map(|pool| pool.stats().peak);
        let [stream_waits, reuse_waits, memory_calls] = self.counts;
        Figures {
            time: self.times[self.times.len() / 2],
            stream_waits,
            reuse_waits,
            memory_calls,
            held_bytes: peaks().map(|peak| peak.limit_bytes).sum(),
            needed_bytes: peaks().map(|peak| peak.needed_bytes).sum(),
        }
    }
}
