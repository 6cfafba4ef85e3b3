//! Van der Pol's oscillator, x'' = mu (1 - x²) x' - x, by the classical method of Runge and Kutta: what is solved, on every backend.

use vrampool::host::{HostDevice, HostMemory, HostStream};
use vrampool::{Backend, BackendError, Region, RegionMut};

/// What a backend must compute.
pub(crate) trait Oscillator<B: Backend>: Sync {
    /// `parameters` are three rows, mu, and where and how fast the oscillator is at first; each row of `states` is where it is after
    /// `steps` more steps.
    fn solve(
        &self,
        stream: &B::Stream,
        parameters: Region<'_, B::Memory>,
        step: f32,
        steps: u32,
        states: RegionMut<'_, B::Memory>,
    ) -> Result<(), BackendError>;
}

/// On the host: a closure on a stream.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OnHost;

impl Oscillator<HostDevice> for OnHost {
    fn solve(
        &self,
        stream: &HostStream,
        parameters: Region<'_, HostMemory>,
        step: f32,
        steps: u32,
        states: RegionMut<'_, HostMemory>,
    ) -> Result<(), BackendError> {
        let (floats, places) = (parameters.len() / 4, states.as_region().len() / 4);
        if floats < 3 || floats % 3 != 0 || places % (floats / 3) != 0 {
            let reason = format!("{floats} parameters have no rows of states among {places}");
            return Err(BackendError::invalid("states", reason));
        }
        stream.launch([parameters], [states], move |[parameters], [states]: [&mut [f32]; 1]| {
            let runs = parameters.len() / 3;
            for run in 0..runs {
                let mut at =
                    State::new([parameters[run], parameters[runs + run], parameters[2 * runs + run]]);
                for row in states.chunks_exact_mut(runs) {
                    (0..steps).for_each(|_| at.step(step));
                    row[run] = at.x;
                }
            }
        })
    }
}

/// One oscillator.
#[derive(Debug, Clone, Copy)]
pub(crate) struct State {
    mu: f32,
    pub(crate) x: f32,
    v: f32,
}

impl State {
    pub(crate) fn new([mu, x, v]: [f32; 3]) -> Self {
        Self { mu, x, v }
    }

    pub(crate) fn step(&mut self, step: f32) {
        let Self { mu, x, v } = *self;
        let acceleration = |x: f32, v: f32| mu * (1.0 - x * x) * v - x;
        let a1 = acceleration(x, v);
        let (v1, x1) = (v + step / 2.0 * a1, x + step / 2.0 * v);
        let a2 = acceleration(x1, v1);
        let (v2, x2) = (v + step / 2.0 * a2, x + step / 2.0 * v1);
        let a3 = acceleration(x2, v2);
        let (v3, x3) = (v + step * a3, x + step * v2);
        let a4 = acceleration(x3, v3);
        self.x += step / 6.0 * (v + 2.0 * v1 + 2.0 * v2 + v3);
        self.v += step / 6.0 * (a1 + 2.0 * a2 + 2.0 * a3 + a4);
    }
}

macro_rules! oscillator_of {
    ($backend:ident, $Device:ident) => {
        impl Oscillator<vrampool::$backend::$Device> for vrampool::$backend::Kernels {
            fn solve(
                &self,
                stream: &<vrampool::$backend::$Device as Backend>::Stream,
                parameters: Region<'_, <vrampool::$backend::$Device as Backend>::Memory>,
                step: f32,
                steps: u32,
                states: RegionMut<'_, <vrampool::$backend::$Device as Backend>::Memory>,
            ) -> Result<(), BackendError> {
                self.van_der_pol(stream, parameters, step, steps, states)
            }
        }
    };
}

oscillator_of!(cuda, CudaDevice);
oscillator_of!(opencl, OpenClDevice);
oscillator_of!(wgpu, WgpuDevice);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{self, Device};
    use std::error::Error;
    use vrampool::{Pool, any};

    struct Law;

    impl device::Run for Law {
        type Output = ();

        fn run<D: Device>(self, device: &D) -> Result<(), Box<dyn Error>> {
            let (oscillator, stream) = (device.oscillator()?, device.create_stream()?);
            let pool = Pool::builder(device).build()?;
            let (mut parameters, mut states) = (pool.allocate(24, &stream)?, pool.allocate(24, &stream)?);
            let numbers = [1.0_f32, 2.0, 0.5, -1.0, 0.0, 0.25];
            parameters.write(&stream, bytemuck::cast_slice(&numbers))?;
            oscillator.solve(&stream, parameters.on(&stream)?, 0.1, 3, states.on_mut(&stream)?)?;
            let mut found = [0.0_f32; 6];
            states.read(&stream, bytemuck::cast_slice_mut(&mut found))?;
            for run in 0..2 {
                let mut at = State::new([numbers[run], numbers[2 + run], numbers[4 + run]]);
                for sample in 0..3 {
                    (0..3).for_each(|_| at.step(0.1));
                    let found = found[2 * sample + run];
                    assert!((found - at.x).abs() < 1e-5, "{found} is not {}", at.x);
                }
            }
            // Two oscillators have no rows of five places, nor are five numbers any.
            for (numbers, places) in [(24, 20), (20, 24), (8, 24), (0, 24)] {
                let (from, to) = (parameters.on(&stream)?, states.on_mut(&stream)?);
                let answer = oscillator.solve(&stream, from.slice(..numbers)?, 0.1, 3, to.slice(..places)?);
                let refused = matches!(answer, Err(BackendError::InvalidArgument { .. }));
                assert!(refused, "{numbers}, {places}: {answer:?}");
            }
            Ok(())
        }
    }

    #[test]
    fn every_device_goes_the_same_way_and_refuses_what_are_no_rows() {
        for listed in any::devices().there {
            eprintln!("on {}", listed.name);
            device::run(Some(&listed.name.parse().expect("a name")), Law).expect("no fault");
        }
    }
}
