//! Random calls of a pool whose children sleep against an exact model: states, contents, and every byte of the device.
//! A refusal means that the limit has no room. Bytes choose the calls, so that a fuzzer may, too.
//!
//! `VRAMPOOL_MODEL_OPERATIONS` sets the number of calls of the test.

use std::time::Duration;
use vrampool::host::{Backend, DeviceKind, HostDevice, HostStream};
use vrampool::{Buffer, Pool, SizeClasses, Source};
use vrampool_sleep::{Offload, SleepArena, SleepUsage, Wake, sleep_all, wake_all};

/// One piece of physical memory, bytes. All blocks are multiples of it, so that pieces belong to one block.
const PAGE: u64 = 4096;
const LIMIT: u64 = 64 * PAGE;
/// Also for pinned backups, of which those of the wake before may still be there.
const DEVICE: u64 = 512 * PAGE;

/// The last one is not deferrable: it wakes with any other.
const TAGS: [&str; 3] = ["weights", "kv_cache", "other"];

/// Reads choices from bytes.
struct Choices<'a>(&'a [u8]);

impl Choices<'_> {
    /// A number below `end`; `None` after the last byte.
    fn below(&mut self, end: u64) -> Option<u64> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(u64::from(*byte) % end)
    }

    fn tags(&mut self) -> Option<Vec<&'static str>> {
        let chosen = self.below(8)?;
        Some((0..3).filter(|tag| chosen >> tag & 1 == 1).map(|tag| TAGS[tag]).collect())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Now {
    Awake,
    Kept,
    Discarded,
}

struct Block {
    buffer: Buffer<HostDevice>,
    address: Option<u64>,
    tag: usize,
    /// What all its bytes are; `None` once they were discarded.
    value: Option<u8>,
}

struct Model {
    device: HostDevice,
    streams: [HostStream; 2],
    pool: Pool<HostDevice>,
    /// By tag.
    pools: [Pool<HostDevice>; 3],
    arenas: [SleepArena<HostDevice>; 3],
    now: [Now; 3],
    blocks: Vec<Block>,
    /// Where contents are kept.
    offload: Offload,
}

impl Model {
    /// On a device with memory of its own, or on one that shares the host's.
    fn new(choices: &mut Choices<'_>) -> Option<Self> {
        let kind = [DeviceKind::Discrete, DeviceKind::Integrated][choices.below(2)? as usize];
        let offload = [Offload::Pinned, Offload::Pageable][choices.below(2)? as usize];
        let device = HostDevice::builder().memory_limit(DEVICE).granularity(PAGE).kind(kind).build();
        let pool = Pool::builder(&device).source(Source::Virtual).addresses_stay(true).limit(LIMIT);
        // What is freed is idle in no bucket, and its backup is released at once.
        let pool =
            pool.piece_bytes(PAGE).size_classes(SizeClasses::Exact(PAGE)).cached_class(0).magazine_bytes(0);
        let pool = pool.build().expect("a pool");
        let streams = [(); 2].map(|()| device.create_stream().expect("a stream"));
        let pools = TAGS.map(|tag| pool.child(tag).build().expect("a pool"));
        let arenas = pools.each_ref().map(|pool| SleepArena::new(pool.arena().expect("virtual").clone()));
        Some(Self { device, streams, pool, pools, arenas, now: [Now::Awake; 3], blocks: Vec::new(), offload })
    }

    /// Bytes of blocks under tags for which `is_such` holds.
    fn bytes(&self, is_such: impl Fn(usize) -> bool) -> u64 {
        self.blocks.iter().filter(|block| is_such(block.tag)).map(|block| block.buffer.len()).sum()
    }

    fn awake_bytes(&self) -> u64 {
        self.bytes(|tag| self.now[tag] == Now::Awake)
    }

