//! Points in streams.

use crate::driver::RawEvent;
use vrampool_backend::{BackendError, Event, fork};

/// A point in an [`OpenClStream`](crate::OpenClStream).
#[derive(Debug)]
pub struct OpenClEvent {
    pub(crate) raw: RawEvent,
}

impl Event for OpenClEvent {
    fn is_complete(&self) -> Result<bool, BackendError> {
        fork::check()?;
        self.raw.is_complete()
    }
}
