//! One pool with its device and its threads.

use crate::device::Device;
use fastrand::Rng;
use std::error::Error;
use std::ops::Range;
use std::panic::resume_unwind;
use std::thread;
use std::time::{Duration, Instant};
use vrampool::host::{Call, Faults};
use vrampool::{BackendError, Buffer, Pool, Source};
use vrampool_sleep::{Offload, SleepArena};

/// The limit of each pool, bytes.
const LIMIT: u64 = 128 << 20;

/// The device's memory: the limit, and what the arena of fixed size takes at once.
const DEVICE: u64 = 2 * LIMIT;

/// The size of a page of virtual memory, bytes, where one can choose.
const PAGE: u64 = 64 << 10;

/// So many bytes at the start and at the end of a buffer are written and checked, of one buffer in so many.
const MARK: u64 = 64;
const MARKED: u8 = 4;

/// One operation in so many is a trim, a sleep with a wake behind it, or a planned fault.
const TRIMS: u32 = 4000;
const SLEEPS: u32 = 20_000;
const FAULTS: u32 = 2000;

/// A pool's mappings and addresses are sampled once in so many operations, so that the moment of a trim does
/// not decide.
const SAMPLES: u32 = 4096;

/// Calls that may fail: those that a request makes, or a trim.
const FAILING: [Call; 7] = [
    Call::Allocate,
    Call::CreatePhysical,
    Call::Map,
    Call::SetAccess,
    Call::Unmap,
    Call::Reserve,
    Call::Record,
];

/// The settings of a cell.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    pub(crate) source: Source,
    pub(crate) level: u64,
    pub(crate) seed: u64,
    pub(crate) threads: u32,
    pub(crate) faults: bool,
}

/// A pool that is used by turns with others.
#[derive(Debug)]
pub(crate) struct Cell<D: Device> {
    pub(crate) settings: Settings,
    device: D,
    /// If memory is virtual.
    arena: Option<SleepArena<D>>,
    pool: Pool<D>,
    workers: Vec<Worker<D>>,
}

/// The counts of a turn of a pool, or of one of its threads.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    pub(crate) operations: u64,
    pub(crate) nanoseconds: u64,
    pub(crate) refused: u64,
    pub(crate) failed: u64,
    /// Corrupt contents, a line each.
    pub(crate) corrupt: Vec<String>,
    /// The mappings of the pool, its bytes of addresses and its stitched ranges, several times.
    pub(crate) samples: Vec<[u64; 3]>,
}

impl Turn {
    fn find<D: Device>(&mut self, pool: &Pool<D>, live: &Live<D>, what: &str) {
        let (name, bytes, stream) = (pool.name(), live.buffer.len(), live.buffer.stream_id());
        self.corrupt.push(format!("{name}: a buffer of {bytes} bytes, stream {stream:?}: {what}"));
    }

    fn sample<D: Device>(&mut self, pool: &Pool<D>) {
        let memory = pool.stats().virtual_memory;
        self.samples.push([memory.mappings, memory.address_bytes, memory.stitched_ranges]);
    }

    fn plus(mut self, other: Self) -> Self {
        self.operations += other.operations;
        self.nanoseconds += other.nanoseconds;
        self.refused += other.refused;
        self.failed += other.failed;
        self.corrupt.extend(other.corrupt);
        self.samples.extend(other.samples);
        self
    }
}

#[derive(Debug)]
struct Worker<D: Device> {
    stream: D::Stream,
    random: Rng,
    live: Vec<Live<D>>,
    bytes: u64,
}

/// A buffer, and what its first and last bytes are, if they were written.
#[derive(Debug)]
struct Live<D: Device> {
    buffer: Buffer<D>,
    mark: Option<u8>,
}

impl<D: Device> Cell<D> {
    /// Returns `None` if the device does not support the source.
    pub(crate) fn new(settings: Settings, device: &D) -> Result<Option<Self>, Box<dyn Error>> {
        let device = device.with_pages(DEVICE, PAGE);
        let name = format!("{}-{}", settings.source, settings.level);
        let pool = match Pool::builder(&device).name(name).source(settings.source).limit(LIMIT).build() {
            Err(error) if matches!(error.backend(), Some(BackendError::Unsupported { .. })) => {
                return Ok(None);
            }
            pool => pool?,
        };
        let worker = |number: u32| -> Result<Worker<D>, Box<dyn Error>> {
            let random = Rng::with_seed(settings.seed.wrapping_add(u64::from(number)));
            Ok(Worker { stream: device.create_stream()?, random, live: Vec::new(), bytes: 0 })
        };
        let workers = (0..settings.threads).map(worker).collect::<Result<_, _>>()?;
        let arena = pool.arena().filter(|arena| arena.is_growing()).cloned().map(SleepArena::new);
        Ok(Some(Self { settings, device, arena, pool, workers }))
    }

