//! Ctrl-C and SIGTERM, for an orderly end.

use crate::stdout::Ended;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::error::Error;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Which signal has come. From its creation on the first one no longer ends the program; the second one does.
#[derive(Debug)]
pub struct Interrupt {
    came: Arc<AtomicBool>,
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Begins to listen.
    ///
    /// # Errors
    /// If the system registers no handler.
    pub fn listen() -> io::Result<Self> {
        let interrupt = Self { came: Arc::default(), signal: Arc::default() };
        for signal in [SIGINT, SIGTERM] {
            flag::register_conditional_shutdown(
                signal,
                exit_code(signal).into(),
                Arc::clone(&interrupt.came),
            )?;
            flag::register_usize(signal, Arc::clone(&interrupt.signal), signal as usize)?;
            flag::register(signal, Arc::clone(&interrupt.came))?;
        }
        Ok(interrupt)
    }

    /// The exit code that says which signal came, if one did.
    #[must_use]
    pub fn exit_code(&self) -> Option<u8> {
        // Relaxed: the handler stores the number first, and a number that is not visible yet is read at the next check.
        match self.signal.load(Ordering::Relaxed) {
            0 => None,
            signal => Some(exit_code(signal as i32)),
        }
    }

    /// Ends the program, after what there was to print, if a signal came.
    ///
    /// # Errors
    /// If one came: the end of the program, with its exit code.
    pub fn end(&self) -> Result<(), Box<dyn Error>> {
        let text = || "interrupted; what is printed is complete, and the rest is missing".into();
        self.exit_code().map_or(Ok(()), |exit_code| Err(Ended { text: text(), exit_code }.into()))
    }
}

/// As shells have it.
fn exit_code(signal: i32) -> u8 {
    128 + signal as u8
}
