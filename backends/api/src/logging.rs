//! Log messages of the pool and of the backends: macros `error!`, `warn!`, `info!`, `debug!` and `trace!`, with the
//! arguments of `format!`, optionally after `target: "name",`.
//!
//! A message goes to the `log` facade. With the feature `tracing` it becomes an event of `tracing`, with the same
//! level, target and text, on each thread that has a subscriber; other threads still log. A program receives each
//! message once, also with the bridge `tracing-log`.
//!
//! ```
//! use vrampool_backend::logging::warn;
//! warn!("device {}: {} bytes are not released", "npu:0", 4096);
//! ```

pub use crate::{
    __log_debug as debug, __log_error as error, __log_info as info, __log_trace as trace, __log_warn as warn,
};

#[doc(hidden)]
pub use log as log_facade;
#[cfg(feature = "tracing")]
#[doc(hidden)]
pub use tracing as tracing_facade;

/// Whether this thread's messages go to a subscriber of `tracing`.
#[cfg(feature = "tracing")]
#[doc(hidden)]
#[must_use]
pub fn is_traced() -> bool {
    tracing::dispatcher::get_default(|current| !current.is::<tracing::subscriber::NoSubscriber>())
}

#[cfg(feature = "tracing")]
#[doc(hidden)]
#[macro_export]
macro_rules! __log_message {
    ($level:ident, $of_tracing:ident, target: $target:expr, $($message:tt)+) => {
        if $crate::logging::is_traced() {
            $crate::logging::tracing_facade::event!(
                target: $target,
                $crate::logging::tracing_facade::Level::$of_tracing,
                "{}",
                ::core::format_args!($($message)+)
            )
        } else {
            $crate::logging::log_facade::log!(
                target: $target, $crate::logging::log_facade::Level::$level, $($message)+
            )
        }
    };
    ($level:ident, $of_tracing:ident, $($message:tt)+) => {
        $crate::__log_message!($level, $of_tracing, target: ::core::module_path!(), $($message)+)
    };
}

#[cfg(not(feature = "tracing"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __log_message {
    ($level:ident, $of_tracing:ident, target: $target:expr, $($message:tt)+) => {
        $crate::logging::log_facade::log!(
            target: $target, $crate::logging::log_facade::Level::$level, $($message)+
        )
    };
    ($level:ident, $of_tracing:ident, $($message:tt)+) => {
        $crate::logging::log_facade::log!($crate::logging::log_facade::Level::$level, $($message)+)
    };
}

/// Logs an error: an operation failed, and its caller cannot see that.
#[doc(hidden)]
#[macro_export]
macro_rules! __log_error {
    ($($message:tt)+) => { $crate::__log_message!(Error, ERROR, $($message)+) };
}

/// Logs a warning: the operation succeeded in another way than asked for.
#[doc(hidden)]
#[macro_export]
macro_rules! __log_warn {
    ($($message:tt)+) => { $crate::__log_message!(Warn, WARN, $($message)+) };
}

/// Logs an event that happens a few times in a program.
#[doc(hidden)]
#[macro_export]
macro_rules! __log_info {
    ($($message:tt)+) => { $crate::__log_message!(Info, INFO, $($message)+) };
}

/// Logs an event that may happen often, but not with each request.
#[doc(hidden)]
#[macro_export]
macro_rules! __log_debug {
    ($($message:tt)+) => { $crate::__log_message!(Debug, DEBUG, $($message)+) };
}

/// Logs details of a request.
#[doc(hidden)]
#[macro_export]
macro_rules! __log_trace {
    ($($message:tt)+) => { $crate::__log_message!(Trace, TRACE, $($message)+) };
}