    /// Has all threads use the pool for so long.
    pub(crate) fn run(&mut self, time: Duration) -> Result<Turn, Box<dyn Error>> {
        let Self { settings, device, arena, pool, workers } = self;
        let end = Instant::now() + time;
        let share = LIMIT / 100 * settings.level / u64::from(settings.threads);
        let has_faults = settings.faults && device.faults().is_some();
        let (device, arena, pool, settings) = (&*device, arena.as_ref(), &*pool, *settings);
        let mut turn = thread::scope(|scope| {
            let running: Vec<_> = workers
                .iter_mut()
                .enumerate()
                .map(|(number, worker)| {
                    scope.spawn(move || {
                        let mut turn = Turn::default();
                        while Instant::now() < end {
                            (0..64).for_each(|_| worker.step(pool, share, has_faults, &mut turn));
                            if number == 0 {
                                if worker.random.u32(..SAMPLES / 64) == 0 {
                                    turn.sample(pool);
                                }
                                disturb(device, (pool, arena), settings, &mut worker.random);
                            }
                        }
                        turn
                    })
                })
                .collect();
            let turns =
                running.into_iter().map(|worker| worker.join().unwrap_or_else(|panic| resume_unwind(panic)));
            turns.fold(Turn::default(), Turn::plus)
        });
        recover(device, arena)?;
        turn.sample(pool);
        Ok(turn)
    }

    /// The most mappings and bytes of addresses that the pool may have, where it maps memory itself.
    pub(crate) fn bounds(&self) -> Result<Option<(u64, u64)>, BackendError> {
        let virtual_memory = self.device.virtual_memory().filter(|_| self.settings.source == Source::Virtual);
        let page = virtual_memory.map(|memory| memory.granularity(self.pool.kind())).transpose()?;
        Ok(page.map(|page| (4 * (LIMIT / page) + 1024, 8 * LIMIT)))
    }

    /// Drops everything. What the device then lacks is an error.
    pub(crate) fn finish(self) -> Result<(), String> {
        let Self { settings, device, arena, pool, workers } = self;
        let name = pool.name().to_owned();
        device.faults().into_iter().for_each(Faults::clear);
        for worker in workers {
            drop(worker.live);
            device.synchronize(&worker.stream).map_err(|error| format!("{name}: {error}"))?;
        }
        pool.trim().map_err(|error| format!("{name}: {error}"))?;
        let stats = pool.stats();
        if settings.source == Source::Virtual
            && (stats.reserved_bytes, stats.virtual_memory.mappings) != (0, 0)
        {
            return Err(format!(
                "{name}: {} bytes and {} mappings are left after a trim",
                stats.reserved_bytes, stats.virtual_memory.mappings
            ));
        }
        drop((arena, pool));
        if device.faults().is_none() {
            // Others use it at the same time.
            return Ok(());
        }
        match device.memory_info() {
            Ok(info) if info.free_bytes == info.total_bytes => Ok(()),
            Ok(info) => Err(format!("{name}: {} bytes are lost", info.total_bytes - info.free_bytes)),
            Err(error) => Err(format!("{name}: {error}")),
        }
    }
}

