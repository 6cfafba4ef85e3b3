//! Programs of one step: what is allocated, launched and freed, on which stream.

use crate::kernels::{Kernels, Lane};
use crate::options::Amount;
use std::cell::Cell;
use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;
use std::thread::sleep;
use std::time::Duration;
use vrampool::backend::Event;
use vrampool::{Backend, Buffer, Error, Pool};

/// Layers of a forward pass.
const LAYERS: usize = 10;
/// Sizes of a layer's temporaries, in eighths of the given size.
const EIGHTHS: [u64; LAYERS] = [8, 5, 11, 6, 8, 12, 4, 9, 7, 10];
/// Batches, or gathered layers, that are queued at most before the oldest one is complete.
const AHEAD: usize = 4;
/// Rows of the batches of a pipeline.
const ROWS: [u64; 16] =
    [1216, 352, 1888, 704, 2016, 480, 1440, 928, 256, 1664, 1120, 576, 1792, 832, 1344, 384];
/// A batch of so many rows has the given size.
const ROWS_OF_SIZE: u64 = 1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scene {
    /// Each stream allocates a temporary, launches a kernel and frees the temporary, in turn over the streams.
    Single,
    /// Each stream runs forward passes of ten layers; a layer's temporary is freed when the next layer, which
    /// reads it, is launched.
    Layers,
    /// One stream fills batches, another one trains on them.
    Loader,
    /// A communication stream gathers the next layer while the compute stream uses the current one, which
    /// the program orders by events and marks by `record_stream`.
    Gather,
    /// One stream uploads batches, a second one augments them, and a third one computes.
    Pipeline,
}

impl Scene {
    pub(crate) const ALL: &'static [Self] =
        &[Self::Single, Self::Layers, Self::Loader, Self::Gather, Self::Pipeline];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Layers => "layers",
            Self::Loader => "loader",
            Self::Gather => "gather",
            Self::Pipeline => "pipeline",
        }
    }

    /// The numbers of streams that it runs on.
    pub(crate) fn streams(self) -> &'static [usize] {
        match self {
            Self::Pipeline => &[1, 3],
            _ => &[1, 2, 4],
        }
    }

    /// How much work a step on so many streams is, in steps on one stream.
    pub(crate) fn work(self, streams: usize) -> f64 {
        match self {
            Self::Single | Self::Layers => streams as f64,
            Self::Loader | Self::Gather => streams.div_ceil(2) as f64,
            Self::Pipeline => 1.0,
        }
    }
}

impl fmt::Display for Scene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Scene {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.iter().copied().find(|scene| scene.name() == text).ok_or_else(|| {
            let known: Vec<_> = Self::ALL.iter().map(|scene| scene.name()).collect();
            format!("unknown scene '{text}': known are {}", known.join(", "))
        })
    }
}

/// A stream with the pool that it allocates from.
pub(crate) struct Side<'a, B: Backend> {
    pub(crate) lane: &'a Lane<B>,
    pub(crate) pool: &'a Pool<B>,
}

impl<B: Backend> Clone for Side<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Backend> Copy for Side<'_, B> {}

/// Steps of a scene.
pub(crate) struct Program<'a, B: Backend, K: Kernels<B>> {
    device: &'a B,
    kernels: &'a K,
    sides: Vec<Side<'a, B>>,
    block_bytes: u64,
    amount: Amount,
    /// Every block has different contents.
    seed: Cell<u64>,
}

/// A block and the seed of its contents.
type Seeded<B> = (Buffer<B>, u64);

impl<'a, B: Backend, K: Kernels<B>> Program<'a, B, K> {
    pub(crate) fn new(
        device: &'a B,
        kernels: &'a K,
        sides: Vec<Side<'a, B>>,
        block_bytes: u64,
        amount: Amount,
    ) -> Self {
        Self { device, kernels, sides, block_bytes, amount, seed: Cell::new(0) }
    }

    /// Queues one step, and waits for it.
    pub(crate) fn step(&self, scene: Scene) -> Result<(), Error> {
        match scene {
            Scene::Single => self.single()?,
            Scene::Layers => self.layers()?,
            Scene::Loader => self.pairs(Self::loader)?,
            Scene::Gather => self.pairs(Self::gather)?,
            Scene::Pipeline => self.pipeline()?,
        }
        self.sides.iter().try_for_each(|side| Ok(self.device.synchronize(&side.lane.stream)?))
    }

    fn single(&self) -> Result<(), Error> {
        for _ in 0..self.amount.kernels {
            for side in &self.sides {
                drop(self.produce(side, self.block_bytes, self.amount.length, None)?);
            }
        }
        Ok(())
    }

    fn layers(&self) -> Result<(), Error> {
        for _ in 0..self.amount.kernels.div_ceil(LAYERS) {
            for side in &self.sides {
                let mut previous = None;
                for eighths in EIGHTHS {
                    let bytes = whole(self.block_bytes * eighths / 8);
                    // Frees the previous one when the layer is launched.
                    previous = Some(self.produce(side, bytes, self.amount.length, previous.as_ref())?);
                }
            }
        }
        Ok(())
    }

