//! A trace as a picture: one HTML file, which needs no network, with bytes over time, blocks by address and time, and
//! the blocks of each moment; and single charts as SVG.

mod colours;
mod drawing;
mod page;
mod picture;
mod segments;
mod snapshot;
mod svg;

use super::error::place::Place;
use super::error::{TraceError, TraceFault};
use super::file::reader::Trace;
use super::program::Step;
use super::replay::Replay;
use super::worker::Worker;
use bytesize::ByteSize;
use drawing::{Block, Drawing, FIGURES};
pub use picture::{Picture, UnknownPicture};
use std::io::{self, Read, Write};
use vrampool::backend::Backend;
use vrampool::host::HostDevice;
use vrampool::settings::{Origin, Scope};
use vrampool::{Pool, PoolBuilder, PoolStats};

/// How often the statistics of the pool are read, at the most.
const SAMPLES: usize = 20_000;

/// The most ranges of pages of a picture.
const RANGES: usize = 50_000;

/// A trace and how a pool served it, to be drawn.
///
/// ```
/// use vrampool::{Pool, host::HostDevice};
/// use vrampool_trace::{Trace, plot::{Picture, Plot}};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let trace = Trace::parse("op,id,size,stream,t_us\na,0,4096,0,0\nf,0,4096,0,9\n".as_bytes())?;
/// let pool = Pool::builder(&HostDevice::new()).build()?;
/// let mut page = Vec::new();
/// Plot::replay(&trace, &pool)?.write(Picture::Page, &mut page)?;
/// assert!(page.starts_with(b"<!doctype html>"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct Plot(Drawing);

impl Plot {
    /// Replays `trace` once through `pool`, by this thread, and records where each block lies and what the pool holds.
    ///
    /// Memory is not touched. Buffers that the trace does not free are dropped at the end. Of a long trace, the pool's
    /// statistics are read at 20,000 evenly spaced events.
    ///
    /// # Errors
    /// [`TraceError`]; the buffers that were live are dropped.
    pub fn replay<B: Backend>(trace: &Trace, pool: &Pool<B>) -> Result<Self, TraceError> {
        let replay = Replay::new(trace);
        let program = &replay.program;
        let worker = Worker::new(program, pool, replay.streams(pool)?, None);
        let mut worker = worker.map_err(|source| replay.untouched(0, source))?;
        let mut in_slots = vec![0; program.slots];
        let (mut blocks, mut samples) = (Vec::new(), Vec::new());
        let (mut live, mut requested) = (0, Vec::with_capacity(program.steps.len()));
        let (mut ranges, mut pages) = (0, Vec::<(u64, Vec<_>)>::new());
        let (before, every) = (pool.stats(), program.steps.len().div_ceil(SAMPLES).max(1));
        let outcome = worker.steps(|worker, event, step| {
            worker.step(step)?;
            match step {
                Step::Allocate { size, slot, stream } => {
                    let Some(buffer) = &worker.slots[slot as usize] else { return Ok(()) };
                    in_slots[slot as usize] = blocks.len();
                    blocks.push(Block {
                        start: event as u64,
                        events: 0,
                        size,
                        capacity: buffer.capacity(),
                        stream: stream.into(),
                        address: buffer.address(),
                        origin: trace.events()[event].origin,
                    });
                    live += size;
                }
                Step::Free { slot } | Step::FreeOn { slot, .. } => {
                    let Block { start, events, size, .. } = &mut blocks[in_slots[slot as usize]];
                    *events = event as u64 - *start;
                    live -= *size;
                }
            }
            requested.push(live);
            if event % every == 0 || event + 1 == program.steps.len() {
                let stats = pool.stats();
                let reserved = samples.last().map(|sample: &[u64; FIGURES]| sample[3]);
                if reserved != Some(stats.reserved_bytes) && ranges < RANGES {
                    let now = mapped(pool);
                    ranges += now.len();
                    pages.push((event as u64, now));
                }
                samples.push(sample(event, &stats, &before));
            }
            Ok(())
        });
        outcome.map_err(|halt| replay.halted(0, halt))?;
        let after = pool.stats();
        Ok(Self(Drawing {
            name: trace.name().into(),
            settings: format!(
                "{}, {} source, {} size classes",
                pool.device().id(),
                pool.source(),
                pool.size_classes()
            ),
            figures: figures(trace, &after, &before),
            limit: pool.limit().unwrap_or(0),
            times: trace.events().iter().map(|event| event.t_us).collect(),
            requested,
            blocks,
            origins: trace.origins().to_vec(),
            pages,
            kept: None,
            samples,
        }))
    }

