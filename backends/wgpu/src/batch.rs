//! Commands that are submitted together, and the outcome of their submission.

use std::sync::OnceLock;
use vrampool_backend::BackendError;

/// Commands that go to the queue together, and what became of them.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// The number of the submission.
    outcome: OnceLock<Result<u64, BackendError>>,
}

impl Batch {
    /// The number of its submission, or the reason of its refusal. `None` before it is submitted.
    pub(crate) fn outcome(&self) -> Option<Result<u64, BackendError>> {
        self.outcome.get().cloned()
    }

    pub(crate) fn set_outcome(&self, outcome: Result<u64, BackendError>) {
        let _ = self.outcome.set(outcome);
    }
}
