//! Hooks that are active on one thread, within a scope.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;
use vrampool::Error;
use vrampool::backend::BackendError;
use vrampool::backend::spi::Hooks;
use vrampool::hooks::{Holder, Hook, HookCalls, HookEvent};

thread_local! {
    static ENTERED: Entered = Entered::default();
}

#[derive(Debug, Default)]
struct Entered(RefCell<Hooks>);

impl Drop for Entered {
    fn drop(&mut self) {
        // The hooks of forgotten scopes are not dropped: their destructors are the program's, which may use
        // destroyed variables of this thread.
        mem::forget(self.0.take());
    }
}

/// Passes a pool's events on to the hooks that are [entered](Self::enter) on the calling thread: CuPy's
/// `with hook:`, for the pools that have this hook.
///
/// ```
/// use std::sync::Arc;
/// use vrampool::{Backend, Pool, host::HostDevice};
/// use vrampool_hooks::{CallSites, Scoped};
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
/// drop(pool.allocate(1000, &stream)?); // not counted
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
    /// Announces to `hook`, too, what this thread does with pools that have a [`Scoped`] hook, until the result is
    /// dropped. Hooks are called in the order in which they were entered.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] if a hook of that name is entered on this thread, or the thread is ending.
    pub fn enter(hook: impl Hook + 'static) -> Result<Scope, Error> {
        let hook: Arc<dyn Hook> = Arc::new(hook);
        let name = hook.name().to_owned();
        // Another handle, so that none is destroyed within the borrow: its destructor may enter or leave
        // others.
        let entered = ENTERED.try_with(|entered| entered.0.borrow_mut().add(Arc::clone(&hook)).is_ok());
        let reason = match entered {
            Ok(true) => return Ok(Scope { name, this_thread: PhantomData }),
            Ok(false) => {
                format!(
                    "a scope named `{name}` is entered on this thread; leave it first, or use another name"
                )
            }
            Err(_) => "the thread is ending; enter the scope before".into(),
        };
        Err(BackendError::invalid("hook", reason).into())
    }

    /// The hooks that are entered now, in a copy: one of them may enter or leave others.
    fn entered(self) -> Hooks {
        // Destroyed, in the destructor of another thread-local variable.
        ENTERED.try_with(|entered| entered.0.borrow().clone()).unwrap_or_default()
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        // Destroyed, in the destructor of another thread-local variable: then the hook is dropped, too.
        let left = ENTERED.try_with(|entered| entered.0.borrow_mut().remove(&self.name));
        // Behind the borrow, as above.
        drop(left);
    }
}

impl Hook for Scoped {
    fn name(&self) -> &str {
        "scoped"
    }

    /// Hooks that are entered later may need any.
    fn calls(&self) -> HookCalls {
        HookCalls::all()
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
