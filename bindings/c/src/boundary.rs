//! Where C's pointers become references, and panics end.
//!
//! The types here are what the exported functions take, each as wide as the pointer it is. Rust makes them of
//! references, and so can call these functions without `unsafe`; C makes them of whatever it has, and its
//! promise is the header's: a pointer that is not null is one to what its type says.

mod slices;

pub use slices::{Bytes, BytesOut, Numbers, Texts, Values};

use crate::failure::{Failure, Status};
use crate::fork;
use crate::last_error;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::AtomicPtr;

/// Functions of C's, as the header declares them. Of one without `extern`, a failure becomes the [`Status`] that C gets
/// and the thread's last error.
macro_rules! exports {
    () => {};
    ($(#[$of:meta])* extern $abi:tt fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $(-> $answer:ty)? $body:block $($rest:tt)*) => {
        $(#[$of])*
        /// As the header says.
        #[allow(unsafe_code, reason = "the attribute of the name is unsafe; nothing else of it is")]
        #[unsafe(no_mangle)]
        pub extern $abi fn $name($($argument: $kind),*) $(-> $answer)? $body
        $crate::boundary::exports! { $($rest)* }
    };
    ($(#[$of:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block $($rest:tt)*) => {
        $crate::boundary::exports! {
            $(#[$of])*
            extern "C" fn $name($($argument: $kind),*) -> $crate::failure::Status { $crate::boundary::guard(|| $body) }
            $($rest)*
        }
    };
}
pub(crate) use exports;

/// A struct that begins with its size and has numbers behind it; the first version ended with the field after `until`.
macro_rules! versioned {
    ($(#[$of:meta])* $Name:ident until $last:ident { $($(#[$doc:meta])* $field:ident)+ }) => {
        $(#[$of])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[repr(C)]
        pub struct $Name {
            /// As in C: what of it the caller knows.
            pub struct_size: usize,
            $($(#[$doc])* pub $field: u64,)+
        }

        impl $crate::boundary::Versioned for $Name {
            const LEAST: usize = std::mem::offset_of!(Self, $last) + size_of::<u64>();
        }
    };
}
pub(crate) use versioned;

/// Does it, and keeps why not. No panic goes on into C. In a [forked](crate::fork) child nothing is done.
#[inline(always)]
pub(crate) fn guard(act: impl FnOnce() -> Result<(), Failure>) -> Status {
    status_of(guarded(act))
}

/// As [`guard`], of what is right in a forked child too.
pub(crate) fn guard_anywhere(act: impl FnOnce() -> Result<(), Failure>) -> Status {
    status_of(uncaught(act))
}

#[inline(always)]
fn status_of(done: Result<(), Failure>) -> Status {
    match done {
        Ok(()) => Status::OK,
        Err(failure) => failed(failure),
    }
}

/// Takes the failure, so that its callers need not drop it.
#[cold]
#[inline(never)]
fn failed(failure: Failure) -> Status {
    last_error::keep(&failure)
}

#[inline(always)]
pub(crate) fn guarded<T>(act: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    fork::check()?;
    uncaught(act)
}

#[inline(always)]
fn uncaught<T>(act: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // What a panic leaves behind is consistent: locks here do not poison, and what they hold changes in one
    // step.
    catch_unwind(AssertUnwindSafe(act)).unwrap_or_else(|panic| Err(caught(&*panic)))
}

#[cold]
fn caught(panic: &(dyn std::any::Any + Send)) -> Failure {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    Failure::new(Status::INTERNAL, format!("a fault of vrampool's own, please report it: {text}"))
}

/// Text of C's: a `const char *`.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Text<'a> {
    start: *const c_char,
    of: PhantomData<&'a CStr>,
}

impl<'a> From<&'a CStr> for Text<'a> {
    fn from(text: &'a CStr) -> Self {
        Self { start: text.as_ptr(), of: PhantomData }
    }
}

impl<'a> Text<'a> {
    /// None.
    #[must_use]
    pub fn null() -> Self {
        Self { start: ptr::null(), of: PhantomData }
    }

    pub(crate) fn optional(self, argument: &str) -> Result<Option<&'a str>, Failure> {
        if self.start.is_null() {
            return Ok(None);
        }
        // SAFETY: made of a `CStr`, or C's promise: text that ends with a 0, and stays as it is during the
        // call.
        let text = unsafe { CStr::from_ptr(self.start) };
        text.to_str().map(Some).map_err(|_| Failure::invalid(argument, "it is not UTF-8"))
    }

    pub(crate) fn required(self, argument: &str) -> Result<&'a str, Failure> {
        self.optional(argument)?.ok_or_else(|| Failure::invalid(argument, "it is null"))
    }
}

impl fmt::Debug for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.optional("text").ok().flatten().fmt(f)
    }
}

/// A value of C's that may be missing: a `const T *`.
#[derive(Debug)]
#[repr(transparent)]
pub struct Given<'a, T> {
    place: *const T,
    of: PhantomData<&'a T>,
}

impl<'a, T> From<&'a T> for Given<'a, T> {
    fn from(place: &'a T) -> Self {
        Self { place, of: PhantomData }
    }
}

