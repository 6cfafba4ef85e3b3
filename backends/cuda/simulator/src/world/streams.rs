//! Streams: queues of operations that run later, in order.

use super::World;
use crate::code::{Answer, Code};
use crate::detector::{Clock, Point};
use crate::objects::handle::Object;
use crate::objects::stream::{Kind, Operation, Stream};
use crate::objects::work::Work;
use parking_lot::MutexGuard;
use std::collections::VecDeque;

/// Handles with a meaning of their own.
const LEGACY: usize = 1;
const PER_THREAD: usize = 2;

impl World {
    pub(crate) fn create_stream(&mut self, context: u64, kind: Kind, priority: i32) -> u64 {
        let number = self.next_number();
        let handle = match kind {
            Kind::Created { .. } => self.handles.add(Object::Stream(number)),
            _ => 0,
        };
        let stream = Stream {
            context,
            handle,
            kind,
            priority,
            queue: VecDeque::new(),
            issued: 0,
            done: 0,
            is_scheduled: false,
            gates: 0,
            clock: Clock::default(),
            waiters: Vec::new(),
            capture: None,
        };
        self.streams.insert(number, stream);
        number
    }

    /// The stream that a handle means on this thread.
    pub(crate) fn stream_of(&mut self, handle: usize) -> Answer<u64> {
        match handle {
            0 | LEGACY => {
                let context = self.current()?;
                self.contexts.get(&context).map(|context| context.legacy).ok_or(Code::INVALID_CONTEXT)
            }
            PER_THREAD => {
                let (context, thread) = (self.current()?, std::thread::current().id());
                let known =
                    self.contexts.get(&context).and_then(|context| context.per_thread.get(&thread)).copied();
                Ok(known.unwrap_or_else(|| {
                    let stream = self.create_stream(context, Kind::PerThread(thread), 0);
                    if let Some(context) = self.contexts.get_mut(&context) {
                        context.per_thread.insert(thread, stream);
                    }
                    stream
                }))
            }
            handle => {
                let stream = self.created_stream_of(handle)?;
                let context = self.stream(stream)?.context;
                self.usable(context)?;
                Ok(stream)
            }
        }
    }

    pub(crate) fn stream(&mut self, number: u64) -> Answer<&mut Stream> {
        self.streams.get_mut(&number).ok_or(Code::INVALID_HANDLE)
    }

    /// Appends an operation. What the stream's kind orders it with is added to what it waits for.
    pub(crate) fn enqueue(&mut self, number: u64, work: Work, mut waits: Vec<Point>) -> Answer<Point> {
        let (context, kind, blocking) = {
            let stream = self.stream(number)?;
            (stream.context, stream.kind, stream.is_blocking())
        };
        self.usable(context)?;
        let mut joined = Clock::default();
        for other in match kind {
            Kind::Legacy => self.streams_of(context),
            _ if blocking => {
                self.contexts.get(&context).map(|context| vec![context.legacy]).unwrap_or_default()
            }
            _ => Vec::new(),
        } {
            let Some(stream) = self.streams.get(&other).filter(|_| other != number) else { continue };
            if (kind == Kind::Legacy && !stream.is_blocking()) || stream.issued == 0 {
                continue;
            }
            waits.push(Point { stream: other, number: stream.issued });
            joined.join(&stream.clock);
        }
        let seen = std::mem::take(&mut self.seen);
        let stream = self.streams.get_mut(&number);
        if let Some(stream) = stream {
            stream.clock.join(&joined);
            stream.clock.forget(&seen);
        }
        self.seen = seen;
        let stream = self.stream(number)?;
        stream.issued += 1;
        let point = Point { stream: number, number: stream.issued };
        let before = stream.clock.clone();
        stream.clock.add(point);
        self.check_work(&work, point, &before);
        let is_mark = matches!(work, Work::Mark { .. });
        let is_over = waits.iter().all(|wait| self.is_done(wait.stream, wait.number));
        let stream = self.stream(number)?;
        // Nothing runs for memory that is allocated or freed in order, so it needs no worker in an idle
        // stream.
        if is_mark && is_over && stream.queue.is_empty() && !stream.is_scheduled && stream.gates == 0 {
            stream.done = point.number;
            return Ok(point);
        }
        stream.queue.push_back(Operation { number: point.number, waits, work, stamp: None });
        self.schedule(number);
        Ok(point)
    }

    /// Whether an operation is complete; those of removed streams are.
    pub(crate) fn is_done(&self, stream: u64, number: u64) -> bool {
        self.streams.get(&stream).is_none_or(|stream| stream.done >= number)
    }

    /// Returns the pending work of a stream: the last operation of each stream that it stands for, and their
    /// clock. The null stream stands for all streams that it is ordered with.
    pub(crate) fn goals(&mut self, number: u64) -> Answer<(Vec<(u64, u64)>, Clock)> {
        let stream = self.stream(number)?;
        let (context, mut goals, mut clock) =
            (stream.context, vec![(number, stream.issued)], stream.clock.clone());
        if stream.kind == Kind::Legacy {
            for other in self.streams_of(context) {
                if let Some(stream) = self.streams.get(&other).filter(|stream| stream.is_blocking()) {
                    goals.push((other, stream.issued));
                    clock.join(&stream.clock);
                }
            }
        }
        Ok((goals, clock))
    }

    pub(crate) fn synchronize_stream(world: &mut MutexGuard<'_, Self>, number: u64) -> Answer {
        let context = world.stream(number)?.context;
        let (goals, clock) = world.goals(number)?;
        Self::wait_until(world, |world| goals.iter().all(|&(stream, number)| world.is_done(stream, number)));
        world.learn(&clock);
        world.usable(context)
    }

    /// Takes a stream's handle away. Its work goes on, and the stream is removed when that is done.
    pub(crate) fn destroy_stream(&mut self, handle: usize) -> Answer {
        let number = self.created_stream_of(handle)?;
        self.handles.remove(handle);
        let stream = self.stream(number)?;
        stream.handle = 0;
        if stream.queue.is_empty() && !stream.is_scheduled {
            self.remove_stream(number);
        }
        Ok(())
    }

    pub(crate) fn is_destroyed(&self, number: u64) -> bool {
        let Some(stream) = self.streams.get(&number) else { return true };
        matches!(stream.kind, Kind::Created { .. }) && stream.handle == 0
    }

    pub(crate) fn remove_stream(&mut self, number: u64) {
        let Some(stream) = self.streams.remove(&number) else { return };
        if stream.handle != 0 {
            self.handles.remove(stream.handle);
        }
        for waiter in stream.waiters {
            self.schedule(waiter);
        }
    }

    /// The context of a stream, as a handle.
    pub(crate) fn context_handle_of(&mut self, stream: u64) -> Answer<usize> {
        let context = self.stream(stream)?.context;
        self.contexts.get(&context).map(|context| context.handle).ok_or(Code::CONTEXT_IS_DESTROYED)
    }
}