impl<D: Device> Worker<D> {
    fn step(&mut self, pool: &Pool<D>, share: u64, has_faults: bool, turn: &mut Turn) {
        turn.operations += 1;
        let began = Instant::now();
        // Mostly small, some large, none alike.
        let bytes = 1u64 << self.random.u32(0..24);
        let granularity = pool.device().properties().copy_granularity;
        let bytes = self.random.u64(bytes..2 * bytes).min(share / 4).next_multiple_of(granularity);
        let frees = self.bytes + bytes > share || self.random.u8(..8) < 3;
        if frees && !self.live.is_empty() {
            let place = self.random.usize(..self.live.len());
            let freed = self.live.swap_remove(place);
            self.bytes -= freed.buffer.len();
            match freed.difference(pool.device(), &self.stream) {
                Ok(None) => {}
                Err(error) if is_expected(&error, has_faults) => {}
                Ok(Some(found)) => turn.find(pool, &freed, &found),
                Err(error) => turn.find(pool, &freed, &error.to_string()),
            }
        } else {
            match pool.allocate(bytes, &self.stream) {
                Ok(mut buffer) => {
                    let mut unexpected = None;
                    let mut mark = (self.random.u8(..MARKED) == 0).then(|| self.random.u8(..));
                    if let Some(value) = mark
                        && let Err(error) = write(pool.device(), &mut buffer, &self.stream, value)
                    {
                        turn.failed += 1;
                        mark = None;
                        if !is_expected(&error, has_faults) {
                            unexpected = Some(error);
                        }
                    }
                    self.bytes += bytes;
                    let live = Live { buffer, mark };
                    unexpected.into_iter().for_each(|error| turn.find(pool, &live, &error.to_string()));
                    self.live.push(live);
                }
                Err(error) if error.is_out_of_memory() => {
                    turn.refused += 1;
                    for _ in 0..4.min(self.live.len()) {
                        let freed = self.live.swap_remove(self.random.usize(..self.live.len()));
                        self.bytes -= freed.buffer.len();
                    }
                }
                Err(_) => turn.failed += 1,
            }
        }
        turn.nanoseconds += u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    }
}

impl<D: Device> Live<D> {
    /// Returns the first difference between an end of the buffer and its mark.
    fn difference(&self, device: &D, stream: &D::Stream) -> Result<Option<String>, vrampool::Error> {
        let Some(mark) = self.mark else { return Ok(None) };
        for end in ends(self.buffer.len()) {
            let mut bytes = vec![0; (end.end - end.start) as usize];
            let region = self.buffer.on(stream)?.slice(end.clone())?;
            device.download(stream, region, &mut bytes)?;
            if bytes.iter().any(|&byte| byte != mark) {
                return Ok(Some(format!("bytes {end:?} are {bytes:?}, and {mark} was written")));
            }
        }
        Ok(None)
    }
}

/// The first and the last bytes of so many.
fn ends(bytes: u64) -> [Range<u64>; 2] {
    let mark = bytes.min(MARK);
    [0..mark, bytes - mark..bytes]
}

fn write<D: Device>(
    device: &D,
    buffer: &mut Buffer<D>,
    stream: &D::Stream,
    mark: u8,
) -> Result<(), vrampool::Error> {
    for end in ends(buffer.len()) {
        let bytes = vec![mark; (end.end - end.start) as usize];
        device.upload(stream, &bytes, buffer.on_mut(stream)?.slice(end)?)?;
    }
    Ok(())
}

/// Whether a pool that is asleep, or a planned fault, explains that a buffer was not read or written.
fn is_expected(error: &vrampool::Error, has_faults: bool) -> bool {
    match (error, error.backend()) {
        (vrampool::Error::Asleep { .. }, _) => true,
        (_, Some(BackendError::Driver { message, .. })) => has_faults && message == "injected fault",
        _ => false,
    }
}

/// Another event of a pool, after one call of [`Worker::step`] in 64.
fn disturb<D: Device>(
    device: &D,
    (pool, arena): (&Pool<D>, Option<&SleepArena<D>>),
    settings: Settings,
    random: &mut Rng,
) {
    let mut is_time = |one_in: u32| random.u32(..one_in / 64) == 0;
    if is_time(TRIMS) {
        // It may fail, by a planned fault.
        let _ = pool.trim();
    }
    if let Some(faults) = device.faults().filter(|_| settings.faults)
        && is_time(FAULTS)
    {
        let call = FAILING[random.usize(..FAILING.len())];
        faults.fail_nth(call, device_calls(random));
    }
    let mut is_time = |one_in: u32| random.u32(..one_in / 64) == 0;
    if is_time(SLEEPS)
        && let Some(arena) = arena
    {
        // It may fail: by a region that exists at the moment, or by a planned fault.
        let _ = arena.sleep(Offload::Pageable);
        if recover(device, Some(arena)).is_err() {
            let _ = pool.trim();
        }
    }
}

/// How many calls from now on one fails.
fn device_calls(random: &mut Rng) -> u64 {
    random.u64(1..20)
}

/// Ends faults, and wakes the memory.
fn recover<D: Device>(device: &D, arena: Option<&SleepArena<D>>) -> Result<(), vrampool_sleep::Error> {
    device.faults().into_iter().for_each(Faults::clear);
    arena.map_or(Ok(()), |arena| arena.wake().map(drop))
}
