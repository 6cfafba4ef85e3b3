//! A bounded wait for regions, which have no way to notify.

use crate::sync::Instant;
use std::thread;
use std::time::Duration;

/// The longest pause between two looks.
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// How long a change waits for regions of blocks to end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    /// Unset if it does not wait.
    deadline: Option<Instant>,
    pause: Duration,
}

impl Patience {
    /// Waits for at most `timeout`, from now on. A timeout past the end of time is an hour.
    pub(super) fn of(timeout: Duration) -> Self {
        let deadline = || {
            let now = Instant::now();
            now.checked_add(timeout).or_else(|| now.checked_add(Duration::from_secs(3600)))
        };
        Self { deadline: (!timeout.is_zero()).then(deadline).flatten(), pause: Duration::from_micros(20) }
    }

    /// Pauses before the next look; false when time is up, and where no other thread could end a region meanwhile.
    pub(super) fn pause(&mut self) -> bool {
        let Some(deadline) = self.deadline.filter(|_| !cfg!(target_family = "wasm")) else { return false };
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        thread::sleep(self.pause.min(left));
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        true
    }
}