    /// As [`replay`](Self::replay), through a pool of the host that has the settings of `pool` and as much memory as
    /// its device. `pool` itself is not used, and may serve a program meanwhile.
    ///
    /// ```
    /// use vrampool::{Backend, Pool, host::HostDevice};
    /// use vrampool_trace::{Recorder, plot::{Picture, Plot}};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// let recorder = Recorder::new();
    /// let pool = Pool::builder(&device).limit(64 << 20).hook(recorder.hook()).build()?;
    /// let _live = pool.allocate(5000, &stream)?;
    /// let mut page = Vec::new();
    /// Plot::like(&recorder.trace("so far")?, &pool)?.write(Picture::Page, &mut page)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`replay`](Self::replay); also if the host has no pool with these settings.
    pub fn like<B: Backend>(trace: &Trace, pool: &Pool<B>) -> Result<Self, TraceError> {
        let of = pool.device().properties();
        let host = HostDevice::builder().kind(of.kind);
        let host = if of.total_bytes > 0 { host.memory_limit(of.total_bytes) } else { host };
        // A table of classes has no text.
        let builder =
            Pool::builder(&host.build()).source(pool.source()).size_classes(pool.size_classes().clone());
        let set = pool.settings().iter().filter(|of| {
            let is_set = of.origin != Origin::Default && of.setting.scope != Scope::Child;
            is_set && of.setting.name != "size_classes"
        });
        let twin = set.cloned().try_fold(builder, |builder, of| builder.set(of.setting.name, &of.text));
        let twin = twin
            .and_then(PoolBuilder::build)
            .map_err(|source| Place::default().error(trace.name(), TraceFault::Pool(source)))?;
        let Self(mut drawing) = Self::replay(trace, &twin)?;
        drawing.settings += &format!("; a pool with the settings of `{}` on {}", pool.name(), of.name);
        Ok(Self(drawing))
    }

    /// Reads a pool's snapshot, the JSON of C's `vrampool_snapshot` and of Python's `Pool.snapshot`: its live blocks,
    /// the holes between them, idle memory, pages and pending frees at that moment. Takes a few times its bytes of
    /// memory.
    ///
    /// ```
    /// # use vrampool_trace::plot::{Picture, Plot};
    /// let json = r#"{"pool": "own", "device": "host", "source": "virtual", "limit": 8192, "segments": [
    ///     {"address": 4096, "bytes": 4096, "tag": "default", "blocks": [
    ///         {"address": 4096, "bytes": 1024, "requested": 1000, "stream": 0, "state": "live"},
    ///         {"address": 5120, "bytes": 3072, "requested": 0, "stream": 0, "state": "free"}]}]}"#;
    /// let mut page = Vec::new();
    /// Plot::snapshot(json.as_bytes())?.write(Picture::Page, &mut page)?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`TraceFault::Snapshot`].
    pub fn snapshot(json: impl Read) -> Result<Self, TraceError> {
        snapshot::read(json).map(Self).map_err(|fault| Place::default().error("snapshot", fault))
    }

    /// Writes a picture: one file, which needs no network and no other file.
    ///
    /// Any browser of 2023 or later shows a page. Its data are compressed columns: about as many bytes as the
    /// compressed trace.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn write(&self, picture: Picture, mut output: impl Write) -> io::Result<()> {
        match picture {
            Picture::Page => output.write_all(page::html(&self.0)?.as_bytes()),
            Picture::Bytes => output.write_all(svg::bytes(&self.0).as_bytes()),
            Picture::Addresses => output.write_all(svg::addresses(&self.0).as_bytes()),
        }
    }
}

/// The addresses of a pool's arena that have memory behind them, and their bytes.
fn mapped<B: Backend>(pool: &Pool<B>) -> Vec<(u64, u64)> {
    let arena = pool.arena().and_then(|arena| Some((arena.base()?, arena.mapped())));
    arena.map_or_else(Vec::new, |(base, mapped)| {
        mapped.into_iter().map(|run| (base + run.start, run.end - run.start)).collect()
    })
}

/// The pool's figures after an event, in the order in which the page reads them.
fn sample(event: usize, stats: &PoolStats, before: &PoolStats) -> [u64; FIGURES] {
    let rungs = |stats: &PoolStats| {
        let rungs = stats.rungs;
        rungs.evict + rungs.wait + rungs.trim + rungs.compact
    };
    [
        event as u64,
        stats.live_bytes,
        stats.held_bytes,
        stats.reserved_bytes,
        stats.driver_calls() - before.driver_calls(),
        stats.reuse_waits - before.reuse_waits,
        rungs(stats) - rungs(before),
    ]
}

/// The line of figures above the pictures.
fn figures(trace: &Trace, after: &PoolStats, before: &PoolStats) -> Vec<(&'static str, String)> {
    let (requested, reserved) = (trace.peak_requested(), after.peak.limit_bytes);
    let (served, percent) = (after.served.since(&before.served), |share| format!("{:.1} %", 100.0 * share));
    let mut figures = vec![
        ("events", trace.events().len().to_string()),
        ("peak requested", ByteSize(requested).to_string()),
        ("peak reserved", ByteSize(reserved).to_string()),
        ("hit rate", percent(served.hit_rate())),
        ("bucket hit rate", percent(served.bucket_hit_rate())),
        ("driver calls", (after.driver_calls() - before.driver_calls()).to_string()),
        ("waits between streams", (after.reuse_waits - before.reuse_waits).to_string()),
    ];
    if requested > 0 {
        figures.insert(3, ("reserved ÷ requested", format!("{:.3}", reserved as f64 / requested as f64)));
    }
    figures
}