impl<'a, T> Given<'a, T> {
    /// None.
    #[must_use]
    pub fn null() -> Self {
        Self { place: ptr::null(), of: PhantomData }
    }

    pub(crate) fn get(self) -> Option<&'a T> {
        // SAFETY: null, made of a reference, or C's promise: an aligned `T` that is there during the call, and stays as
        // it is; what a `Place` has is changed meanwhile by calls alone that do so in one step.
        unsafe { self.place.as_ref() }
    }
}

/// A place of C's that has the address of a block: a `void **`. Calls take what is there in one step, so that
/// one of several has it.
pub type Place<'a> = Given<'a, AtomicPtr<c_void>>;

/// Where an answer goes: a `T *`.
#[derive(Debug)]
#[repr(transparent)]
pub struct Out<'a, T> {
    place: *mut T,
    of: PhantomData<&'a mut T>,
}

impl<'a, T> From<&'a mut T> for Out<'a, T> {
    fn from(place: &'a mut T) -> Self {
        Self { place, of: PhantomData }
    }
}

impl<T> Out<'_, T> {
    /// Nowhere.
    #[must_use]
    pub fn null() -> Self {
        Self { place: ptr::null_mut(), of: PhantomData }
    }

    /// Asked before anything is done whose answer would be lost.
    #[inline(always)]
    pub(crate) fn check(&self, argument: &str) -> Result<(), Failure> {
        if self.place.is_null() { Err(Failure::invalid(argument, "it is null")) } else { Ok(()) }
    }

    /// Does nothing where it is null.
    #[inline(always)]
    pub(crate) fn set(self, value: T) {
        if !self.place.is_null() {
            // SAFETY: made of a mutable reference, or C's promise: aligned memory for a `T` that no other
            // code uses. What was there is a number or a pointer, or nothing yet, and is not dropped.
            unsafe { self.place.write(value) };
        }
    }

    /// Sets the place to the result of `value`. A null place is an error, and `value` is not called.
    #[inline(always)]
    pub(crate) fn answer(
        self,
        argument: &str,
        value: impl FnOnce() -> Result<T, Failure>,
    ) -> Result<(), Failure> {
        self.check(argument)?;
        self.set(value()?);
        Ok(())
    }
}

/// A struct that begins with its size, of which callers may know an earlier version: plain numbers and
/// pointers, all of which may be 0.
pub trait Versioned: Copy {
    /// The size of its first version, and so the least: to the end of that version's last field, whatever was
    /// added since.
    const LEAST: usize;
}

