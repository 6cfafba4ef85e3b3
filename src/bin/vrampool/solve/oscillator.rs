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

#[allow(unused_macros, reason = "no such backend may be compiled in")]
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

#[cfg(feature = "cuda")]
oscillator_of!(cuda, CudaDevice);
#[cfg(feature = "opencl")]
oscillator_of!(opencl, OpenClDevice);
#[cfg(feature = "wgpu")]
oscillator_of!(wgpu, WgpuDevice);
