//! Van der Pol's oscillator, x'' = mu (1 - x²) x' - x, by the classical method of Runge and Kutta: what is
//! solved, on every backend.

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
