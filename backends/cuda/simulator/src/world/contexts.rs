//! Contexts, and which one is current on a thread.

use super::World;
use crate::code::{Answer, Code};
use crate::detector::Clock;
use crate::objects::context::Context;
use crate::objects::handle::Object;
use crate::objects::stream::Kind;
use parking_lot::MutexGuard;
use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::mem::ManuallyDrop;

thread_local! {
    /// Handles, because a context may be destroyed while it is current. Never dropped: destructors that run
    /// later as the thread ends may call the driver.
    static STACK: ManuallyDrop<RefCell<Vec<usize>>> = const { ManuallyDrop::new(RefCell::new(Vec::new())) };
}

/// The handle on top of this thread's stack; 0 for none.
pub(crate) fn top() -> usize {
    STACK.with(|stack| stack.borrow().last().copied().unwrap_or(0))
}

pub(crate) fn push(handle: usize) {
    STACK.with(|stack| stack.borrow_mut().push(handle));
}

pub(crate) fn pop() -> Option<usize> {
    STACK.with(|stack| stack.borrow_mut().pop())
}

impl World {
    pub(crate) fn create_context(&mut self, device: usize, is_primary: bool) -> u64 {
        let number = self.next_number();
        let kept = self.devices.get(device).and_then(|device| device.primary_handle).filter(|_| is_primary);
        let handle = match kept {
            Some(handle) => {
                self.handles.assign(handle, Object::Context(number));
                handle
            }
            None => self.handles.add(Object::Context(number)),
        };
        if let Some(device) = self.devices.get_mut(device).filter(|_| is_primary) {
            device.primary_handle = Some(handle);
        }
        let legacy = self.create_stream(number, Kind::Legacy, 0);
        let context = Context {
            device,
            handle,
            is_primary,
            retained: 0,
            lost: None,
            peers: HashSet::new(),
            legacy,
            per_thread: HashMap::new(),
        };
        self.contexts.insert(number, context);
        number
    }

    /// The context that is current on this thread, and works.
    pub(crate) fn current(&mut self) -> Answer<u64> {
        let context = self.current_or_lost()?;
        self.usable(context)?;
        Ok(context)
    }

    /// The same, where a context whose work failed will do.
    pub(crate) fn current_or_lost(&mut self) -> Answer<u64> {
        match top() {
            0 => Err(Code::INVALID_CONTEXT),
            handle => match self.handles.get(handle) {
                Ok(Object::Context(number)) => Ok(number),
                _ => Err(Code::CONTEXT_IS_DESTROYED),
            },
        }
    }

    /// Fails where the current context does not work. Without one, some calls find their context by their
    /// argument.
    pub(crate) fn check_current(&mut self) -> Answer {
        if top() == 0 { Ok(()) } else { self.current().map(|_| ()) }
    }

    /// Checks that a handle may become current: that of a context, or of a primary one that nothing retains.
    pub(crate) fn check_stackable(&mut self, handle: usize) -> Answer {
        if handle == 0 {
            return Err(Code::INVALID_VALUE);
        }
        match self.devices.iter().any(|device| device.primary_handle == Some(handle)) {
            true => Ok(()),
            false => self.context_of(handle).map(|_| ()),
        }
    }

    pub(crate) fn current_device(&mut self) -> Answer<usize> {
        let context = self.current()?;
        Ok(self.device_of(context))
    }

    pub(crate) fn device_of(&self, context: u64) -> usize {
        self.contexts.get(&context).map_or(0, |context| context.device)
    }

    /// The streams of a context, the null stream among them.
    pub(crate) fn streams_of(&self, context: u64) -> Vec<u64> {
        self.streams
            .iter()
            .filter(|(_, stream)| stream.context == context)
            .map(|(&number, _)| number)
            .collect()
    }

    /// Waits for all work of a context, and returns what it failed with, if it did.
    pub(crate) fn synchronize_context(world: &mut MutexGuard<'_, Self>, context: u64) -> Answer {
        let streams = world.streams_of(context);
        let mut clock = Clock::default();
        let mut goals = Vec::new();
        for number in streams {
            if let Some(stream) = world.streams.get(&number) {
                clock.join(&stream.clock);
                goals.push((number, stream.issued));
            }
        }
        Self::wait_until(world, |world| goals.iter().all(|&(stream, number)| world.is_done(stream, number)));
        world.learn(&clock);
        world.usable(context)
    }

    /// Waits for all work of a device. The host does not rely on it.
    pub(crate) fn wait_for_device(world: &mut MutexGuard<'_, Self>, device: usize) {
        let of = |world: &Self, context| world.device_of(context) == device;
        let goals: Vec<(u64, u64)> = world
            .streams
            .iter()
            .filter(|(_, stream)| of(world, stream.context))
            .map(|(&number, stream)| (number, stream.issued))
            .collect();
        Self::wait_until(world, |world| goals.iter().all(|&(stream, number)| world.is_done(stream, number)));
    }

    /// Ends a context, with everything in it.
    pub(crate) fn destroy_context(world: &mut MutexGuard<'_, Self>, context: u64) {
        let _ = Self::synchronize_context(world, context);
        for stream in world.streams_of(context) {
            world.remove_stream(stream);
        }
        world.release_memory_of(context);
        let events: Vec<u64> = world
            .events
            .iter()
            .filter(|(_, event)| event.context == context)
            .map(|(&number, _)| number)
            .collect();
        for event in events {
            if let Some(event) = world.events.remove(&event) {
                world.handles.remove(event.handle);
            }
        }
        let modules: Vec<u64> = world
            .modules
            .iter()
            .filter(|(_, module)| module.context == context)
            .map(|(&number, _)| number)
            .collect();
        for module in modules {
            world.unload(module);
        }
        if let Some(ended) = world.contexts.remove(&context) {
            world.handles.remove(ended.handle);
            if let Some(device) = world.devices.get_mut(ended.device)
                && device.primary == Some(context)
            {
                device.primary = None;
            }
        }
    }
}
