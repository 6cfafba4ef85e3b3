//! Which tag a thread allocates under.

use crate::failure::Failure;
use crate::pool::Tagged;
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

struct Scopes {
    /// How many are open: what every request asks first.
    open: Cell<usize>,
    /// Of which pools, the innermost last.
    of: RefCell<Vec<(u64, Arc<Tagged>)>>,
}

thread_local! {
    static SCOPES: Scopes = const { Scopes { open: Cell::new(0), of: RefCell::new(Vec::new()) } };
}

/// Whether any thread ever opened one: most programs have none, and then no request looks at its thread's.
static WERE_ANY: AtomicBool = AtomicBool::new(false);

/// Opens a scope on this thread.
pub(crate) fn begin(pool: u64, tagged: Arc<Tagged>) {
    // Relaxed, here and below: only this thread has to see it.
    WERE_ANY.store(true, Ordering::Relaxed);
    // A thread that is ending has none.
    let _ = SCOPES.try_with(|scopes| {
        scopes.of.borrow_mut().push((pool, tagged));
        scopes.open.set(scopes.open.get() + 1);
    });
}

/// Ends this thread's innermost scope of a pool.
pub(crate) fn end(pool: u64) -> Result<(), Failure> {
    let ended = SCOPES.try_with(|scopes| {
        let mut of = scopes.of.borrow_mut();
        let innermost = of.iter().rposition(|(other, _)| *other == pool)?;
        scopes.open.set(scopes.open.get() - 1);
        Some(of.remove(innermost))
    });
    // Dropped here: it may be the last of a pool.
    match ended.ok().flatten() {
        Some(_) => Ok(()),
        None => Err(Failure::invalid("tag", "this thread has no scope of the pool open")),
    }
}

/// What this thread allocates from now, if it is in a scope of the pool.
#[inline(always)]
pub(crate) fn current(pool: u64) -> Option<Arc<Tagged>> {
    if !WERE_ANY.load(Ordering::Relaxed) {
        return None;
    }
    SCOPES
        .try_with(|scopes| if scopes.open.get() == 0 { None } else { scopes.innermost(pool) })
        .ok()
        .flatten()
}

impl Scopes {
    #[cold]
    fn innermost(&self, pool: u64) -> Option<Arc<Tagged>> {
        self.of.borrow().iter().rev().find(|(other, _)| *other == pool).map(|(_, tagged)| Arc::clone(tagged))
    }
}
