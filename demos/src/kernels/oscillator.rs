//! Van der Pol's oscillator, x'' = mu (1 - x²) x' - x, by the classical method of Runge and Kutta: what is
//! solved, on every backend.

use vrampool::{Backend, BackendError, Region, RegionMut};

/// The operations that a backend must compute.
pub(crate) trait Oscillator<B: Backend>: Sync {
    /// `parameters` are three rows of as many floats as there are oscillators: mu, and the position and the
    /// speed at first. Each row of `states` is the position after `steps` more steps. States that are not
    /// whole rows are [`BackendError::InvalidArgument`].
    fn solve(
        &self,
        stream: &B::Stream,
        parameters: Region<'_, B::Memory>,
        step: f32,
        steps: u32,
        states: RegionMut<'_, B::Memory>,
    ) -> Result<(), BackendError>;
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
