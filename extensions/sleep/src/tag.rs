//! The tag that a thread allocates under.

use crate::error::Error;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The tag of allocations outside any scope.
pub const DEFAULT_TAG: &str = "default";

/// Tags that a [wake of some tags](crate::Wake::Tags) leaves asleep unless it names them. Memory of other
/// tags is internal to a program, and wakes with any part of it.
pub const DEFERRABLE_TAGS: &[&str] = &["weights", "kv_cache"];

/// Tags that exist before anything is allocated under them: those of levels too.
const CUSTOMARY_TAGS: &[&str] = &[DEFAULT_TAG, "weights", "kv_cache", "runtime", "cudagraph"];

/// Checks that each of these tags exists: that it is among the `used` ones, or one that programs have by custom.
///
/// ```
/// let used = ["adapters"];
/// assert!(vrampool_sleep::check_tags(&["adapters", "weights"], used.into_iter()).is_ok());
/// assert!(vrampool_sleep::check_tags(&["weigths"], used.into_iter()).is_err());
/// ```
///
/// # Errors
/// [`Error::UnknownTag`] with all tags that exist.
pub fn check_tags<'a>(tags: &[&str], used: impl Iterator<Item = &'a str> + Clone) -> Result<(), Error> {
    let all = || CUSTOMARY_TAGS.iter().copied().chain(used.clone());
    let exists = |tag: &str| all().any(|known| known == tag);
    match tags.iter().find(|tag| !exists(tag)) {
        None => Ok(()),
        Some(&tag) => {
            let known = all().collect::<BTreeSet<_>>().into_iter().map(str::to_owned).collect();
            Err(Error::UnknownTag { tag: tag.to_owned(), known })
        }
    }
}

thread_local! {
    /// Open scopes, the innermost last.
    static OPEN: RefCell<Vec<Open>> = const { RefCell::new(Vec::new()) };
}

struct Open {
    scope: u64,
    sleeper: u64,
    tag: Arc<str>,
}

/// A guard that tags its thread's allocations from a sleeper until it is dropped. In nested scopes the
/// innermost tag applies.
#[derive(Debug)]
#[must_use]
pub struct TagScope {
    scope: u64,
    /// It cannot leave its thread.
    on_thread: PhantomData<*const ()>,
}

impl TagScope {
    pub(super) fn enter(sleeper: u64, tag: &Arc<str>) -> Self {
        static SCOPES: AtomicU64 = AtomicU64::new(0);
        // Relaxed: only distinctness matters.
        let scope = SCOPES.fetch_add(1, Ordering::Relaxed);
        // In destructors of an ending thread there are no scopes.
        let _ = OPEN.try_with(|open| {
            open.borrow_mut().push(Open { scope, sleeper, tag: Arc::clone(tag) });
        });
        Self { scope, on_thread: PhantomData }
    }
}

impl Drop for TagScope {
    fn drop(&mut self) {
        // By number, because scopes may be dropped in any order.
        let closed = OPEN.try_with(|open| {
            let mut open = open.borrow_mut();
            let at = open.iter().rposition(|open| open.scope == self.scope)?;
            Some(open.remove(at))
        });
        drop(closed);
    }
}

/// Returns the innermost tag of this thread for a sleeper, if any.
pub(super) fn current(sleeper: u64) -> Option<Arc<str>> {
    let innermost = |open: &RefCell<Vec<Open>>| {
        let open = open.borrow();
        open.iter().rev().find(|open| open.sleeper == sleeper).map(|open| Arc::clone(&open.tag))
    };
    OPEN.try_with(innermost).ok().flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_inner_scope_wins_and_the_outer_one_is_back_whatever_order_they_end_in() {
        let tags: [Arc<str>; 3] = ["outer", "inner", "other"].map(Arc::from);
        let now = |sleeper| current(sleeper).map(|tag| tag.to_string());
        assert_eq!(now(1), None);
        let outer = TagScope::enter(1, &tags[0]);
        let inner = TagScope::enter(1, &tags[1]);
        let other = TagScope::enter(2, &tags[2]);
        assert_eq!((now(1), now(2), now(3)), (Some("inner".into()), Some("other".into()), None));
        std::thread::scope(|scope| {
            scope.spawn(|| assert_eq!(current(1), None, "a scope is its thread's"));
        });
        drop(inner);
        assert_eq!(now(1).as_deref(), Some("outer"));
        let again = TagScope::enter(1, &tags[1]);
        drop(outer);
        assert_eq!(now(1).as_deref(), Some("inner"));
        drop((again, other));
        assert_eq!((now(1), now(2)), (None, None));
    }
}
