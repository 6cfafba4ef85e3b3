//! The threads that do the work of streams.

use crate::shared::DeviceCore;
use crossbeam_channel::Receiver;
use parking_lot::{Condvar, Mutex};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_backend::{BackendError, StreamId};

thread_local! {
    /// The stream whose worker this thread is.
    static WORKER_OF: Cell<Option<StreamId>> = const { Cell::new(None) };
}

/// Whether the caller runs on a stream, where waiting for a stream could be waiting for itself.
pub(crate) fn on_a_stream() -> bool {
    WORKER_OF.with(|worker| worker.get().is_some())
}

/// Whether the caller runs on this stream.
pub(crate) fn is_worker_of(stream: StreamId) -> bool {
    WORKER_OF.with(Cell::get) == Some(stream)
}

/// A piece of work.
pub(crate) type Run = dyn FnOnce(&DeviceCore) -> Result<(), BackendError> + Send;

/// An entry of a stream's queue.
pub(crate) enum Work {
    Run(Box<Run>),
    Signal(Arc<Flag>),
    /// As `Signal`, for a wait on the host: when it is reached, the stream is idle.
    Synchronize(Arc<Flag>),
    Wait(Arc<Flag>),
}

/// Whether a point in a stream is reached.
#[derive(Debug, Default)]
pub(crate) struct Flag {
    outcome: Mutex<Option<Outcome>>,
    changed: Condvar,
}

/// The result of the work before a point.
pub(crate) type Outcome = Result<(), BackendError>;

impl Flag {
    pub(crate) fn reached(outcome: Outcome) -> Self {
        Self { outcome: Mutex::new(Some(outcome)), changed: Condvar::new() }
    }

    pub(crate) fn outcome(&self) -> Option<Outcome> {
        self.outcome.lock().clone()
    }

    fn set(&self, outcome: Outcome) {
        *self.outcome.lock() = Some(outcome);
        self.changed.notify_all();
    }

    pub(crate) fn wait(&self) -> Outcome {
        let mut outcome = self.outcome.lock();
        loop {
            match &*outcome {
                Some(outcome) => return outcome.clone(),
                None => self.changed.wait(&mut outcome),
            }
        }
    }
}

/// The first failure of a stream's work, which is the stream's from then on.
#[derive(Debug, Default)]
pub(crate) struct Failure(Mutex<Option<BackendError>>);

impl Failure {
    pub(crate) fn check(&self) -> Outcome {
        self.0.lock().clone().map_or(Ok(()), Err)
    }

    fn set(&self, reason: impl FnOnce() -> String) {
        self.0.lock().get_or_insert_with(|| BackendError::stream_failed(reason()));
    }
}

/// The thread of a stream.
pub(crate) struct Worker {
    pub(crate) id: StreamId,
    pub(crate) work: Receiver<Work>,
    pub(crate) pending: Arc<AtomicU64>,
    pub(crate) failure: Arc<Failure>,
    pub(crate) device: Arc<DeviceCore>,
}

impl Worker {
    pub(crate) fn run(self) {
        WORKER_OF.with(|worker| worker.set(Some(self.id)));
        for work in &self.work {
            match work {
                Work::Run(run) => self.run_one(run),
                Work::Signal(flag) => flag.set(self.failure.check()),
                Work::Synchronize(flag) => {
                    self.pending.fetch_sub(1, Ordering::Release);
                    flag.set(self.failure.check());
                    continue;
                }
                Work::Wait(flag) => {
                    if let Err(error) = flag.wait() {
                        self.failure.set(|| match error {
                            BackendError::StreamFailed { reason, .. } => {
                                format!("it waited for a stream that had failed: {reason}")
                            }
                            other => other.to_string(),
                        });
                    }
                }
            }
            self.pending.fetch_sub(1, Ordering::Release);
        }
    }

    /// Runs a piece of work. Whatever it throws ends here: this thread must go on, or the code that waits for it
    /// waits for ever.
    fn run_one(&self, run: Box<Run>) {
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            // A lost device does no work, and neither does a stream that failed, but points in them are still
            // reached.
            if self.device.faults.is_lost() || self.failure.check().is_err() {
                return Ok(());
            }
            self.device.pause_before_work();
            run(&self.device)
        }));
        let panic = match outcome {
            Ok(Ok(())) => return,
            Ok(Err(failure)) => {
                return self.failure.set(|| failure.to_string());
            }
            Err(panic) => panic,
        };
        self.failure.set(|| format!("a kernel panicked: {}", message_of(&*panic)));
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(panic))) {
            // The destructor of the payload panicked, so that payload is forgotten, too.
            std::mem::forget(panic);
        }
    }
}

fn message_of(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".into())
}
