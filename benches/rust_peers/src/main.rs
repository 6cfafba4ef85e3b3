//! Replays traces through allocators written in Rust, and prints a line of JSON for each round of each:
//! `cargo run --release -- FILE... > ../results/peers/rust_peers.jsonl`, or `./run.sh`. Needs no GPU.
//!
//! Every peer takes its memory from a storage that only counts, and vrampool from its host device. Memory that is released to such a storage
//! is free at once: on a GPU, CubeCL would wait for it, so the storage is in CubeCL's favour. Times are the processor time of the one thread
//! that allocates and frees, so that other programs on the machine disturb them little.

mod cubecl;
mod numbers;
mod vrampool_pool;

use cubecl::{CubeCl, Preset, Updates};
use numbers::{Offsets, Ranges};
use std::collections::HashMap;
use std::error::Error;
use std::path::Path;
use vrampool_pool::{Choice, HostPool};
use vrampool_trace::{Op, Trace};

/// Runs of all allocators, in turns.
const ROUNDS: u32 = 3;
/// Replays of a trace by one allocator, of which the first begins with nothing.
const PASSES: usize = 12;

/// An allocator that returns handles of one type, and frees a block when its handle is dropped or released.
pub trait Peer {
    /// A live block.
    type Block;

    /// Allocates `bytes` for a stream, of which there are few.
    ///
    /// # Errors
    /// The allocator's own.
    fn allocate(&mut self, bytes: u64, stream: usize) -> Result<Self::Block, Box<dyn Error>>;

    /// Frees a block that a stream used last.
    fn free(&mut self, block: Self::Block, stream: usize);

    /// The most bytes held since the last call.
    fn take_peak(&mut self) -> u64;
}

/// An event with small numbers in place of names.
#[derive(Clone, Copy)]
enum Step {
    Allocate { bytes: u64, slot: usize, stream: usize },
    Free { slot: usize, stream: usize },
}

/// One pass.
pub struct Lap {
    ns_per_op: f64,
    peak_reserved: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let files: Vec<_> = std::env::args().skip(1).collect();
    let traces = files.iter().map(Trace::read).collect::<Result<Vec<_>, _>>()?;
    for round in 1..=ROUNDS {
        for trace in &traces {
            let (steps, slots) = steps(trace);
            for choice in [Choice::Virtual, Choice::Fixed] {
                print(round, trace, choice.name(), &replay(&mut HostPool::new(choice)?, &steps, slots)?);
            }
            for preset in [Preset::Adaptive, Preset::Exclusive] {
                for updates in [Updates::Cleanup, Updates::AddOnly] {
                    let mut peer = CubeCl::new(preset, updates);
                    let laps = replay(&mut peer, &steps, slots)?;
                    print(round, trace, &format!("cubecl-0.11-{preset}{updates}"), &laps);
                }
            }
            print(round, trace, "offset-allocator", &replay(&mut Offsets::new(), &steps, slots)?);
            print(round, trace, "range-alloc", &replay(&mut Ranges::new(), &steps, slots)?);
        }
    }
    Ok(())
}

/// The events of a trace, and how many blocks are live at most. What is live at the end is freed there.
fn steps(trace: &Trace) -> (Vec<Step>, usize) {
    let (mut streams, mut live, mut free) = (HashMap::new(), HashMap::new(), Vec::new());
    let (mut steps, mut slots) = (Vec::new(), 0);
    for event in trace.events() {
        let count = streams.len();
        let stream = *streams.entry(event.stream).or_insert(count);
        match event.op {
            Op::Allocate => {
                let slot = free.pop().unwrap_or_else(|| {
                    slots += 1;
                    slots - 1
                });
                live.insert(event.id, slot);
                steps.push(Step::Allocate { bytes: event.size, slot, stream });
            }
            Op::Free => {
                if let Some(slot) = live.remove(&event.id) {
                    free.push(slot);
                    steps.push(Step::Free { slot, stream });
                }
            }
            _ => {}
        }
    }
    (steps, slots)
}

/// Replays the steps. Blocks that are live at the end of a pass are freed outside of the time.
fn replay<P: Peer>(peer: &mut P, steps: &[Step], slots: usize) -> Result<Vec<Lap>, Box<dyn Error>> {
    let mut live: Vec<Option<P::Block>> = (0..slots).map(|_| None).collect();
    let mut laps = Vec::new();
    for _ in 0..PASSES {
        let began = nanoseconds();
        for &step in steps {
            match step {
                Step::Allocate { bytes, slot, stream } => live[slot] = Some(peer.allocate(bytes, stream)?),
                Step::Free { slot, stream } => {
                    if let Some(block) = live[slot].take() {
                        peer.free(block, stream);
                    }
                }
            }
        }
        let ns_per_op = (nanoseconds() - began) as f64 / steps.len() as f64;
        for block in live.iter_mut().filter_map(Option::take) {
            peer.free(block, 0);
        }
        laps.push(Lap { ns_per_op, peak_reserved: peer.take_peak() });
    }
    Ok(laps)
}

/// The processor time of this thread.
fn nanoseconds() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the clock exists, and the pointer is to a `timespec`.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn print(round: u32, trace: &Trace, peer: &str, laps: &[Lap]) {
    let Some((cold, warm)) = laps.split_first() else { return };
    let mut times: Vec<_> = warm.iter().map(|lap| lap.ns_per_op).collect();
    times.sort_unstable_by(f64::total_cmp);
    let median = times[times.len() / 2];
    let peak_requested = trace.peak_requested();
    let most = warm.iter().map(|lap| lap.peak_reserved).max().unwrap_or(0);
    let [cold_ratio, warm_ratio] =
        [cold.peak_reserved, most].map(|bytes| bytes as f64 / peak_requested as f64);
    let name = Path::new(trace.name()).file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let name = name.trim_end_matches(".gz").trim_end_matches(".csv");
    println!(
        r#"{{"round":{round},"trace":"{name}","peer":"{peer}","passes":{},"peak_requested":{peak_requested},"cold_peak_reserved":{},"warm_peak_reserved":{most},"cold_ratio":{cold_ratio:.4},"warm_ratio":{warm_ratio:.4},"cold_ns_per_op":{:.2},"warm_ns_per_op":{median:.2}}}"#,
        laps.len(),
        cold.peak_reserved,
        cold.ns_per_op,
    );
}
