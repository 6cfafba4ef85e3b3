//! One thread of a replay.

use super::program::{Program, Step};
use super::touch::{Touch, Verifier};
use crate::instant::Instant;
use std::io;
use std::sync::Barrier;
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
    /// `streams` has one for each of the program's.
    pub(crate) fn new(program: &'a Program, pool: &'a Pool<B>, streams: Vec<B::Stream>) -> Self {
        Self { program, pool, streams, slots: (0..program.slots).map(|_| None).collect(), verifier: None }
    }

    /// The same, writing and verifying all that it gets. No two workers have the same `first_seed`, nor one
    /// within 2⁴⁸.
    pub(crate) fn touching(mut self, touch: &'a dyn Touch<B>, first_seed: u64) -> Result<Self, Error> {
        let Self { program, pool, streams, .. } = &self;
        self.verifier = Some(Verifier::new(touch, pool.device(), streams, program.slots, first_seed)?);
        Ok(self)
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
}

impl<B: Backend> Worker<'_, B> {
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

/// A worker on a thread of its own, which waits for orders until this is dropped.
#[derive(Debug)]
pub(crate) struct Hand<'scope> {
    /// `None` only while dropping.
    orders: Option<SyncSender<Order>>,
    replies: Receiver<Reply>,
    thread: Option<ScopedJoinHandle<'scope, ()>>,
}

#[derive(Debug)]
enum Order {
    Run,
    Clear,
}

#[derive(Debug)]
enum Reply {
    Ran(Lap),
    Cleared(Result<Option<u64>, Error>),
}

impl<'scope> Hand<'scope> {
    /// `start` is where all workers of a pass meet.
    pub(crate) fn spawn<'env, B: Backend>(
        scope: &'scope Scope<'scope, 'env>,
        mut worker: Worker<'env, B>,
        start: &'env Barrier,
    ) -> io::Result<Self> {
        let (orders, to_do) = sync_channel(1);
        let (done, replies) = sync_channel(1);
        let thread = Builder::new().name("vrampool replay".into());
        let work = move || {
            for order in to_do {
                let reply = match order {
                    Order::Run => {
                        start.wait();
                        Reply::Ran(worker.run())
                    }
                    Order::Clear => Reply::Cleared(worker.clear()),
                };
                if done.send(reply).is_err() {
                    break;
                }
            }
        };
        let thread = start_thread(|| thread.spawn_scoped(scope, work))?;
        Ok(Self { orders: Some(orders), replies, thread: Some(thread) })
    }

    /// Makes it go to the start. Fails only for a hand that did not answer the order before.
    pub(crate) fn run(&self) -> io::Result<()> {
        self.order(Order::Run)
    }

    fn order(&self, order: Order) -> io::Result<()> {
        self.orders.as_ref().and_then(|orders| orders.send(order).ok()).ok_or_else(ended)
    }

    /// Waits for the end of its run.
    pub(crate) fn lap(&self) -> io::Result<Lap> {
        match self.replies.recv() {
            Ok(Reply::Ran(lap)) => Ok(lap),
            Ok(Reply::Cleared(_)) | Err(_) => Err(ended()),
        }
    }

    /// Drops its live buffers, and waits for that. Returns the same as [`Worker::clear`].
    pub(crate) fn clear(&self) -> io::Result<Result<Option<u64>, Error>> {
        self.order(Order::Clear)?;
        match self.replies.recv() {
            Ok(Reply::Cleared(outcome)) => Ok(outcome),
            Ok(Reply::Ran(_)) | Err(_) => Err(ended()),
        }
    }
}

/// Waits until the thread and its variables are destroyed: the end of a scope waits for less.
impl Drop for Hand<'_> {
    fn drop(&mut self) {
        drop(self.orders.take());
        // A worker's panic shows in its replies.
        let _ = self.thread.take().map(ScopedJoinHandle::join);
    }
}

fn ended() -> io::Error {
    io::Error::other("it ended early")
}
