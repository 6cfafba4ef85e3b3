//! The hooks of one pool.

use crate::hook::Ticket;
use crate::{BackendError, Holder, Hook, HookCalls, HookEvent, Outcome};
use std::cell::Cell;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// The hooks of one pool, in the order in which they are called. For implementations of pools; also several hooks as
/// one.
///
/// ```
/// use std::sync::Arc;
/// use vrampool_backend::{DeviceId, Hook, HookEvent, StreamId};
/// use vrampool_backend::spi::{Hooks, Occasion, Ticket};
/// # #[derive(Debug)]
/// # struct Silent;
/// # impl Hook for Silent {
/// #     fn name(&self) -> &str { "silent" }
/// # }
///
/// # fn main() -> Result<(), vrampool_backend::BackendError> {
/// let mut hooks = Hooks::default();
/// hooks.add(Arc::new(Silent))?;
/// assert!(hooks.add(Arc::new(Silent)).is_err(), "the name is taken");
/// let device = DeviceId::new("mine", 0);
/// let ticket = Ticket::new(std::panic::Location::caller());
/// let event = HookEvent::new("pool", device, ticket, 100, 512, StreamId::next());
/// // Serves the request; when it cannot, it returns, and the hooks are called for that, too.
/// let ticket = hooks.announce(Occasion::Request, event).map(|announced| announced.done(512, Some(0x1000)));
/// assert!(ticket.is_some(), "what the pool remembers until the free");
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Hooks {
    all: Arc<[Arc<dyn Hook>]>,
    /// Calls that any of them needs.
    calls: HookCalls,
}

/// The kind of call that hooks are called for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Occasion {
    /// A caller asks a pool for memory.
    Request,
    /// A pool asks the driver for memory.
    Allocation,
    /// Memory comes back to a pool.
    Free,
}

/// Something was announced. Dropping it reports its end to the hooks: a free as done, all else as failed.
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
    pub fn add(&mut self, hook: Arc<dyn Hook>) -> Result<(), BackendError> {
        if self.all.iter().any(|known| known.name() == hook.name()) {
            let reason = format!("there is one named `{}` already; names are unique", hook.name());
            return Err(BackendError::invalid("hook", reason));
        }
        *self = self.all.iter().cloned().chain([hook]).collect();
        Ok(())
    }

    /// Takes the hook of this name out, if there is one.
    pub fn remove(&mut self, name: &str) -> Option<Arc<dyn Hook>> {
        let hook = self.all.iter().find(|hook| hook.name() == name).cloned()?;
        *self = self.all.iter().filter(|other| !Arc::ptr_eq(other, &hook)).cloned().collect();
        Some(hook)
    }

    /// Returns the hooks, in the order of their calls.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<dyn Hook>> {
        self.all.iter()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Whether any of them needs one of these calls.
    #[inline]
    #[must_use]
    pub fn need(&self, calls: HookCalls) -> bool {
        self.calls.intersects(calls)
    }

    /// Calls the hooks before something is done. `None` when there are none, or this thread is in a hook:
    /// then nothing is announced.
    #[inline(always)]
    #[must_use = "what was announced is over when the answer is dropped"]
    pub fn announce<'a>(&'a self, occasion: Occasion, event: HookEvent<'a>) -> Option<Announced<'a>> {
        if self.is_empty() || CALLING.get() {
            return None;
        }
        self.before(occasion, &event);
        Some(Announced { hooks: self, occasion, event })
    }

    /// Calls the hooks before something is done, unless this thread is in one. Code that does calls
    /// [`after`](Self::after), on the same thread; [`announce`](Self::announce) sees to that by itself.
    #[inline]
    pub fn before(&self, occasion: Occasion, event: &HookEvent<'_>) {
        match occasion {
            Occasion::Request => self.call(HookCalls::BEFORE_REQUEST, event),
            Occasion::Allocation => self.call(HookCalls::BEFORE_ALLOCATION, event),
            Occasion::Free => self.call(HookCalls::BEFORE_FREE, event),
        }
    }

    /// Calls the hooks after something was done, or failed, unless this thread is in one.
    #[inline]
    pub fn after(&self, occasion: Occasion, event: &HookEvent<'_>) {
        match occasion {
            Occasion::Request => self.call(HookCalls::AFTER_REQUEST, event),
            Occasion::Allocation => self.call(HookCalls::AFTER_ALLOCATION, event),
            Occasion::Free => self.call(HookCalls::AFTER_FREE, event),
        }
    }

    #[inline]
    fn call(&self, call: HookCalls, event: &HookEvent<'_>) {
        if self.need(call) {
            self.alone(|hooks| hooks.make(call, event));
        }
    }

    /// Runs `act` unless this thread is in a hook.
    fn alone(&self, act: impl FnOnce(&Self)) {
        if !CALLING.replace(true) {
            // Hooks that panic do not get here.
            act(self);
            CALLING.set(false);
        }
    }

    fn make(&self, call: HookCalls, event: &HookEvent<'_>) {
        self.each(|hook| match call {
            HookCalls::BEFORE_REQUEST => hook.before_request(event),
            HookCalls::AFTER_REQUEST => hook.after_request(event),
            HookCalls::BEFORE_ALLOCATION => hook.before_allocation(event),
            HookCalls::AFTER_ALLOCATION => hook.after_allocation(event),
            HookCalls::BEFORE_FREE => hook.before_free(event),
            _ => hook.after_free(event),
        });
    }

    fn each(&self, call: impl Fn(&dyn Hook)) {
        for hook in self.all.iter() {
            // A hook's panic does not change the pool's work; and memory is also freed while a thread unwinds.
            if let Err(payload) = catch_unwind(AssertUnwindSafe(|| call(&**hook))) {
                // Its destructor might panic, too.
                mem::forget(payload);
            }
        }
    }
}

