//! Events: records, waits and times.

use super::World;
use crate::code::{Answer, Code};
use crate::objects::event::{Event, State};
use crate::objects::handle::Object;
use crate::objects::work::Work;
use parking_lot::MutexGuard;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

impl World {
    pub(crate) fn create_event(&mut self, context: u64, timing: bool) -> usize {
        let number = self.next_number();
        let handle = self.handles.add(Object::Event(number));
        self.events.insert(number, Event { context, handle, timing, state: State::Never });
        handle
    }

    pub(crate) fn event(&mut self, number: u64) -> Answer<&mut Event> {
        self.events.get_mut(&number).ok_or(Code::INVALID_HANDLE)
    }

    pub(crate) fn record(&mut self, event: u64, stream: u64) -> Answer {
        let context = self.event(event)?.context;
        if self.stream(stream)?.context != context {
            return Err(Code::INVALID_HANDLE);
        }
        if let Some(capture) = self.capturing(stream)? {
            let nodes = self.frontier(capture, stream);
            self.event(event)?.state = State::Captured { capture, nodes };
            return Ok(());
        }
        let point = self.enqueue(stream, Work::Nothing, Vec::new())?;
        let stamp = Arc::new(OnceLock::new());
        let of = self.stream(stream)?;
        let clock = Arc::new(of.clock.clone());
        match of.queue.back_mut().filter(|operation| operation.number == point.number) {
            Some(operation) => operation.stamp = Some(Arc::clone(&stamp)),
            // A worker was faster.
            None => {
                let _ = stamp.set(Instant::now());
            }
        }
        self.event(event)?.state = State::Recorded { point, clock, stamp };
        Ok(())
    }

    /// Has a stream wait for an event's last record.
    pub(crate) fn wait(&mut self, stream: u64, event: u64) -> Answer {
        self.waits += 1;
        let is_ignored = self.settings.ignored_wait == Some(self.waits);
        let state = self.event(event)?.state.clone();
        let capture = self.capturing(stream)?;
        match (state, capture) {
            (State::Captured { capture, nodes }, _) if self.captures.contains_key(&capture) => {
                self.join_capture(stream, capture, &nodes, is_ignored)
            }
            (State::Captured { .. }, _) => Err(Code::INVALID_VALUE),
            (State::Never, _) => Ok(()),
            (State::Recorded { .. }, Some(capture)) => {
                self.invalidate(capture);
                Err(Code::STREAM_CAPTURE_ISOLATION)
            }
            (State::Recorded { point, clock, .. }, None) => {
                let context = self.stream(stream)?.context;
                self.usable(context)?;
                if is_ignored {
                    return Ok(());
                }
                self.stream(stream)?.clock.join(&clock);
                self.enqueue(stream, Work::Nothing, vec![point])?;
                Ok(())
            }
        }
    }

    /// Whether the event's last record is complete. If so, the host knows it.
    pub(crate) fn is_complete(&mut self, event: u64) -> Answer<bool> {
        let context = self.event(event)?.context;
        self.usable(context)?;
        match self.event(event)?.state.clone() {
            State::Never => Ok(true),
            State::Captured { capture, .. } => Err(self.refuse_captured(capture)),
            State::Recorded { point, clock, .. } => {
                let is_done = self.is_done(point.stream, point.number);
                if is_done {
                    self.learn(&clock);
                }
                Ok(is_done)
            }
        }
    }

    pub(crate) fn synchronize_event(world: &mut MutexGuard<'_, Self>, event: u64) -> Answer {
        let context = world.event(event)?.context;
        match world.event(event)?.state.clone() {
            State::Never => {}
            State::Captured { capture, .. } => return Err(world.refuse_captured(capture)),
            State::Recorded { point, clock, .. } => {
                Self::wait_until(world, |world| world.is_done(point.stream, point.number));
                world.learn(&clock);
            }
        }
        world.usable(context)
    }

    /// The code for the host's use of an event that was captured last. Invalidates the capture, unless that
    /// has ended.
    fn refuse_captured(&mut self, capture: u64) -> Code {
        if !self.captures.contains_key(&capture) {
            return Code::INVALID_VALUE;
        }
        self.invalidate(capture);
        Code::CAPTURED_EVENT
    }

    /// Milliseconds between two events with timing.
    pub(crate) fn elapsed(&mut self, start: u64, end: u64) -> Answer<f32> {
        let mut times = Vec::new();
        for event in [start, end] {
            let of = self.event(event)?;
            match (of.state.clone(), of.timing) {
                (State::Captured { capture, .. }, _) => return Err(self.refuse_captured(capture)),
                (State::Never, _) | (_, false) => return Err(Code::INVALID_HANDLE),
                (State::Recorded { stamp, .. }, true) => times.push(stamp),
            }
        }
        let times: Vec<Instant> =
            times.iter().map(|stamp| stamp.get().copied().ok_or(Code::NOT_READY)).collect::<Answer<_>>()?;
        let seconds = match times.as_slice() {
            [start, end] if end >= start => (*end - *start).as_secs_f32(),
            [start, end] => -(*start - *end).as_secs_f32(),
            _ => 0.0,
        };
        Ok(seconds * 1000.0)
    }
}
