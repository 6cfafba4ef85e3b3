//! The hooks of one pool.

use crate::{BackendError, Holder, Hook, HookEvent, Outcome};
use std::cell::Cell;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The hooks of one pool, in the order in which they are called. For who writes a pool; also several hooks as
/// one.
///
/// ```
/// use vrampool_backend::{DeviceId, Hook, HookEvent};
/// use vrampool_backend::spi::{Hooks, Occasion, Ticket};
/// # #[derive(Debug)]
/// # struct Silent;
/// # impl Hook for Silent {
/// #     fn name(&self) -> &str { "silent" }
/// # }
///
/// # fn main() -> Result<(), vrampool_backend::BackendError> {
/// let mut hooks = Hooks::default();
/// hooks.add(Silent)?;
/// assert!(hooks.add(Silent).is_err(), "the name is taken");
/// let device = DeviceId::new("mine", 0);
/// let ticket = Ticket::new(std::panic::Location::caller());
/// let announced = hooks.announce(Occasion::Request, HookEvent::new("pool", device, ticket, 100, 512));
/// // Serves the request; when it cannot, it returns, and the hooks are told that, too.
/// if let Some(announced) = announced {
///     announced.done(512, Some(0x1000));
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default)]
pub struct Hooks(Arc<Vec<Arc<dyn Hook>>>);

/// What is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Occasion {
    /// Somebody asks a pool for memory.
    Request,
    /// A pool asks the driver for memory.
    Allocation,
    /// Memory comes back to a pool.
    Free,
}

/// Something was announced. Dropping it tells the hooks that it is over: a free as done, all else as failed.
#[derive(Debug)]
#[must_use = "it is over when this is dropped"]
pub struct Announced<'a> {
    hooks: &'a Hooks,
    occasion: Occasion,
    event: HookEvent<'a>,
}

thread_local! {
    /// Whether this thread is in a hook, of whatever pool.
    static CALLING: Cell<bool> = const { Cell::new(false) };
}

impl Hooks {
    /// Adds a hook, to be called after those that are there.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] when one of them has its name.
    pub fn add(&mut self, hook: impl Hook + 'static) -> Result<(), BackendError> {
        if self.0.iter().any(|known| known.name() == hook.name()) {
            let reason = format!("there is one named `{}` already; names are unique", hook.name());
            return Err(BackendError::invalid("hook", reason));
        }
        Arc::make_mut(&mut self.0).push(Arc::new(hook));
        Ok(())
    }

    /// Takes the hook of this name out, if there is one.
    pub fn remove(&mut self, name: &str) -> Option<Arc<dyn Hook>> {
        let place = self.0.iter().position(|hook| hook.name() == name)?;
        Some(Arc::make_mut(&mut self.0).remove(place))
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Calls the hooks before something is done. `None` when there are none, or this thread is in a hook:
    /// then nothing is announced.
    #[must_use = "what was announced is over when the answer is dropped"]
    pub fn announce<'a>(&'a self, occasion: Occasion, event: HookEvent<'a>) -> Option<Announced<'a>> {
        if self.is_empty() || CALLING.get() {
            return None;
        }
        self.before(occasion, &event);
        Some(Announced { hooks: self, occasion, event })
    }

    /// Calls the hooks before something is done, unless this thread is in one. Whoever does calls
    /// [`after`](Self::after), on the same thread; [`announce`](Self::announce) sees to that by itself.
    pub fn before(&self, occasion: Occasion, event: &HookEvent<'_>) {
        self.call(|hooks| match occasion {
            Occasion::Request => hooks.before_request(event),
            Occasion::Allocation => hooks.before_allocation(event),
            Occasion::Free => hooks.before_free(event),
        });
    }

    /// Calls the hooks after something was done, or failed, unless this thread is in one.
    pub fn after(&self, occasion: Occasion, event: &HookEvent<'_>) {
        self.call(|hooks| match occasion {
            Occasion::Request => hooks.after_request(event),
            Occasion::Allocation => hooks.after_allocation(event),
            Occasion::Free => hooks.after_free(event),
        });
    }

    fn call(&self, call: impl FnOnce(&Self)) {
        if !CALLING.replace(true) {
            // Hooks that panic do not get here.
            call(self);
            CALLING.set(false);
        }
    }

    fn each(&self, call: impl Fn(&dyn Hook)) {
        for hook in self.0.iter() {
            // What watches a pool does not change what it does; and memory comes back while a thread unwinds,
            // too.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| call(&**hook))) {
                // Its destructor might panic, too.
                mem::forget(payload);
            }
        }
    }
}

impl Hook for Hooks {
    fn name(&self) -> &str {
        "hooks"
    }

    fn before_request(&self, event: &HookEvent<'_>) {
        self.each(|hook| hook.before_request(event));
    }

    fn after_request(&self, event: &HookEvent<'_>) {
        self.each(|hook| hook.after_request(event));
    }

    fn before_allocation(&self, event: &HookEvent<'_>) {
        self.each(|hook| hook.before_allocation(event));
    }

    fn after_allocation(&self, event: &HookEvent<'_>) {
        self.each(|hook| hook.after_allocation(event));
    }

    fn before_free(&self, event: &HookEvent<'_>) {
        self.each(|hook| hook.before_free(event));
    }

    fn after_free(&self, event: &HookEvent<'_>) {
        self.each(|hook| hook.after_free(event));
    }

    fn holders(&self) -> Vec<Holder> {
        let found = Cell::new(Vec::new());
        self.call(|hooks| {
            hooks.each(|hook| {
                let before = found.take();
                found.set(if before.is_empty() { hook.holders() } else { before });
            });
        });
        found.into_inner()
    }
}

impl<'a> Announced<'a> {
    /// What was announced.
    #[must_use]
    pub fn event(&self) -> &HookEvent<'a> {
        &self.event
    }

    /// It was done, by `rounded` bytes at `address`.
    pub fn done(mut self, rounded: u64, address: Option<u64>) {
        (self.event.rounded_bytes, self.event.address) = (rounded, address);
        self.event.outcome = Outcome::Done;
    }
}

impl Drop for Announced<'_> {
    fn drop(&mut self) {
        if self.event.outcome == Outcome::Pending {
            self.event.outcome = match self.occasion {
                Occasion::Free => Outcome::Done,
                Occasion::Request | Occasion::Allocation => Outcome::Failed,
            };
        }
        self.hooks.after(self.occasion, &self.event);
    }
}
