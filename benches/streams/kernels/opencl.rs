//! Kernels of OpenCL devices, which have no clock: a loop whose rounds are timed once.

use super::{Input, Kernels, Lane, Output, edges};
use std::time::{Duration, Instant};
use vrampool::opencl::{Arguments, Grid, Kernel, OpenClDevice, Program, TestKernels};
use vrampool::{Backend, BackendError};

/// Rounds of which none can be left out, because each takes what the one before computed.
const SOURCE: &str = "
__kernel void busy(__global uchar *buffer, ulong offset, ulong rounds) {
    uint x = 1;
    for (ulong i = 0; i < rounds; i++) {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
    }
    *(__global uint *)(buffer + offset) = x;
}";

/// A loop of this length is long beside a launch.
const CALIBRATION: Duration = Duration::from_millis(20);
const MOST_ROUNDS: u64 = 1 << 34;

pub(crate) struct OpenClKernels {
    tests: TestKernels,
    busy: Kernel,
    rounds_per_microsecond: f64,
}

impl OpenClKernels {
    pub(crate) fn load(device: &OpenClDevice) -> Result<Self, BackendError> {
        let busy = Program::build(device, SOURCE, c"-cl-std=CL1.2")?.kernel(c"busy")?;
        let mut kernels = Self { tests: TestKernels::load(device)?, busy, rounds_per_microsecond: 0.0 };
        kernels.rounds_per_microsecond = kernels.calibrate(device)?;
        Ok(kernels)
    }

    fn calibrate(&self, device: &OpenClDevice) -> Result<f64, BackendError> {
        let lane = Lane::new(device)?;
        let time = |rounds| {
            let began = Instant::now();
            self.keep_busy(&lane, rounds)?;
            device.synchronize(&lane.stream)?;
            Ok::<_, BackendError>(began.elapsed())
        };
        let mut rounds = 1 << 10;
        // The first launch may compile the kernel.
        time(rounds)?;
        while time(rounds)? < CALIBRATION && rounds < MOST_ROUNDS {
            rounds *= 2;
        }
        let shortest = [time(rounds)?, time(rounds)?, time(rounds)?].into_iter().min().unwrap_or(CALIBRATION);
        Ok(rounds as f64 / shortest.as_secs_f64() / 1e6)
    }

    fn keep_busy(&self, lane: &Lane<OpenClDevice>, rounds: u64) -> Result<(), BackendError> {
        let sink = lane.stream.view_mut::<u32>(lane.sink()?)?;
        let arguments = Arguments::new().view(&sink).long(rounds);
        // SAFETY: the arguments are the kernel's; its one item writes the first word of the sink.
        unsafe { self.busy.launch(&lane.stream, Grid::new(1, [1, 1]), &arguments) }
    }
}

impl Kernels<OpenClDevice> for OpenClKernels {
    fn launch(
        &self,
        lane: &Lane<OpenClDevice>,
        length: Duration,
        input: Option<Input<'_, OpenClDevice>>,
        (mut output, seed): Output<'_, OpenClDevice>,
    ) -> Result<(), BackendError> {
        let stream = &lane.stream;
        for edge in edges(output.len()) {
            self.tests.write_pattern(stream, output.reborrow().slice(edge)?, seed)?;
        }
        self.keep_busy(lane, (length.as_secs_f64() * 1e6 * self.rounds_per_microsecond) as u64)?;
        for (region, seed) in input.into_iter().chain([(output.as_region(), seed)]) {
            for edge in edges(region.len()) {
                self.tests.count_mismatches(stream, region.slice(edge)?, seed, lane.count()?)?;
            }
        }
        Ok(())
    }
}
