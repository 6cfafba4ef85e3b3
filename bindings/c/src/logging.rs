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
use parking_lot::Mutex;
use std::cell::Cell;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender};
use std::thread::{self, JoinHandle};
use std::{mem, ptr};

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
    /// Begins with the first line.
    delivery: Option<Delivery>,
}

/// The thread that calls the callback, and the queue before it.
#[derive(Debug)]
struct Delivery {
    queue: SyncSender<Line>,
    thread: JoinHandle<()>,
}

/// What is logged in this process.
#[derive(Debug, Default)]
struct Lines {
    state: Mutex<State>,
    /// Lines that found the queue full.
    lost: AtomicU64,
    /// Held while a callback takes another's place.
    changing: Mutex<()>,
}

thread_local! {
    /// The address of the [`Lines`] that this thread delivers. In a forked child they are others.
    static DELIVERED: Cell<usize> = const { Cell::new(0) };
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
    let filter = usize::try_from(level).ok().and_then(|level| LevelFilter::iter().nth(level));
    let filter = filter
        .ok_or_else(|| Failure::invalid("level", &format!("{level} is not one of 0 (none) to 5 (trace)")))?;
    // What the callback before waits for may wait for the copy.
    check_no_callback()?;
    let of_process = LINES.get();
    let lines = &of_process.1;
    if DELIVERED.get() == ptr::from_ref(lines).addr() {
        return Err(Failure::new(
            Status::BUSY,
            "a log callback cannot replace the log callback; replace it outside of callbacks",
        ));
    }
    let _alone = lines.changing.lock();
    if !is_logger() {
        return Err(Failure::new(Status::UNSUPPORTED, "another logger is installed in this process"));
    }
    let previous = mem::take(&mut *lines.state.lock());
    if let Some(Delivery { queue, thread }) = previous.delivery {
        // The thread ends once it has delivered what is queued. A callback that panics has ended the process before.
        drop(queue);
        let _ = thread.join();
    }
    lines.lost.store(0, Ordering::Relaxed);
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
        let Some(sink) = state.sink else { return };
        if state.delivery.is_none() {
            state.delivery = deliver(Arc::clone(&of_process), sink);
        }
        if state.delivery.as_ref().is_none_or(|delivery| delivery.queue.try_send(line).is_err()) {
            // Relaxed: a count.
            of_process.1.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {}
}

/// Begins a thread that calls the callback with each line of a queue; `None` if there can be none.
fn deliver(of_process: Arc<(u64, Lines)>, sink: Sink) -> Option<Delivery> {
    let (queue, lines) = mpsc::sync_channel(MOST_LINES);
    let work = move || {
        let own = &of_process.1;
        DELIVERED.set(ptr::from_ref(own).addr());
        for line in lines {
            let lost = own.lost.swap(0, Ordering::Relaxed);
            call(sink, &line);
            if lost > 0 {
                let text = format!("{lost} lines were dropped, because {MOST_LINES} were pending");
                let (level, target) = (Level::Warn, c"vrampool".to_owned());
                call(sink, &Line { level, target, text: CString::new(text).unwrap_or_default() });
            }
        }
    };
    let thread = thread::Builder::new().name("vrampool log".into()).spawn(work).ok()?;
    Some(Delivery { queue, thread })
}

fn call(sink: Sink, line: &Line) {
    (sink.callback)(sink.user as *mut c_void, line.level as c_int, line.target.as_ptr(), line.text.as_ptr());
}
