//! A trace as a picture: one HTML file, which needs no network, with bytes over time, blocks by address and time, and the
//! blocks of each moment.

mod columns;
mod segments;

use super::error::TraceError;
use super::file::reader::Trace;
use super::program::Step;
use super::replay::Replay;
use super::worker::Halt;
use base64::prelude::{BASE64_STANDARD, Engine};
use bytesize::ByteSize;
use columns::Columns;
use flate2::{Compression, write::GzEncoder};
use std::io::{self, Write};
use vrampool::backend::Backend;
use vrampool::{Pool, PoolStats};

/// How often the statistics of the pool are read, at the most.
const SAMPLES: usize = 20_000;

/// Numbers of a sample: those that [`sample`] returns.
const SERIES: usize = 7;

/// The page, which reads the columns that [`Plot::write_html`] puts in the place of `DATA`.
const PAGE: &str = include_str!("page.html");

/// A trace and how a pool served it, to be drawn.
///
/// ```
/// use vrampool::{Pool, host::HostDevice};
/// use vrampool_trace::{Trace, plot::Plot};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let trace = Trace::parse("op,id,size,stream,t_us\na,0,4096,0,0\nf,0,4096,0,9\n".as_bytes())?;
/// let pool = Pool::builder(&HostDevice::new()).build()?;
/// let mut page = Vec::new();
/// Plot::replay(&trace, &pool)?.write_html(&mut page)?;
/// assert!(page.starts_with(b"<!doctype html>"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use]
pub struct Plot {
    name: String,
    settings: String,
    figures: Vec<(&'static str, String)>,
    /// 0 if the pool has none.
    limit: u64,
    times: Vec<u64>,
    blocks: Vec<Block>,
    samples: Vec<[u64; SERIES]>,
}

/// One allocation of the trace.
#[derive(Debug)]
struct Block {
    start: u64,
    /// Events until its free; 0 if it is never freed.
    events: u64,
    size: u64,
    capacity: u64,
    stream: u64,
    address: Option<u64>,
}

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
        let (program, streams) = (&replay.program, replay.streams(pool, 0)?);
        let mut slots: Vec<_> = (0..program.slots).map(|_| None).collect();
        let (mut blocks, mut samples) = (Vec::new(), Vec::new());
        let (before, every) = (pool.stats(), program.steps.len().div_ceil(SAMPLES).max(1));
        let failed = |event, source| replay.halted(0, Halt { event, source });
        for (event, &step) in program.steps.iter().enumerate() {
            match step {
                Step::Allocate { size, slot, stream } => {
                    let buffer = pool
                        .allocate(size, &streams[usize::from(stream)])
                        .map_err(|source| failed(event, source))?;
                    blocks.push(Block {
                        start: event as u64,
                        events: 0,
                        size,
                        capacity: buffer.capacity(),
                        stream: stream.into(),
                        address: buffer.address(),
                    });
                    slots[slot as usize] = Some((blocks.len() - 1, buffer));
                }
                Step::Free { slot } | Step::FreeOn { slot, .. } => {
                    let Some((block, buffer)) = slots[slot as usize].take() else { continue };
                    let Block { start, events, .. } = &mut blocks[block];
                    *events = event as u64 - *start;
                    if let Step::FreeOn { stream, .. } = step {
                        buffer
                            .record_stream(&streams[usize::from(stream)])
                            .map_err(|source| failed(event, source))?;
                    }
                }
            }
            if event % every == 0 || event + 1 == program.steps.len() {
                samples.push(sample(event, &pool.stats(), &before));
            }
        }
        let after = pool.stats();
        Ok(Self {
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
            blocks,
            samples,
        })
    }

    /// Writes the page: one file, which needs no network and no other file.
    ///
    /// Any browser of 2023 or later shows it. The data are compressed columns: about as many bytes as the compressed
    /// trace.
    ///
    /// # Errors
    /// Those of `output`.
    pub fn write_html(&self, mut output: impl Write) -> io::Result<()> {
        let mut packed = GzEncoder::new(Vec::new(), Compression::best());
        packed.write_all(&self.columns())?;
        let data = BASE64_STANDARD.encode(packed.finish()?);
        match PAGE.split_once("DATA") {
            Some((head, tail)) => {
                [head, &data, tail].into_iter().try_for_each(|part| output.write_all(part.as_bytes()))
            }
            None => Err(io::Error::other("the page has no place for data")),
        }
    }

    /// In the order in which the page reads them.
    fn columns(&self) -> Vec<u8> {
        let (blocks, samples) = (&self.blocks, &self.samples);
        let extents = blocks.iter().filter_map(|block| Some((block.address?, block.capacity)));
        let segments = segments::of(extents);
        let mut columns = Columns::default();
        columns.text(&self.name);
        columns.text(&self.settings);
        columns.number(self.figures.len() as u64);
        for (name, value) in &self.figures {
            columns.text(name);
            columns.text(value);
        }
        columns.number(self.limit);
        columns.number(self.times.len() as u64);
        columns.differences(self.times.iter().copied());
        columns.number(blocks.len() as u64);
        columns.differences(blocks.iter().map(|block| block.start));
        let fields: [fn(&Block) -> u64; 4] = [|b| b.events, |b| b.size, |b| b.capacity, |b| b.stream];
        for field in fields {
            blocks.iter().for_each(|block| columns.number(field(block)));
        }
        columns.number(u64::from(!segments.is_empty()));
        let place = |block: &Block| block.address.map_or(0, |address| segments::place(&segments, address));
        columns.differences(blocks.iter().map(place));
        columns.number(segments.len() as u64);
        for segment in &segments {
            columns.number(segment.address);
            columns.number(segment.place);
        }
        columns.number(samples.len() as u64);
        for field in 0..SERIES {
            columns.differences(samples.iter().map(|sample| sample[field]));
        }
        columns.finish()
    }
}

/// The pool's figures after an event, in the order in which the page reads them.
fn sample(event: usize, stats: &PoolStats, before: &PoolStats) -> [u64; SERIES] {
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