impl FromIterator<Arc<dyn Hook>> for Hooks {
    fn from_iter<I: IntoIterator<Item = Arc<dyn Hook>>>(hooks: I) -> Self {
        let all: Arc<[_]> = hooks.into_iter().collect();
        let calls = all.iter().map(|hook| hook.calls()).fold(HookCalls::empty(), HookCalls::union);
        Self { all, calls }
    }
}

impl Default for Hooks {
    fn default() -> Self {
        [].into_iter().collect()
    }
}

impl Hook for Hooks {
    fn name(&self) -> &str {
        "hooks"
    }

    fn calls(&self) -> HookCalls {
        self.calls
    }

    fn before_request(&self, event: &HookEvent<'_>) {
        self.make(HookCalls::BEFORE_REQUEST, event);
    }

    fn after_request(&self, event: &HookEvent<'_>) {
        self.make(HookCalls::AFTER_REQUEST, event);
    }

    fn before_allocation(&self, event: &HookEvent<'_>) {
        self.make(HookCalls::BEFORE_ALLOCATION, event);
    }

    fn after_allocation(&self, event: &HookEvent<'_>) {
        self.make(HookCalls::AFTER_ALLOCATION, event);
    }

    fn before_free(&self, event: &HookEvent<'_>) {
        self.make(HookCalls::BEFORE_FREE, event);
    }

    fn after_free(&self, event: &HookEvent<'_>) {
        self.make(HookCalls::AFTER_FREE, event);
    }

    fn holders(&self) -> Vec<Holder> {
        let found = Cell::new(Vec::new());
        self.alone(|hooks| {
            hooks.each(|hook| {
                let before = found.take();
                found.set(if before.is_empty() { hook.holders() } else { before });
            });
        });
        found.into_inner()
    }
}

impl<'a> Announced<'a> {
    /// The event with which the hooks were called.
    #[must_use]
    pub fn event(&self) -> &HookEvent<'a> {
        &self.event
    }

    /// It was done, by `rounded` bytes at `address`. Returns what the pool remembers of the request.
    #[inline(always)]
    pub fn done(mut self, rounded: u64, address: Option<u64>) -> Ticket {
        (self.event.rounded_bytes, self.event.address) = (rounded, address);
        self.event.outcome = Outcome::Done;
        self.hooks.after(self.occasion, &self.event);
        self.event.ticket()
    }
}

impl Drop for Announced<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.event.outcome == Outcome::Pending {
            self.event.outcome = match self.occasion {
                Occasion::Free => Outcome::Done,
                Occasion::Request | Occasion::Allocation => Outcome::Failed,
            };
            self.hooks.after(self.occasion, &self.event);
        }
    }
}
