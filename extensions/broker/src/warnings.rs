//! The hook for warnings.

use crate::error::BrokerWarning;
use parking_lot::Mutex;
use std::sync::Arc;
use std::thread::{self, ThreadId};
use vrampool_backend::logging;

pub(super) type WarningHook = Arc<dyn Fn(&BrokerWarning) + Send + Sync>;

/// Logs warnings and calls the hook with them, but not with those that the hook itself causes.
#[derive(Default)]
pub(crate) struct Warnings {
    hook: Option<WarningHook>,
    /// Threads that are in the hook.
    inside: Mutex<Vec<ThreadId>>,
}

/// A call of the hook by this thread.
struct Inside<'a>(&'a Mutex<Vec<ThreadId>>, ThreadId);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.lock().retain(|&thread| thread != self.1);
    }
}

impl Warnings {
    pub(super) fn new(hook: Option<WarningHook>) -> Self {
        Self { hook, ..Self::default() }
    }

    pub(super) fn warn(&self, warning: &BrokerWarning) {
        logging::warn!("broker: {warning}");
        let Some(hook) = &self.hook else { return };
        let this = thread::current().id();
        let mut inside = self.inside.lock();
        // A call of the broker from within the hook would otherwise call the hook without end.
        if inside.contains(&this) {
            return;
        }
        inside.push(this);
        drop(inside);
        let _inside = Inside(&self.inside, this);
        hook(warning);
    }
}
