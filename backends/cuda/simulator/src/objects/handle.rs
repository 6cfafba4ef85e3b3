//! Handles as programs have them, and the objects that they name.

use std::collections::HashMap;

/// The object of a handle, by the simulator's own numbers, which are never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Object {
    Context(u64),
    Stream(u64),
    Event(u64),
    Pool(u64),
    Module(u64),
    Function(u64),
    Graph(u64),
    Exec(u64),
    Physical(u64),
}

/// Handles are numbers that look like addresses, which nothing is at.
const FIRST: usize = 0x5151_0000_0000;
const STEP: usize = 0x40;

#[derive(Debug, Default)]
pub(crate) struct Handles {
    objects: HashMap<usize, Object>,
    /// The former objects of handles, after the objects were destroyed.
    dead: HashMap<usize, Object>,
    made: usize,
    /// Handles of destroyed streams, to be used again.
    free: Vec<usize>,
    pub(crate) reuse: bool,
}

impl Handles {
    pub(crate) fn add(&mut self, object: Object) -> usize {
        let reused = matches!(object, Object::Stream(_)).then(|| self.free.pop()).flatten();
        let handle = reused.unwrap_or_else(|| {
            self.made += 1;
            FIRST + self.made * STEP
        });
        self.dead.remove(&handle);
        self.objects.insert(handle, object);
        handle
    }

    /// Has a handle name another object: a primary context keeps its handle.
    pub(crate) fn assign(&mut self, handle: usize, object: Object) {
        self.dead.remove(&handle);
        self.objects.insert(handle, object);
    }

    pub(crate) fn remove(&mut self, handle: usize) -> Option<Object> {
        let object = self.objects.remove(&handle)?;
        self.dead.insert(handle, object);
        if self.reuse && matches!(object, Object::Stream(_)) {
            self.free.push(handle);
        }
        Some(object)
    }

    /// Returns the object of a handle.
    ///
    /// # Errors
    /// `INVALID_HANDLE`; the object that it named before, if that was destroyed.
    pub(crate) fn get(&self, handle: usize) -> Result<Object, Option<Object>> {
        self.objects.get(&handle).copied().ok_or_else(|| self.dead.get(&handle).copied())
    }

    pub(crate) fn count(&self, is: impl Fn(Object) -> bool) -> usize {
        self.objects.values().filter(|object| is(**object)).count()
    }
}
