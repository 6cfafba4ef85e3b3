//! The thread of a replay.

use super::program::{Program, Step};
use super::touch::{Touch, Verifier};
use vrampool::Buffer;
use vrampool::Error;
use vrampool::Pool;
use vrampool::backend::Backend;

/// Streams of its own, and the buffers that are live.
#[derive(Debug)]
pub(crate) struct Worker<'a, B: Backend> {
    program: &'a Program,
    pool: &'a Pool<B>,
    streams: Vec<B::Stream>,
    pub(crate) slots: Vec<Option<Buffer<B>>>,
    verifier: Option<Verifier<'a, B>>,
}

/// At which event it ended early, and why.
#[derive(Debug)]
pub(crate) struct Halt {
    pub(crate) event: usize,
    pub(crate) source: Error,
}

impl<'a, B: Backend> Worker<'a, B> {
    /// `streams` has one for each of the program's. With `touch` it writes and verifies all that it gets.
    pub(crate) fn new(
        program: &'a Program,
        pool: &'a Pool<B>,
        streams: Vec<B::Stream>,
        touch: Option<&'a dyn Touch<B>>,
    ) -> Result<Self, Error> {
        let verifier = |touch| Verifier::new(touch, pool.device(), &streams, program.slots);
        let verifier = touch.map(verifier).transpose()?;
        Ok(Self { program, pool, streams, slots: (0..program.slots).map(|_| None).collect(), verifier })
    }

    /// Replays the program. What it does not free stays live, also after an error.
    pub(crate) fn run(&mut self) -> Result<(), Halt> {
        match self.verifier {
            Some(_) => self.steps(|worker, _, step| worker.touch(step)),
            None => self.steps(|worker, _, step| worker.step(step)),
        }
    }

    /// Calls `act` with the number of each event and its step.
    #[inline(always)]
    pub(crate) fn steps(
        &mut self,
        mut act: impl FnMut(&mut Self, usize, Step) -> Result<(), Error>,
    ) -> Result<(), Halt> {
        let program = self.program;
        for (event, &step) in program.steps.iter().enumerate() {
            act(self, event, step).map_err(|source| Halt { event, source })?;
        }
        Ok(())
    }

    /// Drops live buffers. Returns the number of bytes that differ from those written, if buffers are verified.
    pub(crate) fn clear(&mut self) -> Result<Option<u64>, Error> {
        let mut outcome = Ok(None);
        if let Some(verifier) = &self.verifier {
            let verified = self.slots.iter().enumerate().try_for_each(|(slot, buffer)| match buffer {
                Some(buffer) => {
                    let writer = verifier.writer(slot);
                    verifier.verify(slot, buffer, writer, &self.streams[usize::from(writer)])
                }
                None => Ok(()),
            });
            outcome = verified.and_then(|()| verifier.finish(&self.streams).map(Some));
        }
        self.slots.fill_with(|| None);
        outcome
    }

    /// Allocates or frees.
    // A call would be a tenth of a warm pass.
    #[inline(always)]
    pub(crate) fn step(&mut self, step: Step) -> Result<(), Error> {
        match step {
            Step::Allocate { size, slot, stream } => {
                self.slots[slot as usize] = Some(self.pool.allocate(size, &self.streams[stream as usize])?);
            }
            Step::Free { slot } => self.slots[slot as usize] = None,
            Step::FreeOn { slot, stream } => {
                if let Some(buffer) = self.slots[slot as usize].take() {
                    buffer.record_stream(&self.streams[stream as usize])?;
                }
            }
        }
        Ok(())
    }

    /// A step, and what it gets is written, and what it frees verified before, on the stream of the free.
    fn touch(&mut self, step: Step) -> Result<(), Error> {
        let Self { pool, streams, slots, verifier: Some(verifier), .. } = self else { return Ok(()) };
        match step {
            Step::Allocate { size, slot, stream: number } => {
                let (slot, stream) = (slot as usize, &streams[usize::from(number)]);
                let mut buffer = pool.allocate(size, stream)?;
                verifier.write(slot, &mut buffer, number, stream)?;
                slots[slot] = Some(buffer);
            }
            Step::Free { slot } | Step::FreeOn { slot, .. } => {
                let slot = slot as usize;
                if let Some(buffer) = slots[slot].take() {
                    let by = match step {
                        Step::FreeOn { stream, .. } => stream,
                        _ => verifier.writer(slot),
                    };
                    verifier.verify(slot, &buffer, by, &streams[usize::from(by)])?;
                }
            }
        }
        Ok(())
    }
}
