//! Hooks that are active on one thread, within a scope.

use crate::error::Error;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;
use vrampool_backend::spi::Hooks;
use vrampool_backend::{Holder, Hook, HookEvent};

thread_local! {
    static ENTERED: Entered = Entered::default();
}

#[derive(Debug, Default)]
struct Entered(RefCell<Hooks>);

impl Drop for Entered {
    fn drop(&mut self) {
        // Those of scopes that were forgotten stay so: their destructors are the program's, which may use
        // variables of this thread that are gone.
        mem::forget(self.0.take());
    }
}

/// A hook that passes on to those [entered](Self::enter) on the thread that calls the pool: CuPy's
/// `with hook:`, for the pools that have it.
///
/// ```
/// use std::sync::Arc;
/// use vrampool::{Backend, Pool, hooks::{CallSites, Scoped}, host::HostDevice};
///
/// # fn main() -> Result<(), vrampool::Error> {
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// let pool = Pool::builder(&device).hook(Scoped).build()?;
/// let sites = Arc::new(CallSites::new());
/// {
///     let _scope = Scoped::enter(Arc::clone(&sites))?;
///     drop(pool.allocate(1000, &stream)?);
/// }
/// drop(pool.allocate(1000, &stream)?); // not seen
/// assert_eq!(sites.report().total().requests, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Scoped;

/// A hook is entered on its thread until this is dropped. Scopes may end in any order.
#[derive(Debug)]
#[must_use = "the hook is left when this is dropped"]
pub struct Scope {
    name: String,
    this_thread: PhantomData<*const ()>,
}

impl Scoped {
    /// Has what this thread does with pools that have a [`Scoped`] hook announced to `hook`, too, after those
    /// entered before, until the result is dropped.
    ///
    /// # Errors
    /// [`Error::Configuration`] when a hook of that name is entered on this thread.
    pub fn enter(hook: impl Hook + 'static) -> Result<Scope, Error> {
        let (name, hook) = (hook.name().to_owned(), Arc::new(hook));
        // Another handle, so that none is destroyed within the borrow: its destructor may enter or leave
        // others.
        let entered = ENTERED.try_with(|entered| entered.0.borrow_mut().add(Arc::clone(&hook)).is_ok());
        let reason = match entered {
            Ok(true) => return Ok(Scope { name, this_thread: PhantomData }),
            Ok(false) => "one of that name is entered on this thread; leave it first, or name them apart",
            Err(_) => "the thread is ending; enter it before",
        };
        Err(Error::configuration("hook", name, reason))
    }

    /// Those entered now: one of them may enter or leave others.
    fn entered(self) -> Hooks {
        // Gone, in the destructor of another thread-local variable.
        ENTERED.try_with(|entered| entered.0.borrow().clone()).unwrap_or_default()
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        // Gone, in the destructor of another thread-local variable: then so is the hook.
        let left = ENTERED.try_with(|entered| entered.0.borrow_mut().remove(&self.name));
        // Behind the borrow, as above.
        drop(left);
    }
}

impl Hook for Scoped {
    fn name(&self) -> &str {
        "scoped"
    }

    fn before_request(&self, event: &HookEvent<'_>) {
        self.entered().before_request(event);
    }

    fn after_request(&self, event: &HookEvent<'_>) {
        self.entered().after_request(event);
    }

    fn before_allocation(&self, event: &HookEvent<'_>) {
        self.entered().before_allocation(event);
    }

    fn after_allocation(&self, event: &HookEvent<'_>) {
        self.entered().after_allocation(event);
    }

    fn before_free(&self, event: &HookEvent<'_>) {
        self.entered().before_free(event);
    }

    fn after_free(&self, event: &HookEvent<'_>) {
        self.entered().after_free(event);
    }

    fn holders(&self) -> Vec<Holder> {
        self.entered().holders()
    }
}
