//! A shared value that a forked child never drops.

use std::mem;
use std::ops::Deref;
use std::sync::Arc;
#[cfg(feature = "metrics")]
use std::sync::Weak;
use vrampool_backend::fork;

/// An `Arc` whose value is not dropped in a forked child, where its locks may be held forever: another thread
/// of the parent may have been changing it.
#[derive(Debug)]
pub(crate) struct ForkArc<T>(Arc<T>);

impl<T> ForkArc<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(value))
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn upgrade(weak: &Weak<T>) -> Option<Self> {
        weak.upgrade().map(Self)
    }

    #[cfg(feature = "metrics")]
    pub(crate) fn downgrade(this: &Self) -> Weak<T> {
        Arc::downgrade(&this.0)
    }

    /// Returns the value, if this is its only handle.
    #[cfg(feature = "metrics")]
    pub(crate) fn into_inner(this: Self) -> Option<T> {
        let value = Arc::clone(&this.0);
        drop(this);
        Arc::into_inner(value)
    }
}

impl<T> Clone for ForkArc<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Deref for ForkArc<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> Drop for ForkArc<T> {
    fn drop(&mut self) {
        if fork::is_child() {
            mem::forget(Arc::clone(&self.0));
        }
    }
}
