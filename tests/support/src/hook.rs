//! A hook of a closure, and a function that blocks.

use std::fmt;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};
use vrampool_backend::{Hook, HookCalls, HookEvent};

/// A hook that asks for some calls, and passes all that it gets to a closure.
pub struct Tap<F> {
    name: &'static str,
    calls: HookCalls,
    act: F,
}

impl<F: Fn(HookCalls, &HookEvent<'_>)> Tap<F> {
    /// Returns a hook of this name.
    #[must_use]
    pub fn new(name: &'static str, calls: HookCalls, act: F) -> Self {
        Self { name, calls, act }
    }
}

impl<F> fmt::Debug for Tap<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl<F: Fn(HookCalls, &HookEvent<'_>) + Send + Sync> Hook for Tap<F> {
    fn name(&self) -> &str {
        self.name
    }

    fn calls(&self) -> HookCalls {
        self.calls
    }

    fn before_request(&self, event: &HookEvent<'_>) {
        (self.act)(HookCalls::BEFORE_REQUEST, event);
    }

    fn after_request(&self, event: &HookEvent<'_>) {
        (self.act)(HookCalls::AFTER_REQUEST, event);
    }

    fn before_allocation(&self, event: &HookEvent<'_>) {
        (self.act)(HookCalls::BEFORE_ALLOCATION, event);
    }

    fn after_allocation(&self, event: &HookEvent<'_>) {
        (self.act)(HookCalls::AFTER_ALLOCATION, event);
    }

    fn before_free(&self, event: &HookEvent<'_>) {
        (self.act)(HookCalls::BEFORE_FREE, event);
    }

    fn after_free(&self, event: &HookEvent<'_>) {
        (self.act)(HookCalls::AFTER_FREE, event);
    }
}

/// Returns a function that blocks, the receiver of a message as it begins, and the sender that ends one call by a
/// message, and all by its drop.
pub fn gate() -> (impl Fn() + Send + Sync + 'static, Receiver<()>, Sender<()>) {
    let ((reached, at_gate), (open, opened)) = (channel(), channel::<()>());
    let opened = Mutex::new(opened);
    let pass = move || {
        let _ = reached.send(());
        let _ = opened.lock().expect("no panic under it").recv();
    };
    (pass, at_gate, open)
}
