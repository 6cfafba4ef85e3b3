//! Control of the simulated CUDA driver from tests.
//!
//! [`Simulator::loaded`] returns nothing where the process runs on a real driver, or on none, so that one
//! test serves both.

use libloading::Library;
use std::ffi::{CString, c_char, c_int};
use std::fmt;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// `CUDA_ERROR_OUT_OF_MEMORY`
pub const OUT_OF_MEMORY: i32 = 2;
/// `CUDA_ERROR_UNKNOWN`
pub const UNKNOWN: i32 = 999;

/// The simulated driver that this process has loaded.
pub struct Simulator {
    library: Library,
    expecting: Mutex<()>,
}

impl fmt::Debug for Simulator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulator").field("library", &self.library).finish_non_exhaustive()
    }
}

/// While it lives, reports are counted and do nothing else. One at a time in a process.
#[derive(Debug)]
pub struct ExpectedReports<'a> {
    simulator: &'a Simulator,
    _alone: MutexGuard<'a, ()>,
}

impl Simulator {
    /// The simulated driver, if the loader finds one in place of NVIDIA's.
    #[must_use]
    pub fn loaded() -> Option<&'static Self> {
        static SIMULATOR: OnceLock<Option<Simulator>> = OnceLock::new();
        let open = || {
            // SAFETY: the driver's initialisers have no requirements; it is the library that the tests load
            // anyway.
            let library = unsafe { Library::new("libcuda.so.1") }.ok()?;
            // SAFETY: the symbol is only looked up, to distinguish a simulator from a driver.
            unsafe { library.get::<*const ()>(b"simulator_hold\0") }.ok()?;
            Some(Self { library, expecting: Mutex::new(()) })
        };
        SIMULATOR.get_or_init(open).as_ref()
    }

    /// As [`loaded`](Self::loaded), for a test that nothing else serves: without the simulated driver it is
    /// skipped, with a line that says so.
    ///
    /// # Panics
    /// Where `VRAMPOOL_REQUIRE`, a list separated by commas, names `cuda-simulator`.
    #[must_use]
    pub fn or_skip() -> Option<&'static Self> {
        let simulator = Self::loaded();
        if simulator.is_none() {
            let required = std::env::var("VRAMPOOL_REQUIRE").unwrap_or_default();
            let is_required = required.split(',').any(|name| name == "cuda-simulator");
            assert!(!is_required, "VRAMPOOL_REQUIRE names cuda-simulator, which is not loaded");
            eprintln!(
                "skipped: the simulated CUDA driver is not loaded (backends/cuda/simulator/run.sh loads it)"
            );
        }
        simulator
    }

    /// Holds a stream: nothing of it runs from now on. `stream` is the driver's handle.
    pub fn hold(&self, stream: usize) {
        self.number("simulator_hold", stream);
    }

    /// Lets a stream that was held go on.
    pub fn release(&self, stream: usize) {
        self.number("simulator_release", stream);
    }

    /// Has the call after the next `skip` calls that can fail return `code`; code 0 takes that back.
    pub fn fail_next(&self, skip: u64, code: i32) {
        let name = b"simulator_fail_next\0";
        // SAFETY: the simulator exports this function with this type.
        let function = unsafe { self.library.get::<unsafe extern "C" fn(u64, c_int) -> c_int>(name) };
        if let Ok(function) = function {
            // SAFETY: as above; it takes numbers.
            unsafe { function(skip, code) };
        }
    }

    /// Has the `nth` call of `function` from now on, from 1, return `code`.
    ///
    /// # Errors
    /// For a name with a zero in it.
    pub fn fail(&self, function: &str, nth: u64, code: i32) -> Result<(), std::ffi::NulError> {
        let text = CString::new(function)?;
        let name = b"simulator_fail\0";
        // SAFETY: the simulator exports this function with this type.
        let set =
            unsafe { self.library.get::<unsafe extern "C" fn(*const c_char, u64, c_int) -> c_int>(name) };
        if let Ok(set) = set {
            // SAFETY: as above; the text ends with a zero and lives here.
            unsafe { set(text.as_ptr(), nth, code) };
        }
        Ok(())
    }

    /// The function that the last [`fail_next`](Self::fail_next) made fail; empty if none was called.
    #[must_use]
    pub fn failed(&self) -> String {
        let mut text = vec![0u8; 128];
        let name = b"simulator_failed\0";
        // SAFETY: the simulator exports this function with this type.
        let function = unsafe { self.library.get::<unsafe extern "C" fn(*mut c_char, c_int) -> c_int>(name) };
        if let Ok(function) = function {
            // SAFETY: as above; it writes at most the number of bytes that it is passed.
            unsafe { function(text.as_mut_ptr().cast(), text.len() as c_int) };
        }
        to_text(&text)
    }

    /// Calls so far that can be made to fail.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.count("simulator_calls")
    }

    /// Calls of `function` so far.
    ///
    /// # Errors
    /// For a name with a zero in it.
    pub fn calls_of(&self, function: &str) -> Result<u64, std::ffi::NulError> {
        let (text, mut count) = (CString::new(function)?, 0);
        let name = b"simulator_calls_of\0";
        // SAFETY: the simulator exports this function with this type.
        let ask = unsafe { self.library.get::<unsafe extern "C" fn(*const c_char, *mut u64) -> c_int>(name) };
        if let Ok(ask) = ask {
            // SAFETY: as above; the text ends with a zero, and it and the number live here.
            unsafe { ask(text.as_ptr(), &raw mut count) };
        }
        Ok(count)
    }

    /// Waits of streams for events so far.
    #[must_use]
    pub fn waits(&self) -> u64 {
        self.count("simulator_waits")
    }

    /// Has the `nth` wait for an event from now on, from 1, do nothing; 0 takes that back.
    pub fn ignore_wait(&self, nth: u64) {
        self.number("simulator_ignore_wait", nth as usize);
    }

    /// Holds each operation up by a random time of at most so many microseconds.
    pub fn set_lag(&self, microseconds: u64) {
        self.number("simulator_set_lag", microseconds as usize);
    }

    /// Sets the granularity of virtual memory, bytes: a power of two. Before the first device is opened.
    pub fn set_granularity(&self, bytes: u64) {
        self.number("simulator_set_granularity", bytes as usize);
    }

    /// The number of reports so far, and the first one.
    #[must_use]
    pub fn reports(&self) -> (u64, String) {
        self.lines("simulator_reports")
    }

    /// Forgets the reports so far.
    pub fn clear_reports(&self) {
        self.call("simulator_clear_reports");
    }

    /// Has reports counted only, until the result is dropped. Waits for other threads that do the same.
    #[must_use]
    pub fn expect_reports(&self) -> ExpectedReports<'_> {
        let alone = self.expecting.lock().unwrap_or_else(PoisonError::into_inner);
        self.call("simulator_expect_reports");
        ExpectedReports { simulator: self, _alone: alone }
    }

    /// Objects that were not released, a line for each kind.
    #[must_use]
    pub fn leaks(&self) -> Vec<String> {
        let (count, text) = self.lines("simulator_leaks");
        if count == 0 { Vec::new() } else { text.lines().map(str::to_owned).collect() }
    }

    fn call(&self, name: &str) {
        let symbol = format!("{name}\0");
        // SAFETY: the callers name functions that the simulator exports with this type.
        let function = unsafe { self.library.get::<unsafe extern "C" fn() -> c_int>(symbol.as_bytes()) };
        if let Ok(function) = function {
            // SAFETY: as above.
            unsafe { function() };
        }
    }

    fn number(&self, name: &str, number: usize) {
        let symbol = format!("{name}\0");
        // SAFETY: the callers name functions that the simulator exports with this type.
        let function = unsafe { self.library.get::<unsafe extern "C" fn(usize) -> c_int>(symbol.as_bytes()) };
        if let Ok(function) = function {
            // SAFETY: as above; it takes a number.
            unsafe { function(number) };
        }
    }

    fn count(&self, name: &str) -> u64 {
        let (mut count, symbol) = (0, format!("{name}\0"));
        // SAFETY: the callers name functions that the simulator exports with this type.
        let function =
            unsafe { self.library.get::<unsafe extern "C" fn(*mut u64) -> c_int>(symbol.as_bytes()) };
        if let Ok(function) = function {
            // SAFETY: as above; it writes one number, which lives here.
            unsafe { function(&raw mut count) };
        }
        count
    }

    fn lines(&self, name: &str) -> (u64, String) {
        let (mut count, mut text) = (0, vec![0u8; 1 << 16]);
        let symbol = format!("{name}\0");
        // SAFETY: the callers name functions that the simulator exports with this type.
        let function = unsafe {
            self.library.get::<unsafe extern "C" fn(*mut u64, *mut c_char, c_int) -> c_int>(symbol.as_bytes())
        };
        if let Ok(function) = function {
            let room = text.len() as c_int;
            // SAFETY: as above; it writes one number, and at most the number of bytes that it is passed.
            unsafe { function(&raw mut count, text.as_mut_ptr().cast(), room) };
        }
        (count, to_text(&text))
    }
}

impl ExpectedReports<'_> {
    /// Ends the time in which reports are expected, and returns their number.
    #[must_use]
    pub fn end(self) -> u64 {
        self.simulator.count("simulator_expected_reports")
    }
}

impl Drop for ExpectedReports<'_> {
    fn drop(&mut self) {
        let _ = self.simulator.count("simulator_expected_reports");
    }
}

fn to_text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}
