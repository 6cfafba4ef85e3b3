//! Defers a device's panic until the accounts are consistent.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use vrampool_backend::BackendError;

/// A caught panic, if any, to be resumed.
#[derive(Debug)]
#[must_use = "a panic goes on once the books are right"]
pub(super) struct Caught(Option<Box<dyn Any + Send>>);

/// Makes device calls. A panic counts as a failure until it is [resumed](Caught::go_on).
pub(super) fn caught<T, E: From<BackendError>>(
    calls: impl FnOnce() -> Result<T, E>,
) -> (Result<T, E>, Caught) {
    match catch_unwind(AssertUnwindSafe(calls)) {
        Ok(done) => (done, Caught(None)),
        Err(panic) => (Err(BackendError::unsupported("a call that panics").into()), Caught(Some(panic))),
    }
}

impl Caught {
    pub(super) const NONE: Self = Self(None);

    pub(super) fn is_any(&self) -> bool {
        self.0.is_some()
    }

    /// The earlier of two panics.
    pub(super) fn or(self, later: Self) -> Self {
        Self(self.0.or(later.0))
    }

    /// Resumes the panic, unless this thread already unwinds: a second panic would abort the process.
    pub(super) fn go_on(self) {
        if let Some(panic) = self.0
            && !thread::panicking()
        {
            resume_unwind(panic);
        }
    }
}