    /// Makes one call. Returns `None` after the last byte.
    fn step(&mut self, choices: &mut Choices<'_>) -> Option<()> {
        let stream = choices.below(2)? as usize;
        match choices.below(12)? {
            0..=3 => {
                let (tag, bytes) = (choices.below(3)? as usize, PAGE * (1 + choices.below(24)?));
                let value = choices.below(256)? as u8;
                self.allocate(tag, bytes, value, stream);
            }
            4 if !self.blocks.is_empty() => {
                let place = choices.below(self.blocks.len() as u64)? as usize;
                self.blocks.swap_remove(place);
            }
            5 if !self.blocks.is_empty() => {
                let place = choices.below(self.blocks.len() as u64)? as usize;
                let value = choices.below(256)? as u8;
                let (block, stream) = (&mut self.blocks[place], &self.streams[stream]);
                let written = block.buffer.write(&vec![value; block.buffer.len() as usize], stream);
                assert_eq!(written.is_ok(), self.now[block.tag] == Now::Awake, "{written:?}");
                if written.is_ok() {
                    block.value = Some(value);
                }
            }
            6 | 7 if !self.blocks.is_empty() => {
                let place = choices.below(self.blocks.len() as u64)? as usize;
                self.read(place, stream);
            }
            8 => {
                let (kept, how) = (choices.tags()?, choices.below(3)?);
                self.sleep(&kept, how);
            }
            9 | 10 => {
                let tags = (choices.below(2)? == 0).then(|| choices.tags());
                self.wake(match &tags {
                    Some(tags) => Some(tags.as_deref()?),
                    None => None,
                });
            }
            11 => self.trim(),
            _ => {}
        }
        Some(())
    }

    fn allocate(&mut self, tag: usize, bytes: u64, value: u8, stream: usize) {
        let fits = self.awake_bytes() + bytes <= LIMIT;
        match self.pools[tag].allocate(bytes, &self.streams[stream]) {
            Ok(mut buffer) => {
                assert!(self.now[tag] == Now::Awake && fits, "served beyond the limit, or asleep");
                buffer.write(&vec![value; bytes as usize], &self.streams[stream]).expect("awake");
                self.blocks.push(Block { address: buffer.address(), buffer, tag, value: Some(value) });
            }
            Err(error) if error.is_out_of_memory() => {
                assert!(self.now[tag] == Now::Awake && !fits, "{bytes} bytes fit: {error}");
            }
            Err(error) => assert_ne!(self.now[tag], Now::Awake, "{error}"),
        }
    }

    fn read(&self, place: usize, stream: usize) {
        let block = &self.blocks[place];
        let mut bytes = vec![0; block.buffer.len() as usize];
        let read = block.buffer.read(&mut bytes, &self.streams[stream]);
        assert_eq!(read.is_ok(), self.now[block.tag] == Now::Awake, "{read:?}");
        if let (Ok(()), Some(value)) = (read, block.value) {
            assert!(bytes.iter().all(|byte| *byte == value), "contents differ");
        }
    }

    /// Puts all tags to sleep, or only the named ones with their contents, or without.
    fn sleep(&mut self, named: &[&str], how: u64) {
        let policy = |tag: &str| match (named.contains(&tag), how) {
            (true, 0 | 1) => Some(self.offload),
            (true, _) | (false, 0) => Some(Offload::Discard),
            (false, _) => None,
        };
        let arenas = TAGS.iter().zip(&self.arenas);
        let chosen = arenas.filter_map(|(tag, arena)| Some((arena, policy(tag)?)));
        let report = sleep_all(chosen, Duration::ZERO, &|_| ());
        let report = report.expect("no region is open");
        let (mut kept, mut discarded) = (0, 0);
        for (tag, name) in TAGS.iter().enumerate() {
            let is_named = named.contains(name);
            if self.now[tag] != Now::Awake || how > 0 && !is_named {
                continue;
            }
            let bytes = self.bytes(|other| other == tag);
            if is_named && how < 2 {
                self.now[tag] = Now::Kept;
                kept += bytes;
            } else {
                self.now[tag] = Now::Discarded;
                discarded += bytes;
                self.blocks.iter_mut().filter(|block| block.tag == tag).for_each(|block| block.value = None);
            }
        }
        assert_eq!((report.copied_bytes, report.discarded_bytes), (kept, discarded));
    }

