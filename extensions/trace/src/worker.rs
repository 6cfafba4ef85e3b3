//! One thread of a replay.

use super::program::{Program, Step};
use super::touch::{Touch, Verifier};
use crate::instant::Instant;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{Builder, Scope, ScopedJoinHandle};
use vrampool::Buffer;
use vrampool::Error;
use vrampool::Pool;
use vrampool::backend::Backend;
use vrampool::backend::spi::start_thread;

/// Streams of its own, and the buffers that are live.
#[derive(Debug)]
pub(crate) struct Worker<'a, B: Backend> {
    program: &'a Program,
    pool: &'a Pool<B>,
    streams: Vec<B::Stream>,
    slots: Vec<Option<Buffer<B>>>,
    verifier: Option<Verifier<'a, B>>,
}

/// The result of one thread in a pass.
#[derive(Debug)]
pub(crate) struct Lap {
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
    pub(crate) outcome: Result<(), Halt>,
}

/// At which event it ended early, and why.
#[derive(Debug)]
pub(crate) struct Halt {
    pub(crate) event: usize,
    pub(crate) source: Error,
}

impl<'a, B: Backend> Worker<'a, B> {
    /// `streams` has one for each of the program's. With `touch` it writes and verifies all that it gets: no two
    /// workers have the same `first_seed`, nor one within 2⁴⁸.
    pub(crate) fn new(
        program: &'a Program,
        pool: &'a Pool<B>,
        streams: Vec<B::Stream>,
        touch: Option<&'a dyn Touch<B>>,
        first_seed: u64,
    ) -> Result<Self, Error> {
        let verifier = |touch| Verifier::new(touch, pool.device(), &streams, program.slots, first_seed);
        let verifier = touch.map(verifier).transpose()?;
        Ok(Self { program, pool, streams, slots: (0..program.slots).map(|_| None).collect(), verifier })
    }

    /// Replays the program. What it does not free stays live, also after an error.
    pub(crate) fn run(&mut self) -> Lap {
        let began = Instant::now();
        let outcome = if self.verifier.is_some() { self.steps(Self::touch) } else { self.steps(Self::step) };
        Lap { began, ended: Instant::now(), outcome }
    }

    #[inline(always)]
    fn steps(&mut self, step: impl Fn(&mut Self, Step) -> Result<(), Error>) -> Result<(), Halt> {
        let program = self.program;
        for (event, &next) in program.steps.iter().enumerate() {
            step(self, next).map_err(|source| Halt { event, source })?;
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

    #[inline]
    fn step(&mut self, step: Step) -> Result<(), Error> {
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

/// A thread with a worker. It runs closures until this is dropped.
#[derive(Debug)]
pub(crate) struct Hand<'scope, 'env, B: Backend> {
    /// `None` only while dropping.
    jobs: Option<SyncSender<Job<'env, B>>>,
    thread: Option<ScopedJoinHandle<'scope, ()>>,
}

type Job<'env, B> = Box<dyn FnOnce(&mut Worker<'env, B>) + Send + 'env>;

impl<'scope, 'env, B: Backend> Hand<'scope, 'env, B> {
    pub(crate) fn spawn(scope: &'scope Scope<'scope, 'env>, mut worker: Worker<'env, B>) -> io::Result<Self> {
        let (jobs, to_do) = sync_channel::<Job<'env, B>>(1);
        let thread = Builder::new().name("vrampool replay".into());
        let work = move || to_do.into_iter().for_each(|job| job(&mut worker));
        let thread = start_thread(|| thread.spawn_scoped(scope, work))?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Runs `act` on the worker. Its result is received, unless it ended early.
    pub(crate) fn ask<T: Send + 'env>(
        &self,
        act: impl FnOnce(&mut Worker<'env, B>) -> T + Send + 'env,
    ) -> Receiver<T> {
        let (done, result) = sync_channel(1);
        let job = Box::new(move |worker: &mut Worker<'env, B>| _ = done.send(act(worker)));
        // Without its thread nothing is received.
        let _ = self.jobs.as_ref().map(|jobs| jobs.send(job));
        result
    }
}

/// Waits until the thread and its variables are destroyed: the end of a scope waits for less.
impl<B: Backend> Drop for Hand<'_, '_, B> {
    fn drop(&mut self) {
        drop(self.jobs.take());
        // A worker's panic shows where its results are received.
        let _ = self.thread.take().map(ScopedJoinHandle::join);
    }
}
