//! Sleep and wake of a growing arena, compared with pinned copies of the same number of bytes.

use crate::table::{percent, table};
use serde::Serialize;
use std::hint::black_box;
use std::time::Instant;
use vrampool::arena::DeviceArena;
use vrampool::backend::AllocationRequest;
use vrampool::{Backend, BackendError, Placement, Region, RegionMut};
use vrampool_sleep::{Error, Offload, SleepArena};
use vrampool_trace::Touch;

/// Bytes of one block; also of one plain copy.
const BLOCK: u64 = 256 << 20;

/// Without a number: this share of what is free on a GPU, at most so many bytes; on the host fewer.
const MOST_ON_A_DEVICE: u64 = 32 << 30;
const ON_THE_HOST: u64 = 1 << 30;
const QUICK: u64 = 64 << 20;

/// One sleep and the wake behind it. The names and their order are those of the JSON.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Row {
    bench: &'static str,
    /// The treatment of the contents.
    case: &'static str,
    /// Mapped before.
    bytes: u64,
    /// The growth of the device's free memory during the sleep.
    released_bytes: u64,
    released_share: f64,
    sleep_seconds: f64,
    wake_seconds: f64,
    /// From the start of the wake until the backups' memory was released, too.
    released_seconds: f64,
    sleep_gb_per_s: f64,
    wake_gb_per_s: f64,
    pinned_to_host_gb_per_s: f64,
    pinned_to_device_gb_per_s: f64,
    wake_share_of_pinned: f64,
    /// Of contents that were to be kept.
    wrong_bytes: Option<u64>,
}

/// The rows for people: the times, then the rates.
pub(crate) fn tables(rows: &[Row]) -> String {
    let times = rows.iter().map(|row| {
        [
            row.case.to_owned(),
            format!("{:.2}", row.bytes as f64 / f64::from(1 << 30)),
            format!("{:.2} %", 100.0 * row.released_share),
            format!("{:.3}", row.sleep_seconds),
            format!("{:.3}", row.wake_seconds),
            format!("{:.3}", row.released_seconds),
        ]
    });
    let times = table(Some(["sleep", "GiB", "released", "sleep s", "wake s", "released s"]), 0..1, times);
    let rates = rows.iter().map(|row| {
        [
            row.case.to_owned(),
            format!("{:.1}", row.sleep_gb_per_s),
            format!("{:.1}", row.wake_gb_per_s),
            percent(row.wake_share_of_pinned),
            row.wrong_bytes.map_or_else(String::new, |wrong| wrong.to_string()),
        ]
    });
    let columns = ["sleep", "sleep GB/s", "wake GB/s", "of pinned", "wrong bytes"];
    format!("{times}\n\n{}", table(Some(columns), 0..1, rates))
}

/// Offloads and wakes `gib` GiB (as many as make sense by default), with contents verified.
pub(crate) fn measure<B: Backend>(
    device: &B,
    touch: &impl Touch<B>,
    gib: Option<u64>,
    quick: bool,
) -> Result<Vec<Row>, Error> {
    if device.virtual_memory().is_none() {
        return Err(BackendError::unsupported("virtual memory, which sleep needs").into());
    }
    let block = if quick { QUICK / 4 } else { BLOCK };
    let bytes = match gib {
        Some(gib) => gib << 30,
        None if quick => QUICK,
        None if device.properties().is_integrated() => ON_THE_HOST,
        None => MOST_ON_A_DEVICE.min(device.memory_info()?.free_bytes / 2),
    };
    let bytes = bytes.next_multiple_of(block);
    let rounds = if quick { 1 } else { 3 };
    let pinned = pinned_copies(device, block, rounds)?;
    let stream = device.create_stream()?;
    let arena = SleepArena::new(DeviceArena::builder(device).growing().build()?);
    let mut blocks = Vec::new();
    for seed in 0..bytes / block {
        let mut buffer = arena.arena().allocate(block, &stream)?;
        touch.write(&stream, buffer.on_mut(&stream)?, seed)?;
        blocks.push(buffer);
    }
    device.synchronize(&stream)?;
    let mut rows = Vec::new();
    for offload in [Offload::Pinned, Offload::Discard] {
        for _ in 0..rounds {
            let mut row = nap(&arena, offload, pinned)?;
            if offload != Offload::Discard {
                row.wrong_bytes = Some(count_wrong(device, touch, &stream, &blocks)?);
            }
            rows.push(row);
        }
    }
    Ok(rows)
}

