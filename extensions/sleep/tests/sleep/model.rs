//! Random calls of a [`Sleeper`] against an exact model: states, contents, and every byte of the device. A refusal
//! means that the limit has no room. Bytes choose the calls, so that a fuzzer may, too.
//!
//! `VRAMPOOL_MODEL_OPERATIONS` sets the number of calls of the test.

use vrampool::host::{Backend, HostDevice, HostStream};
use vrampool_sleep::{BlockState, Offload, SleepBuffer, SleepState, Sleeper, Wake};

/// One piece of physical memory, bytes. All blocks are multiples of it, so that pieces belong to one block.
const PAGE: u64 = 4096;
const LIMIT: u64 = 64 * PAGE;
const DEVICE: u64 = 256 * PAGE;

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
    buffer: SleepBuffer<HostDevice>,
    tag: usize,
    /// What all its bytes are; `None` once they were discarded.
    value: Option<u8>,
}

struct Model {
    device: HostDevice,
    streams: [HostStream; 2],
    sleeper: Sleeper<HostDevice>,
    now: [Now; 3],
    blocks: Vec<Block>,
}

impl Model {
    fn new() -> Self {
        let device = HostDevice::builder().memory_limit(DEVICE).granularity(PAGE).build();
        let sleeper = Sleeper::builder(&device).limit(LIMIT).chunk_bytes(PAGE).offload(Offload::Pageable);
        let sleeper = sleeper.build().expect("a sleeper");
        let streams = [(); 2].map(|()| device.create_stream().expect("a stream"));
        // A tag that nothing was allocated under may not exist.
        TAGS.iter().for_each(|tag| drop(sleeper.allocate_tagged(PAGE, tag, &streams[0]).expect("memory")));
        Self { device, streams, sleeper, now: [Now::Awake; 3], blocks: Vec::new() }
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
        match self.sleeper.allocate_tagged(bytes, TAGS[tag], &self.streams[stream]) {
            Ok(mut buffer) => {
                assert!(self.now[tag] == Now::Awake && fits, "served beyond the limit, or asleep");
                buffer.write(&vec![value; bytes as usize], &self.streams[stream]).expect("awake");
                self.blocks.push(Block { buffer, tag, value: Some(value) });
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
        let report = match how {
            0 => self.sleeper.sleep(named),
            1 => self.sleeper.sleep_tags(named),
            _ => self.sleeper.discard(named),
        };
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
        let wakes = |tag: usize| named.is_none_or(|named| named.contains(&TAGS[tag])) || TAGS[tag] == "other";
        let bytes = self.bytes(|tag| self.now[tag] == Now::Awake || wakes(tag));
        let restored = self.bytes(|tag| self.now[tag] == Now::Kept && wakes(tag));
        match self.sleeper.wake_up(named.map_or(Wake::All, Wake::Tags)) {
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

    /// Afterwards the device has given up what blocks need, and no byte more.
    fn trim(&self) {
        let _ = self.sleeper.trim().expect("no fault");
        assert_eq!(self.sleeper.usage().mapped_bytes, self.awake_bytes());
    }

    fn check(&self) {
        let usage = self.sleeper.usage();
        assert!(usage.mapped_bytes <= LIMIT, "{usage}");
        assert_eq!(self.device.memory_info().expect("figures").free_bytes, DEVICE - usage.mapped_bytes);
        for (tag, name) in TAGS.iter().enumerate() {
            let (usage, bytes) =
                (self.sleeper.usage_of(name).expect("it exists"), self.bytes(|other| other == tag));
            let (state, live, asleep) = match self.now[tag] {
                Now::Awake => (SleepState::Awake, bytes, 0),
                Now::Kept | Now::Discarded => (SleepState::Asleep, 0, bytes),
            };
            assert_eq!(self.sleeper.state_of(name).expect("it exists"), state);
            assert_eq!((usage.live_bytes, usage.asleep_bytes), (live, asleep), "{name}: {usage}");
        }
        for block in &self.blocks {
            let state = match self.now[block.tag] {
                Now::Awake => BlockState::Mapped,
                Now::Kept => BlockState::AsleepBackedUp,
                Now::Discarded => BlockState::AsleepDiscarded,
            };
            assert_eq!(block.buffer.state(), state);
        }
    }
}

/// Makes the calls that the bytes choose. Returns their number.
pub(crate) fn check(bytes: &[u8]) -> u64 {
    let (mut choices, mut model, mut calls) = (Choices(bytes), Model::new(), 0);
    while model.step(&mut choices).is_some() {
        model.check();
        calls += 1;
    }
    let device = model.device.clone();
    model.streams.iter().for_each(|stream| device.synchronize(stream).expect("no fault"));
    (0..model.blocks.len()).for_each(|place| model.read(place, 0));
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
