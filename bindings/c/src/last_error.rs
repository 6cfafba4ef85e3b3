//! Each thread's last failure.

use crate::failure::{Failure, Status};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_void};
use std::ptr;

thread_local! {
    static LAST: RefCell<(Status, CString)> = RefCell::new((Status::OK, CString::default()));
}

/// Keeps a failure for this thread. Answers its code.
#[cold]
pub(crate) fn keep(failure: &Failure) -> Status {
    // Of C's text a 0 is the end.
    let text = CString::new(failure.text.replace('\0', "\u{fffd}")).unwrap_or_default();
    // A thread that is ending has none, and asks for none.
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            *last = (failure.status, text);
        }
    });
    failure.status
}

/// Returns an address, or keeps the failure and returns null.
pub(crate) fn or_null(made: Result<*mut c_void, Failure>) -> *mut c_void {
    made.unwrap_or_else(|failure| {
        let _ = keep(&failure);
        ptr::null_mut()
    })
}

pub(crate) fn clear() {
    let _ = LAST.try_with(|last| *last.borrow_mut() = (Status::OK, CString::default()));
}

pub(crate) fn status() -> Status {
    LAST.try_with(|last| last.borrow().0).unwrap_or(Status::OK)
}

/// Good until the next failure of this thread.
pub(crate) fn text() -> *const c_char {
    LAST.try_with(|last| last.borrow().1.as_ptr()).unwrap_or(c"".as_ptr())
}

/// The text of [`vrampool_last_error`](crate::vrampool_last_error), for Rust.
#[must_use]
pub fn copied() -> String {
    LAST.try_with(|last| last.borrow().1.to_string_lossy().into_owned()).unwrap_or_default()
}
