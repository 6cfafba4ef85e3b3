//! A parameter sweep, and the check of its results.

use crate::kernels::State;
use std::error::Error;
use vrampool::Backend;
use vrampool_broker::HostArray;

/// Bytes that go to or come from an array at a time.
const PIECE: usize = 64 << 10;
/// How many runs are solved again on the host.
const CHECKED: u64 = 500;
/// How far a backend's rounding may take it from the host's.
const TOLERANCE: f32 = 1e-2;

/// So many runs, of different stiffness and from different starts.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sweep {
    pub(crate) runs: u64,
    pub(crate) samples: u64,
    pub(crate) steps: u32,
    pub(crate) step: f32,
}

impl Sweep {
    /// Bytes of the parameters, and of the results.
    pub(crate) fn bytes(&self) -> Option<(u64, u64)> {
        let parameters = self.runs.checked_mul(12)?;
        let states = self.runs.checked_mul(4)?.checked_mul(self.samples)?;
        parameters.checked_add(states).map(|_| (parameters, states))
    }

    /// mu from 0.1 to 4, and starts around the limit cycle.
    fn run(&self, run: u64) -> [f32; 3] {
        let part = run as f32 / self.runs as f32;
        [0.1 + 3.9 * part, 0.5 + (run % 97) as f32 / 40.0, (run % 89) as f32 / 50.0 - 0.9]
    }

    /// Writes the parameters, row by row.
    pub(crate) fn fill<B: Backend>(&self, array: &mut HostArray<B>) -> Result<(), Box<dyn Error>> {
        let mut piece = Vec::with_capacity(PIECE);
        let mut offset = 0;
        for row in 0..3 {
            for run in 0..self.runs {
                piece.extend_from_slice(&self.run(run)[row].to_ne_bytes());
                if piece.len() == PIECE {
                    array.write_at(&piece, offset)?;
                    offset += piece.len() as u64;
                    piece.clear();
                }
            }
        }
        Ok(array.write_at(&piece, offset)?)
    }

    /// Solves some of the first `runs` again, and returns the largest deviation of the results.
    pub(crate) fn worst_error<B: Backend>(
        &self,
        states: &HostArray<B>,
        runs: u64,
    ) -> Result<f32, Box<dyn Error>> {
        let mut worst = 0.0_f32;
        for run in (0..runs).step_by((runs / CHECKED).max(1) as usize).chain(runs.checked_sub(1)) {
            let mut at = State::new(self.run(run));
            for sample in 0..self.samples {
                (0..self.steps).for_each(|_| at.step(self.step));
                let mut bytes = [0; 4];
                states.read_at(&mut bytes, (sample * self.runs + run) * 4)?;
                let error = (f32::from_ne_bytes(bytes) - at.x).abs();
                // Also what is not a number.
                if error.is_nan() || error > TOLERANCE {
                    let found = f32::from_ne_bytes(bytes);
                    return Err(format!("run {run}, sample {sample}: {found} is not {}", at.x).into());
                }
                worst = worst.max(error);
            }
        }
        Ok(worst)
    }
}
