//! Which tag a thread allocates under.

use crate::failure::Failure;
use crate::tags::Tagged;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use vrampool::internal;

#[derive(Debug)]
struct Scope {
    pool: u64,
    /// Does not keep a destroyed pool: its last handle calls the driver, which a thread's own variables must not do
    /// when they are destroyed.
    tagged: Weak<Tagged>,
    is_open: AtomicBool,
    /// A [`ThreadScope`] ends it.
    is_owned: bool,
}

thread_local! {
    /// The innermost last. Another thread may have ended some of them.
    static SCOPES: RefCell<Vec<Arc<Scope>>> = const { RefCell::new(Vec::new()) };
}

/// Opens a scope on this thread, which [`end`] ends.
pub(crate) fn begin(pool: u64, tagged: &Arc<Tagged>) {
    let _ = open(pool, tagged, false);
}

fn open(pool: u64, tagged: &Arc<Tagged>, is_owned: bool) -> Arc<Scope> {
    internal::forget_known();
    let (tagged, is_open) = (Arc::downgrade(tagged), AtomicBool::new(true));
    let scope = Arc::new(Scope { pool, tagged, is_open, is_owned });
    // A thread that is ending has none.
    let _ = SCOPES.try_with(|scopes| scopes.borrow_mut().push(Arc::clone(&scope)));
    scope
}

/// Ends this thread's innermost scope of a pool.
pub(crate) fn end(pool: u64) -> Result<(), Failure> {
    let none = || Failure::invalid("tag", "this thread has no open scope of the pool");
    innermost(|scope| scope.pool == pool).ok_or_else(none)?.end();
    Ok(())
}

/// What this thread allocates from now, if it is in a scope of the pool.
#[inline(always)]
pub(crate) fn current(pool: u64) -> Option<Arc<Tagged>> {
    innermost(|scope| scope.pool == pool)?.tagged.upgrade()
}

/// This thread's innermost open scope that is meant.
#[inline]
fn innermost(is_meant: impl Fn(&Scope) -> bool) -> Option<Arc<Scope>> {
    let find = |scopes: &RefCell<Vec<Arc<Scope>>>| {
        let mut scopes = scopes.borrow_mut();
        // Relaxed, here and below: only this thread has to see it.
        scopes.retain(|scope| scope.is_open.load(Ordering::Relaxed));
        scopes.iter().rev().find(|scope| is_meant(scope)).cloned()
    };
    SCOPES.try_with(find).ok().flatten()
}

impl Scope {
    fn end(&self) {
        self.is_open.store(false, Ordering::Relaxed);
        let _ = innermost(|_| false);
    }
}

/// A scope of the thread that begins it. Whatever thread ends or drops it, ends it.
#[derive(Debug)]
pub struct ThreadScope(Arc<Scope>);

impl ThreadScope {
    pub(crate) fn begin(pool: u64, tagged: &Arc<Tagged>) -> Self {
        Self(open(pool, tagged, true))
    }

    /// Whether it is the innermost one of this thread; `None` if the thread has none.
    #[must_use]
    pub fn is_innermost(of: Option<&Self>) -> Option<bool> {
        let innermost = innermost(|scope| scope.is_owned)?;
        Some(of.is_some_and(|of| Arc::ptr_eq(&of.0, &innermost)))
    }

    /// Ends it. Does nothing the second time.
    pub fn end(&self) {
        self.0.end();
    }
}

impl Drop for ThreadScope {
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::options::Options;
    use crate::pool::CPool;
    use crate::registry;

    /// So a thread that ends in it calls no driver.
    #[test]
    fn a_scope_keeps_no_destroyed_pool() {
        let options = Options::parse("device=host; host_capacity=16MiB; source=virtual").expect("good");
        let handle = registry::add(|handle| CPool::new(handle, options)).expect("a pool");
        let tagged = registry::with(handle, |pool| pool.tagged_or_new("kept")).expect("a tag");
        let handles = Arc::strong_count(&tagged);
        begin(handle, &tagged);
        assert!(current(handle).is_some_and(|found| Arc::ptr_eq(&found, &tagged)));
        assert_eq!(Arc::strong_count(&tagged), handles, "the scope keeps it");
        registry::remove(handle).expect("it is there");
        end(handle).expect("it was begun");
    }
}