impl<T: Versioned> Out<'_, T> {
    /// As [`answer`](Self::answer), as much of the value as the caller knows.
    pub(crate) fn answer_known<V: Into<T>>(
        self,
        argument: &str,
        value: impl FnOnce() -> Result<V, Failure>,
    ) -> Result<(), Failure> {
        let size = self.size(argument)?;
        let value = value()?.into();
        // SAFETY: C's promise: as many bytes as it says, which are no more than the value has.
        unsafe { ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), self.place.cast(), size) };
        // SAFETY: as above; its size comes first.
        unsafe { self.place.cast::<usize>().write(size) };
        Ok(())
    }

    /// As [`answer_known`](Self::answer_known); where it is null, the value is dropped.
    pub(crate) fn answer_if_wanted<V: Into<T>>(
        self,
        argument: &str,
        value: impl FnOnce() -> Result<V, Failure>,
    ) -> Result<(), Failure> {
        if self.place.is_null() { value().map(drop) } else { self.answer_known(argument, value) }
    }

    /// How much of it the caller knows; an error for what cannot be.
    fn size(&self, argument: &str) -> Result<usize, Failure> {
        self.check(argument)?;
        // SAFETY: C's promise: every version begins with its size, and so has at least that.
        let size = unsafe { self.place.cast::<usize>().read() };
        if size < T::LEAST {
            let reason = format!("set struct_size first: {size} bytes are less than the {} it has", T::LEAST);
            return Err(Failure::invalid(argument, &reason));
        }
        Ok(size.min(size_of::<T>()))
    }
}

/// Text that C has, by where it begins.
static TEXTS: Mutex<BTreeMap<usize, CString>> = Mutex::new(BTreeMap::new());

/// Gives C text, for [`take_back`].
pub(crate) fn give_text(text: String) -> *mut c_char {
    let text = CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
    // It stays where it is: C may write to it, and a `CString` owns its bytes.
    let start = text.as_ptr().cast_mut();
    TEXTS.lock().insert(start as usize, text);
    start
}

pub(crate) fn take_back(start: *mut c_char) -> Result<(), Failure> {
    if start.is_null() {
        return Ok(());
    }
    // Whatever C wrote there, it is freed by its length here.
    let taken = TEXTS.lock().remove(&(start as usize));
    taken.map(drop).ok_or_else(|| {
        Failure::new(Status::INVALID_POINTER, "the text was not returned by vrampool, or was freed already")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panics_end_here_and_are_reported() {
        for status in [
            guard(|| panic!("static")),
            guard(|| panic!("{}", "formatted")),
            guard(|| std::panic::panic_any(7)),
        ] {
            assert_eq!(status, Status::INTERNAL);
            assert!(last_error::copied().contains("please report it"));
        }
        assert_eq!(guard(|| panic!("with a \0 in it")), Status::INTERNAL);
        assert!(last_error::copied().contains("with a \u{fffd} in it"), "{}", last_error::copied());
        assert_eq!(guard(|| Ok(())), Status::OK);
        assert_eq!(last_error::status(), Status::INTERNAL, "a success leaves it");
    }

    #[test]
    fn a_struct_of_another_version_gets_what_it_knows() {
        #[derive(Clone, Copy)]
        #[repr(C)]
        struct Now {
            size: usize,
            old: u64,
            new: u64,
        }
        impl Versioned for Now {
            const LEAST: usize = 16;
        }
        let now = Now { size: 0, old: 1, new: 2 };
        for (size, after) in [(16, (16, 1, 9)), (24, (24, 1, 2)), (4000, (24, 1, 2))] {
            let mut known = Now { size, old: 9, new: 9 };
            Out::from(&mut known).answer_known("now", || Ok(now)).expect("it is large enough");
            assert_eq!((known.size, known.old, known.new), after, "{size}");
        }
        let mut known = Now { size: 15, old: 9, new: 9 };
        assert!(Out::from(&mut known).answer_known("now", || Ok(now)).is_err());
        assert_eq!(known.old, 9);
    }

    #[test]
    fn text_is_freed_once() {
        let text = give_text("a\0b".into());
        assert!(take_back(text).is_ok());
        assert_eq!(take_back(text).map_err(|failure| failure.status), Err(Status::INVALID_POINTER));
    }
}
