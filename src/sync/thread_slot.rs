//! A value of a thread-local variable that is reached without a check.
//!
//! A variable with a destructor costs each access a check of whether it still exists. Where the loader
//! resolves thread-local variables, one without a destructor exists as long as its thread, and the
//! destructor of another variable of the same module takes care of its content.
//!
//! Elsewhere, for example on Windows with the GNU toolchain, the standard library finds variables by keys of
//! the system. It then destroys *every* variable at the thread's end, in an order that depends on which one
//! the process used first, and starts anew with those that are used later. There the content leaves by itself.

use std::mem::ManuallyDrop;
use std::ops::Deref;

/// A value with content that must not be lost at its thread's end.
pub(crate) trait Leave {
    /// Hands the content to its other owner.
    fn leave(&mut self);
}

/// Aligned, so that all that a hit touches, including a borrow flag, shares a line.
#[repr(align(64))]
pub(crate) struct ThreadSlot<T: Leave>(ManuallyDrop<T>);

impl<T: Leave> ThreadSlot<T> {
    pub(crate) const fn new(value: T) -> Self {
        // Used on all platforms, so that none reports dead code.
        let _: fn(&mut T) = T::leave;
        Self(ManuallyDrop::new(value))
    }
}

impl<T: Leave> Deref for ThreadSlot<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

/// Platforms that are not known to have variables of the loader get the destructor: it is right on both.
#[cfg(any(
    model,
    not(any(
        target_os = "linux",
        target_os = "freebsd",
        target_vendor = "apple",
        target_env = "msvc",
        target_family = "wasm"
    ))
))]
impl<T: Leave> Drop for ThreadSlot<T> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// A slot as on platforms with keys, to test their order of destruction elsewhere.
#[cfg(all(test, feature = "host"))]
pub(crate) struct KeyedSlot<T: Leave>(pub(crate) T);

#[cfg(all(test, feature = "host"))]
impl<T: Leave> Drop for KeyedSlot<T> {
    fn drop(&mut self) {
        self.0.leave();
    }
}
