//! Callbacks after a reset of an arena.

use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

/// A callback after a reset; returns whether to keep it registered.
type Told = Arc<dyn Fn() -> bool + Send + Sync>;

/// Callbacks of the pools that keep idle blocks of an arena.
#[derive(Default)]
pub(super) struct ResetCallbacks(Mutex<Vec<Told>>);

impl ResetCallbacks {
    pub(super) fn tell(&self, told: impl Fn() -> bool + Send + Sync + 'static) {
        self.0.lock().push(Arc::new(told));
    }

    /// Calls all callbacks after a reset. Requires that no lock is held, because destructors run.
    pub(super) fn notify(&self) {
        let all: Vec<Told> = self.0.lock().clone();
        let gone: Vec<Told> = all.into_iter().filter(|told| !told()).collect();
        self.0.lock().retain(|told| !gone.iter().any(|gone| Arc::ptr_eq(gone, told)));
    }
}

impl fmt::Debug for ResetCallbacks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResetCallbacks").field("told", &self.0.lock().len()).finish()
    }
}
