//! One run of training: by a pool, or without one for comparison.

use crate::kernels::WgpuKernels;
use crate::thrown;
use crate::train::compute::Compute;
use crate::train::digits::{CLASSES, Digits, PIXELS};
use crate::train::loader::Loader;
use crate::train::network::Network;
use crate::train::tally::{Outcome, Tally};
use fastrand::Rng;
use js_sys::{Float64Array, Function};
use serde::Serialize;
use vrampool::wgpu::WgpuDevice;
use vrampool::{Error, Pool, PoolStats};
use wasm_bindgen::prelude::wasm_bindgen;
use wasm_bindgen::{JsCast, JsError, JsValue};

/// As in `vrampool train`.
const HIDDEN: [usize; 2] = [256, 128];
const RATE: f32 = 2e-3;
const BATCH: usize = 64;

/// A network, its data, and the pool of its memory.
#[wasm_bindgen]
#[derive(Debug)]
pub struct Run {
    device: WgpuDevice,
    pool: Pool<WgpuDevice>,
    compute: Compute<WgpuDevice, WgpuKernels>,
    loader: Loader<WgpuDevice>,
    network: Network<WgpuDevice>,
    learned: Vec<usize>,
    tested: Vec<usize>,
    rng: Rng,
    epochs: u32,
    epoch: u32,
    after_first_epoch: Option<PoolStats>,
}

/// The figures that the page gets after each step.
#[derive(Debug, Serialize)]
struct Figures {
    epoch: u32,
    steps: u64,
    /// Of this step alone.
    loss: f32,
    /// Of all requests.
    hit_rate: f64,
    hit_rate_after_first_epoch: Option<f64>,
    pool: PoolStats,
}

#[wasm_bindgen]
impl Run {
    /// Requests the device, and begins with random weights. Without a pool each buffer is created by the device and destroyed.
    ///
    /// # Errors
    /// A browser without WebGPU, or what the device reports.
    pub async fn begin(has_pool: bool, epochs: u32) -> Result<Run, JsError> {
        let device = crate::device().await.map_err(thrown)?;
        let builder = Pool::builder(&device).name(if has_pool { "train" } else { "control" });
        let builder = if has_pool { builder } else { builder.max_cached_bytes(0) };
        let pool = builder.build().map_err(thrown)?;
        let digits = Digits::load().map_err(|error| JsError::new(&error.to_string()))?;
        let (learned, tested) = digits.split();
        let mut rng = Rng::with_seed(0);
        let run = || -> Result<_, Error> {
            let loader = Loader::new(&pool, digits)?;
            let compute = Compute::new(&pool, WgpuKernels::load(&device)?)?;
            let network = Network::new(&compute, PIXELS, &HIDDEN, CLASSES, &mut rng)?;
            Ok((loader, compute, network))
        };
        let (loader, compute, network) = run().map_err(thrown)?;
        device.finish(compute.stream()).await.map_err(thrown)?;
        let (epoch, after_first_epoch) = (0, None);
        Ok(Self {
            device,
            pool,
            compute,
            loader,
            network,
            learned,
            tested,
            rng,
            epochs,
            epoch,
            after_first_epoch,
        })
    }

    /// Trains one epoch. After each step `on_step` gets the figures as JSON, and returns the caps: idle bytes and idle buffers
    /// in a bucket, each infinite for no cap. Returns the share of test images that are recognised, 0 to 1.
    ///
    /// # Errors
    /// Errors of the device, and errors that `on_step` throws.
    pub async fn epoch(&mut self, on_step: &Function) -> Result<f64, JsValue> {
        self.epoch += 1;
        self.rng.shuffle(&mut self.learned);
        let mut tally = Tally::new(&self.compute).map_err(thrown)?;
        let all_steps = f64::from(self.epochs) * self.learned.len().div_ceil(BATCH) as f64;
        let mut before = 0.0;
        for batch in self.loader.batches(self.learned.chunks(BATCH)) {
            let rate = RATE * (1.0 - self.network.steps() as f64 / all_steps).max(0.0) as f32;
            let batch = batch.map_err(thrown)?;
            let images = batch.pixels.rows() as f32;
            self.network.train(&self.compute, &batch, rate, &mut tally).map_err(thrown)?;
            drop(batch);
            // Waits for the step, so that the page is drawn between steps.
            let (sums, _) = self.read(&tally).await?;
            let loss = (sums - before) / images;
            before = sums;
            self.report(on_step, loss)?;
        }
        let mut tally = Tally::new(&self.compute).map_err(thrown)?;
        for batch in self.loader.batches(uneven(&self.tested, 2 * BATCH, &mut self.rng)) {
            self.network.evaluate(&self.compute, &batch.map_err(thrown)?, &mut tally).map_err(thrown)?;
        }
        let (_, outcome) = self.read(&tally).await?;
        if self.epoch == 1 {
            self.after_first_epoch = Some(self.pool.stats());
        }
        Ok(f64::from(outcome.accuracy))
    }
}

impl Run {
    /// The sum of the losses, and the means.
    async fn read(&self, tally: &Tally<WgpuDevice>) -> Result<(f32, Outcome), JsError> {
        let mut sums = [0.0_f32; 2];
        let region = tally.sums().view(self.compute.stream()).map_err(thrown)?.region;
        let bytes = bytemuck::cast_slice_mut(&mut sums);
        self.device.read(self.compute.stream(), region, bytes).await.map_err(thrown)?;
        Ok((sums[0], tally.outcome(&sums)))
    }

    fn report(&self, on_step: &Function, loss: f32) -> Result<(), JsValue> {
        let stats = self.pool.stats();
        let figures = Figures {
            epoch: self.epoch,
            steps: self.network.steps(),
            loss,
            hit_rate: stats.hit_rate(),
            hit_rate_after_first_epoch: self
                .after_first_epoch
                .as_ref()
                .map(|first| stats.served.since(&first.served).hit_rate()),
            pool: stats,
        };
        let json = serde_json::to_string(&figures).map_err(JsError::from)?;
        let caps = on_step.call1(&JsValue::NULL, &json.into())?;
        let Ok(caps) = caps.dyn_into::<Float64Array>() else { return Ok(()) };
        let stats = figures.pool;
        let cap = |index| Some(caps.get_index(index)).filter(|cap| cap.is_finite()).map(|cap| cap as u64);
        let (bytes, buffers) = (cap(0), cap(1));
        if bytes != stats.caps.max_cached_bytes {
            self.pool.set_max_cached_bytes(bytes);
        }
        if buffers != stats.caps.max_buffers_per_bucket {
            self.pool.set_max_buffers_per_bucket(buffers);
        }
        Ok(())
    }
}

/// Parts of `rows` of random sizes from 1 to `most`, as requests to a service come.
fn uneven<'a>(rows: &'a [usize], most: usize, rng: &mut Rng) -> impl Iterator<Item = &'a [usize]> {
    let mut rest = rows;
    std::iter::from_fn(move || {
        let (part, after) = rest.split_at(rng.usize(1..=most).min(rest.len()));
        rest = after;
        (!part.is_empty()).then_some(part)
    })
}
