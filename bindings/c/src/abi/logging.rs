//! The callback of log messages.

use crate::boundary::guard_anywhere;
use crate::failure::Status;
use crate::logging;
use std::ffi::{c_int, c_void};

pub use crate::logging::LogCallback;

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_set_log_callback(
    callback: Option<LogCallback>,
    level: c_int,
    user: *mut c_void,
) -> Status {
    guard_anywhere(|| logging::set(callback, level, user))
}
