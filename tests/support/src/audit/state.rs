//! Counters of an audited device, and the faults that it injects.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use vrampool_backend::{CaptureId, StreamId};

/// Counters and faults.
#[derive(Default)]
pub(super) struct State {
    /// Bytes taken now, and their peak.
    pub(super) taken: AtomicU64,
    pub(super) peak: AtomicU64,
    pub(super) allocations: AtomicU64,
    pub(super) frees: AtomicU64,
    /// Whether every stream is reported as captured.
    pub(super) capturing: AtomicBool,
    /// Streams that are reported as captured, each with its capture, and the number of calls that a capture
    /// forbids.
    pub(super) captured: Mutex<HashMap<StreamId, CaptureId>>,
    pub(super) captures: AtomicU64,
    pub(super) forbidden: AtomicU64,
    /// Whether waits between streams are skipped.
    pub(super) without_waits: AtomicBool,
    pub(super) on_drop: Hook,
    pub(super) before_drop: Hook,
    pub(super) before_capture_query: Hook,
    pub(super) before_record: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    /// A call that panics, and the number of such calls before that.
    pub(super) panics: Mutex<Option<(&'static str, u64)>>,
}

pub(super) type Hook = Mutex<Option<Box<dyn Fn() + Send>>>;

impl State {
    /// Removes the hook while it runs, so that a hook that releases memory does not call itself.
    pub(super) fn run(&self, place: &Hook) {
        let hook = place.lock().expect("no panic under it").take();
        if let Some(hook) = hook {
            hook();
            *place.lock().expect("no panic under it") = Some(hook);
        }
    }

    pub(super) fn called(&self, name: &'static str) {
        let mut panics = self.panics.lock().expect("no panic under it");
        match &mut *panics {
            Some((call, 0)) if *call == name => {
                *panics = None;
                drop(panics);
                panic!("{name} panics");
            }
            Some((call, left)) if *call == name => *left -= 1,
            _ => {}
        }
    }
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("taken", &self.taken).field("peak", &self.peak).finish_non_exhaustive()
    }
}

/// Bytes that count as taken until the ticket is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) bytes: u64,
    pub(super) state: Arc<State>,
}

/// Calls the hook before memory is released.
#[derive(Debug)]
pub(super) struct Leaving(pub(super) Arc<State>);

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.run(&self.0.before_drop);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.state.taken.fetch_sub(self.bytes, Ordering::SeqCst);
        self.state.frees.fetch_add(1, Ordering::SeqCst);
        self.state.called("drop");
        self.state.run(&self.state.on_drop);
    }
}