    /// Wakes all tags, or the named ones and the one that is not deferrable.
    fn wake(&mut self, named: Option<&[&str]>) {
        let chosen = named.map_or(Wake::All, Wake::Tags);
        let wakes = |tag: usize| chosen.wakes(TAGS[tag]);
        let bytes = self.bytes(|tag| self.now[tag] == Now::Awake || wakes(tag));
        let restored = self.bytes(|tag| self.now[tag] == Now::Kept && wakes(tag));
        let wake = || wake_all((0..3).filter(|&tag| wakes(tag)).map(|tag| &self.arenas[tag]), &|_| ());
        let woken = match wake() {
            Err(error) if error.is_out_of_memory() => {
                let _ = self.pool.trim().expect("no fault");
                wake()
            }
            outcome => outcome,
        };
        match woken {
            Ok(report) => {
                assert!(bytes <= LIMIT, "woken beyond the limit");
                assert_eq!(report.copied_bytes, restored);
                (0..3).filter(|&tag| wakes(tag)).for_each(|tag| self.now[tag] = Now::Awake);
            }
            Err(error) => {
                assert!(error.is_out_of_memory() && bytes > LIMIT, "{bytes} bytes fit: {error}");
            }
        }
    }

    /// Afterwards exactly the bytes that awake blocks need are mapped.
    fn trim(&self) {
        let _ = self.pool.trim().expect("no fault");
        assert_eq!(self.usages().iter().map(|usage| usage.mapped_bytes).sum::<u64>(), self.awake_bytes());
    }

    fn usages(&self) -> [SleepUsage; 3] {
        self.arenas.each_ref().map(SleepUsage::of)
    }

    fn check(&self) {
        let usages = self.usages();
        let mapped: u64 = usages.iter().map(|usage| usage.mapped_bytes).sum();
        assert!(mapped <= LIMIT, "{usages:?}");
        // Pinned backups are the device's bytes if its memory is its own. They are released by another thread.
        let is_pinned = self.offload == Offload::Pinned && !self.device.properties().is_integrated();
        let pinned = if is_pinned { usages.iter().map(|usage| usage.backup_bytes).sum() } else { 0 };
        let taken = DEVICE - self.device.memory_info().expect("figures").free_bytes;
        assert!(taken >= mapped && taken <= mapped + pinned, "{taken} bytes are taken: {usages:?}");
        for (tag, name) in TAGS.iter().enumerate() {
            let (usage, bytes) = (usages[tag], self.bytes(|other| other == tag));
            let (live, asleep) = if self.now[tag] == Now::Awake { (bytes, 0) } else { (0, bytes) };
            assert_eq!((usage.live_bytes, usage.asleep_bytes), (live, asleep), "{name}: {usage:?}");
            match self.now[tag] {
                Now::Awake => {}
                Now::Kept => assert!(usage.backup_bytes >= bytes, "{name}: {usage:?}"),
                Now::Discarded => assert_eq!(usage.backup_bytes, 0, "{name}"),
            }
        }
        for block in &self.blocks {
            assert_eq!(block.buffer.address(), block.address);
        }
    }
}

/// Makes the calls that the bytes choose. Returns their number.
pub(crate) fn check(bytes: &[u8]) -> u64 {
    let mut choices = Choices(bytes);
    let Some(mut model) = Model::new(&mut choices) else { return 0 };
    let mut calls = 0;
    while model.step(&mut choices).is_some() {
        model.check();
        calls += 1;
    }
    let device = model.device.clone();
    model.streams.iter().for_each(|stream| device.synchronize(stream).expect("no fault"));
    (0..model.blocks.len()).for_each(|place| model.read(place, 0));
    let is_released = |tag: usize| model.now[tag] != Now::Awake || model.arenas[tag].backup_bytes() == 0;
    while !(0..3).all(is_released) {
        std::thread::yield_now();
    }
    drop(model);
    assert_eq!((device.memory_info().expect("figures").free_bytes, device.races()), (DEVICE, 0));
    calls
}

#[cfg(test)]
#[test]
fn random_calls_do_what_an_exact_model_does() {
    let operations =
        std::env::var("VRAMPOOL_MODEL_OPERATIONS").map_or(5000, |text| text.parse().expect("a number"));
    let (mut calls, mut seed) = (0, 0);
    while calls < operations {
        let mut rng = fastrand::Rng::with_seed(seed);
        let bytes: Vec<u8> = std::iter::repeat_with(|| rng.u8(..)).take(1000).collect();
        calls +=
            std::panic::catch_unwind(|| check(&bytes)).unwrap_or_else(|_| panic!("the calls of seed {seed}"));
        seed += 1;
    }
}
