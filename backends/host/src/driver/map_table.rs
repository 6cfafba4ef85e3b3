//! How many entries of the process's table of mappings reservations take.
//!
//! The system bounds that table, and a process whose table is full can neither start a thread nor free
//! memory. So reservations leave a quarter of it to everything else: beyond that a device is out of memory.

use std::fs;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use vrampool_backend::{BackendError, Scarce};

/// Linux's own default, where the system does not report its bound.
const DEFAULT_BOUND: u64 = 65_530;

/// All reservations of the process.
pub(super) static TABLE: MapTable = MapTable { taken: AtomicU64::new(0), most: OnceLock::new() };

/// Entries that are taken, and the most that may be.
#[derive(Debug)]
pub(super) struct MapTable {
    taken: AtomicU64,
    most: OnceLock<u64>,
}

impl MapTable {
    /// Takes `entries` for memory of `bytes` bytes.
    pub(super) fn take(&self, entries: u64, bytes: u64) -> Result<(), BackendError> {
        let most = *self.most.get_or_init(|| bound() / 4 * 3);
        // Relaxed, here and below: only the number matters.
        let more = |taken: u64| taken.checked_add(entries).filter(|&taken| taken <= most);
        match self.taken.fetch_update(Relaxed, Relaxed, more) {
            Ok(_) => Ok(()),
            Err(_) => Err(BackendError::lacks(bytes, Scarce::Mappings)),
        }
    }

    pub(super) fn give(&self, entries: u64) {
        self.taken.fetch_sub(entries, Relaxed);
    }
}

fn bound() -> u64 {
    let text = fs::read_to_string("/proc/sys/vm/max_map_count");
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(DEFAULT_BOUND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_there_is() {
        let table = MapTable { taken: AtomicU64::new(0), most: OnceLock::from(5) };
        table.take(3, 1).expect("there are five");
        let refused = table.take(3, 4096).expect_err("two are left");
        assert_eq!(refused, BackendError::lacks(4096, Scarce::Mappings));
        table.take(2, 1).expect("two are left");
        table.give(4);
        table.take(4, 1).expect("four came back");
        assert!(table.take(u64::MAX, 1).is_err());
    }
}