/// Puts the arena to sleep and wakes it. The rates of pinned copies are GB/s to the host and to the device.
fn nap<B: Backend>(
    arena: &SleepArena<B>,
    offload: Offload,
    (to_host, to_device): (f64, f64),
) -> Result<Row, Error> {
    let device = arena.arena().device();
    let mapped = arena.arena().reserved_bytes();
    let before = device.memory_info()?.free_bytes;
    let began = Instant::now();
    let report = black_box(arena.sleep(offload)?);
    let sleep_seconds = began.elapsed().as_secs_f64();
    let released = device.memory_info()?.free_bytes.saturating_sub(before);
    let began = Instant::now();
    let restored = black_box(arena.wake()?).copied_bytes;
    let wake_seconds = began.elapsed().as_secs_f64();
    while arena.backup_bytes() > 0 {
        std::thread::yield_now();
    }
    let released_seconds = began.elapsed().as_secs_f64();
    let rate = |bytes: u64, seconds: f64| bytes as f64 / seconds / 1e9;
    let wake_rate = rate(restored, wake_seconds);
    Ok(Row {
        bench: "sleep",
        case: if offload == Offload::Discard { "discard" } else { "pinned" },
        bytes: mapped,
        released_bytes: released,
        released_share: released as f64 / mapped as f64,
        sleep_seconds,
        wake_seconds,
        released_seconds,
        sleep_gb_per_s: rate(report.copied_bytes, sleep_seconds),
        wake_gb_per_s: wake_rate,
        pinned_to_host_gb_per_s: to_host,
        pinned_to_device_gb_per_s: to_device,
        wake_share_of_pinned: wake_rate / to_device,
        wrong_bytes: None,
    })
}

fn count_wrong<B: Backend>(
    device: &B,
    touch: &impl Touch<B>,
    stream: &B::Stream,
    blocks: &[vrampool::arena::ArenaBuffer<B>],
) -> Result<u64, Error> {
    let counter = device.allocate(&AllocationRequest::new(8, device.properties().preferred_placement()))?;
    device.fill(stream, RegionMut::whole(&counter, stream), 0)?;
    for (seed, block) in (0..).zip(blocks) {
        touch.verify(stream, block.on(stream)?, seed, RegionMut::whole(&counter, stream))?;
    }
    let mut wrong = [0; 8];
    device.download(stream, Region::whole(&counter, stream), &mut wrong)?;
    Ok(u64::from_le_bytes(wrong))
}

/// GB/s of copies between pinned memory and the device's, several in flight, to the host and back: the best
/// of a few rounds.
fn pinned_copies<B: Backend>(device: &B, block: u64, rounds: u32) -> Result<(f64, f64), BackendError> {
    const COPIES: u64 = 16;
    let stream = device.create_stream()?;
    let pinned = device.allocate(&AllocationRequest::new(block, Placement::HostVisible))?;
    let own = device.allocate(&AllocationRequest::new(block, Placement::Device))?;
    device.fill(&stream, RegionMut::whole(&own, &stream), 1)?;
    device.fill(&stream, RegionMut::whole(&pinned, &stream), 1)?;
    device.synchronize(&stream)?;
    let rate = |from: &B::Memory, to: &B::Memory| {
        let mut best: f64 = 0.0;
        for _ in 0..rounds {
            let began = Instant::now();
            for _ in 0..COPIES {
                device.copy(&stream, Region::whole(from, &stream), RegionMut::whole(to, &stream))?;
            }
            device.synchronize(&stream)?;
            best = best.max((COPIES * block) as f64 / began.elapsed().as_secs_f64() / 1e9);
        }
        Ok::<f64, BackendError>(best)
    };
    Ok((rate(&own, &pinned)?, rate(&pinned, &own)?))
}
