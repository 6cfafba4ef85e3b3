//! What vrampool logs, for C.
//!
//! Lines are logged while locks of vrampool's are held, and by threads that may hold others' (Python's,
//! PyTorch's). So a callback is called by a thread of its own, which begins with the first line and holds
//! nothing: what the callback waits for may wait for vrampool. Lines wait for it in a queue of bounded
//! length; those that find it full are counted, and the count is logged.

use crate::failure::{Failure, Status};
use crate::fork;
use log::{Level, LevelFilter, Log, Metadata, Record};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::OnceLock;
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

#[derive(Debug)]
struct State {
    sink: Option<Sink>,
    lines: VecDeque<Line>,
    lost: u64,
    /// The thread that calls it, and in which process of a line of forks.
    teller: Option<(JoinHandle<()>, u64)>,
    ends: bool,
}

static STATE: Mutex<State> =
    Mutex::new(State { sink: None, lines: VecDeque::new(), lost: 0, teller: None, ends: false });

/// A line came, or the thread is to end.
static CHANGED: Condvar = Condvar::new();

/// Held while a callback takes another's place.
static CHANGING: Mutex<()> = Mutex::new(());

/// The thread that calls the callback.
static TELLER: Mutex<Option<ThreadId>> = Mutex::new(None);

/// Calls `callback` with all lines up to `level` from now on, or nobody. Returns when the one before is
/// called no more; what it has not heard yet it hears first.
pub(crate) fn set(callback: Option<LogCallback>, level: c_int, user: *mut c_void) -> Result<(), Failure> {
    let filter = match level {
        0 => LevelFilter::Off,
        1 => LevelFilter::Error,
        2 => LevelFilter::Warn,
        3 => LevelFilter::Info,
        4 => LevelFilter::Debug,
        5 => LevelFilter::Trace,
        _ => return Err(Failure::invalid("level", &format!("{level} is not one of 0 (none) to 5 (trace)"))),
    };
    if *TELLER.lock() == Some(std::thread::current().id()) {
        return Err(Failure::new(
            Status::BUSY,
            "a log callback cannot replace the log callback; replace it outside of callbacks",
        ));
    }
    fork::watch();
    if !is_logger() {
        return Err(Failure::new(Status::UNSUPPORTED, "another logger is installed in this process"));
    }
    let _alone = CHANGING.lock();
    end_teller();
    let mut state = STATE.lock();
    state.sink = callback.map(|callback| Sink { callback, user: user as usize });
    log::set_max_level(if state.sink.is_some() { filter } else { LevelFilter::Off });
    Ok(())
}

fn is_logger() -> bool {
    static IS_LOGGER: OnceLock<bool> = OnceLock::new();
    *IS_LOGGER.get_or_init(|| log::set_logger(&Logger).is_ok())
}

/// Ends the thread, after it has told all that waits.
fn end_teller() {
    let teller = {
        let mut state = STATE.lock();
        state.ends = true;
        state.teller.take()
    };
    CHANGED.notify_all();
    match teller {
        Some((teller, generation)) if generation == fork::generation() => {
            // A callback that panics ends it, and has ended the process before.
            let _ = teller.join();
        }
        // The parent's.
        Some((teller, _)) => std::mem::forget(teller),
        None => {}
    }
    let mut state = STATE.lock();
    state.ends = false;
    state.lines.clear();
    state.lost = 0;
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
        let mut state = STATE.lock();
        if state.sink.is_none() || state.ends {
            return;
        }
        if state.lines.len() >= MOST_LINES {
            state.lost += 1;
            return;
        }
        state.lines.push_back(line);
        if state.teller.as_ref().is_none_or(|(_, generation)| *generation != fork::generation()) {
            let began = std::thread::Builder::new().name("vrampool log".into()).spawn(tell);
            if let Some((parents, _)) =
                std::mem::replace(&mut state.teller, began.ok().map(|teller| (teller, fork::generation())))
            {
                std::mem::forget(parents);
            }
        }
        drop(state);
        CHANGED.notify_all();
    }

    fn flush(&self) {}
}

/// What the thread does.
fn tell() {
    *TELLER.lock() = Some(std::thread::current().id());
    loop {
        let mut state = STATE.lock();
        while state.lines.is_empty() && !state.ends {
            CHANGED.wait(&mut state);
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
    *TELLER.lock() = None;
}

fn call(sink: Sink, line: &Line) {
    (sink.callback)(sink.user as *mut c_void, line.level as c_int, line.target.as_ptr(), line.text.as_ptr());
}