    /// Runs `batch` for each pair of streams in turn; a single stream is both of its pair.
    fn pairs(
        &self,
        batch: impl Fn(&Self, &Side<'a, B>, &Side<'a, B>, &mut Pair<B>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let sides: Vec<_> = self.sides.chunks(2).map(|pair| (pair[0], pair[pair.len() - 1])).collect();
        let mut pairs: Vec<_> = sides.iter().map(|_| Pair::default()).collect();
        for _ in 0..self.amount.kernels {
            for ((first, second), pair) in sides.iter().zip(&mut pairs) {
                if pair.queued.len() == AHEAD
                    && let Some(oldest) = pair.queued.pop_front()
                {
                    wait_for::<B>(&oldest)?;
                }
                batch(self, first, second, pair)?;
                pair.queued.push_back(self.device.record(&second.lane.stream)?);
            }
        }
        Ok(())
    }

    fn loader(&self, loader: &Side<'a, B>, trainer: &Side<'a, B>, _: &mut Pair<B>) -> Result<(), Error> {
        let batch = self.produce(loader, self.block_bytes, self.amount.length, None)?;
        batch.0.used_on(&trainer.lane.stream)?;
        drop(self.produce(trainer, self.block_bytes, self.amount.length, Some(&batch))?);
        Ok(())
    }

    fn gather(
        &self,
        communication: &Side<'a, B>,
        compute: &Side<'a, B>,
        pair: &mut Pair<B>,
    ) -> Result<(), Error> {
        let next = self.produce(communication, self.block_bytes, self.amount.length, None)?;
        let gathered = self.device.record(&communication.lane.stream)?;
        if let Some((layer, gathered)) = pair.gathered.replace((next, gathered)) {
            let stream = &compute.lane.stream;
            self.device.wait(stream, &gathered)?;
            drop(self.produce_from_recorded(compute, self.block_bytes, self.amount.length, &layer)?);
        }
        Ok(())
    }

    fn pipeline(&self) -> Result<(), Error> {
        let at = |index: usize| self.sides[index.min(self.sides.len() - 1)];
        let [upload, augment, compute] = [at(0), at(1), at(2)];
        for rows in ROWS {
            let bytes = |parts: u64| whole(parts * self.block_bytes * rows / ROWS_OF_SIZE);
            let length = |percent: u64| {
                self.amount.length.mul_f64(percent as f64 / 100.0 * rows as f64 / ROWS_OF_SIZE as f64)
            };
            let raw = self.produce(&upload, bytes(1), length(80), None)?;
            self.order(&upload, &augment)?;
            let scaled = self.produce_from_recorded(&augment, bytes(1), length(9), &raw)?;
            let moved = self.produce(&augment, bytes(1), length(9), Some(&scaled))?;
            drop(scaled);
            let image = self.produce(&augment, bytes(1), length(9), Some(&moved))?;
            drop(moved);
            self.order(&augment, &compute)?;
            let hidden = self.produce_from_recorded(&compute, bytes(4), length(90), &image)?;
            let active = self.produce(&compute, bytes(4), length(9), Some(&hidden))?;
            drop(hidden);
            let output = self.produce(&compute, bytes(1), length(90), Some(&active))?;
            drop(active);
            drop(self.produce(&compute, bytes(2), length(9), Some(&output))?);
        }
        Ok(())
    }

    /// Allocates a block, and launches the kernel that reads `input` and fills the block.
    fn produce(
        &self,
        side: &Side<'a, B>,
        bytes: u64,
        length: Duration,
        input: Option<&Seeded<B>>,
    ) -> Result<Seeded<B>, Error> {
        let Side { lane, pool } = side;
        let mut output = pool.allocate(bytes, &lane.stream)?;
        let seed = self.seed.replace(self.seed.get() + 1);
        let input =
            input.map(|(buffer, seed)| Ok::<_, Error>((buffer.on(&lane.stream)?, *seed))).transpose()?;
        self.kernels.launch(lane, length, input, (output.on_mut(&lane.stream)?, seed))?;
        Ok((output, seed))
    }

    /// The same with an input of another stream, behind which the program ordered this one: nothing but
    /// `record_stream` records the use in the pool.
    fn produce_from_recorded(
        &self,
        side: &Side<'a, B>,
        bytes: u64,
        length: Duration,
        (input, input_seed): &Seeded<B>,
    ) -> Result<Seeded<B>, Error> {
        let Side { lane, pool } = side;
        let mut output = pool.allocate(bytes, &lane.stream)?;
        let seed = self.seed.replace(self.seed.get() + 1);
        let region = input.on(input.stream())?.for_stream(&lane.stream);
        self.kernels.launch(
            lane,
            length,
            Some((region, *input_seed)),
            (output.on_mut(&lane.stream)?, seed),
        )?;
        input.record_stream(&lane.stream)?;
        Ok((output, seed))
    }

    /// Orders later work on `second` behind the work on `first` so far.
    fn order(&self, first: &Side<'a, B>, second: &Side<'a, B>) -> Result<(), Error> {
        Ok(self.device.wait(&second.lane.stream, &self.device.record(&first.lane.stream)?)?)
    }
}

/// What a pair of streams has queued.
struct Pair<B: Backend> {
    queued: VecDeque<B::Event>,
    /// The layer that is used next, and the point where it is complete.
    gathered: Option<(Seeded<B>, B::Event)>,
}

impl<B: Backend> Default for Pair<B> {
    fn default() -> Self {
        Self { queued: VecDeque::new(), gathered: None }
    }
}

/// As a program that limits how far the host runs ahead.
fn wait_for<B: Backend>(event: &B::Event) -> Result<(), Error> {
    while !event.is_complete()? {
        sleep(Duration::from_micros(20));
    }
    Ok(())
}

/// A whole number of words of every element type.
fn whole(bytes: u64) -> u64 {
    (bytes >> 9 << 9).max(512)
}
