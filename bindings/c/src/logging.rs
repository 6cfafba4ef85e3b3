//! What vrampool logs, for C.
//!
//! Lines are logged while locks of vrampool's are held, and by threads that may hold others' (Python's,
//! PyTorch's). So a callback is called by a thread of its own, which begins with the first line and holds
//! nothing: what the callback waits for may wait for vrampool. Lines wait for it in a queue of bounded
//! length; those that find it full are counted, and the count is logged.

use crate::boundary::{exports, guard_anywhere};
use crate::failure::{Failure, Status, check_no_callback};
use crate::fork::OfProcess;
use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{JoinHandle, ThreadId};

/// Called with each line: level, the part of vrampool, text.
pub type LogCallback = extern "C" fn(*mut c_void, c_int, *const c_char, *const c_char);

/// How many lines wait at most.
const MOST_LINES: usize = 1024;

/// Gets all that is logged in this library.
struct Logger;

#[derive(Debug, Clone, Copy)]
struct Sink {
    callback: LogCallback,
    /// Theirs, as a number: nothing here looks behind it.
    user: usize,
}

#[derive(Debug)]
struct Line {
    level: Level,
    target: CString,
    text: CString,
}

#[derive(Debug, Default)]
struct State {
    sink: Option<Sink>,
    lines: VecDeque<Line>,
    lost: u64,
    /// The thread that calls it.
    teller: Option<JoinHandle<()>>,
    ends: bool,
}

/// What is logged in this process.
#[derive(Debug, Default)]
struct Lines {
    state: Mutex<State>,
    /// A line came, or the thread is to end.
    changed: Condvar,
    /// Held while a callback takes another's place.
    changing: Mutex<()>,
    /// The thread that calls the callback.
    teller: Mutex<Option<ThreadId>>,
}

static LINES: OfProcess<Lines> = OfProcess::new();

exports! {
    extern "C" fn vrampool_set_log_callback(
        callback: Option<LogCallback>,
        level: c_int,
        user: *mut c_void,
    ) -> Status {
        guard_anywhere(|| set(callback, level, user))
    }
}

/// Sets or unsets the callback for all lines up to `level`. Returns when the previous one is no longer called; it is
/// called with all lines before first.
fn set(callback: Option<LogCallback>, level: c_int, user: *mut c_void) -> Result<(), Failure> {
    let filter = match level {
        0 => LevelFilter::Off,
        1 => LevelFilter::Error,
        2 => LevelFilter::Warn,
        3 => LevelFilter::Info,
        4 => LevelFilter::Debug,
        5 => LevelFilter::Trace,
        _ => return Err(Failure::invalid("level", &format!("{level} is not one of 0 (none) to 5 (trace)"))),
    };
    // What the callback before waits for may wait for the copy.
    check_no_callback()?;
    let of_process = LINES.get();
    let lines = &of_process.1;
    if *lines.teller.lock() == Some(std::thread::current().id()) {
        return Err(Failure::new(
            Status::BUSY,
            "a log callback cannot replace the log callback; replace it outside of callbacks",
        ));
    }
    let _alone = lines.changing.lock();
    if !is_logger() {
        return Err(Failure::new(Status::UNSUPPORTED, "another logger is installed in this process"));
    }
    lines.end_teller();
    let mut state = lines.state.lock();
    state.sink = callback.map(|callback| Sink { callback, user: user as usize });
    log::set_max_level(if state.sink.is_some() { filter } else { LevelFilter::Off });
    Ok(())
}

/// Whether lines come to this library, which is arranged by the first call. One call at a time.
fn is_logger() -> bool {
    static IS_LOGGER: AtomicBool = AtomicBool::new(false);
    // Relaxed: calls are in order.
    if !IS_LOGGER.load(Ordering::Relaxed) && log::set_logger(&Logger).is_ok() {
        IS_LOGGER.store(true, Ordering::Relaxed);
    }
    IS_LOGGER.load(Ordering::Relaxed)
}

impl Lines {
    /// Ends the thread, after it has delivered all pending lines.
    fn end_teller(&self) {
        let teller = {
            let mut state = self.state.lock();
            state.ends = true;
            state.teller.take()
        };
        self.changed.notify_all();
        // A callback that panics ends it, and has ended the process before.
        let _ = teller.map(JoinHandle::join);
        let mut state = self.state.lock();
        state.ends = false;
        state.lines.clear();
        state.lost = 0;
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.level() <= log::max_level()
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let text = |text: &str| CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
        let line = Line {
            level: record.level(),
            target: text(record.target()),
            text: text(&record.args().to_string()),
        };
        let of_process = LINES.get();
        let mut state = of_process.1.state.lock();
        if state.sink.is_none() || state.ends {
            return;
        }
        if state.lines.len() >= MOST_LINES {
            state.lost += 1;
            return;
        }
        state.lines.push_back(line);
        if state.teller.is_none() {
            let own = Arc::clone(&of_process);
            state.teller =
                std::thread::Builder::new().name("vrampool log".into()).spawn(move || deliver(&own.1)).ok();
        }
        drop(state);
        of_process.1.changed.notify_all();
    }

    fn flush(&self) {}
}

/// The work of the thread.
fn deliver(lines: &Lines) {
    *lines.teller.lock() = Some(std::thread::current().id());
    loop {
        let mut state = lines.state.lock();
        while state.lines.is_empty() && !state.ends {
            lines.changed.wait(&mut state);
        }
        let lost = std::mem::take(&mut state.lost);
        let (Some(line), Some(sink)) = (state.lines.pop_front(), state.sink) else { break };
        drop(state);
        call(sink, &line);
        if lost > 0 {
            let text = CString::new(format!("{lost} lines were dropped, because {MOST_LINES} were pending"));
            let (level, target) = (Level::Warn, c"vrampool".to_owned());
            call(sink, &Line { level, target, text: text.unwrap_or_default() });
        }
    }
    *lines.teller.lock() = None;
}

fn call(sink: Sink, line: &Line) {
    (sink.callback)(sink.user as *mut c_void, line.level as c_int, line.target.as_ptr(), line.text.as_ptr());
}
