//! The limit on memory that a reader uses, checked before each allocation.

use crate::error::TraceFault;
use std::collections::HashMap;
use std::hash::Hash;

/// Bytes that reading a snapshot may take: for what surrounds its events, and for each event that it may
/// have.
pub(super) const MEMORY: u64 = 64 << 20;
pub(super) const MEMORY_PER_EVENT: u64 = 512;

/// Bytes that a small file may take.
const BASE: u64 = 1 << 20;

/// How many times its own length a larger one may take. PyTorch's snapshots take up to 16 times theirs, those that
/// this crate writes up to 12 times.
const RATIO: u64 = 32;

/// Bytes that are taken, of those that may be. Both copies of a container that grows count while it grows.
#[derive(Debug)]
pub(super) struct Budget {
    pub(super) taken: u64,
    max: u64,
    /// Bytes of input so far; `None` where the input's length does not matter.
    pub(super) read: Option<u64>,
}

impl Budget {
    pub(super) fn new(max: u64) -> Self {
        Self { taken: 0, max, read: None }
    }

    /// Makes room for `more` items. The vector grows by half.
    pub(super) fn room<T>(&mut self, items: &mut Vec<T>, more: usize) -> Result<(), TraceFault> {
        let (len, capacity) = (items.len(), items.capacity());
        if more <= capacity - len {
            return Ok(());
        }
        let wanted = len.saturating_add(more).max(capacity.saturating_add(capacity / 2));
        let bytes = |items: usize| (items as u64).saturating_mul(size_of::<T>() as u64);
        // What is there stays until it is copied.
        self.check(bytes(wanted))?;
        items.try_reserve_exact(wanted - len).map_err(|_| TraceFault::OutOfMemory(bytes(wanted)))?;
        self.taken += bytes(items.capacity()) - bytes(capacity);
        Ok(())
    }

    /// Makes room for one more key. The map doubles.
    pub(super) fn room_in_map<K: Eq + Hash, V>(&mut self, map: &mut HashMap<K, V>) -> Result<(), TraceFault> {
        let (len, capacity) = (map.len(), map.capacity());
        if len < capacity {
            return Ok(());
        }
        let bytes = map_bytes::<K, V>(2 * capacity.max(8));
        self.check(bytes)?;
        map.try_reserve(capacity.max(8)).map_err(|_| TraceFault::OutOfMemory(bytes))?;
        self.taken += map_bytes::<K, V>(map.capacity()) - map_bytes::<K, V>(capacity);
        Ok(())
    }

    /// Uncounts a vector that is dropped.
    pub(super) fn dropped<T>(&mut self, items: &Vec<T>) {
        self.taken -= (items.capacity() * size_of::<T>()) as u64;
    }

    /// Uncounts a map that is dropped.
    pub(super) fn dropped_map<K, V>(&mut self, map: &HashMap<K, V>) {
        self.taken -= map_bytes::<K, V>(map.capacity());
    }

    fn check(&self, more: u64) -> Result<(), TraceFault> {
        let needed = self.taken.saturating_add(more);
        match self.read {
            _ if needed > self.max => Err(TraceFault::TooMuchData(self.max)),
            Some(read) if needed > BASE.saturating_add(RATIO.saturating_mul(read)) => {
                Err(TraceFault::Exploding { read, max: BASE + RATIO * read })
            }
            _ => Ok(()),
        }
    }
}

/// Bytes of a map with room for so many keys: a power of two of places, of which an eighth stays empty, with
/// a byte each.
fn map_bytes<K, V>(capacity: usize) -> u64 {
    if capacity == 0 {
        return 0;
    }
    let places = (capacity as u64).saturating_mul(8).div_ceil(7).next_power_of_two();
    places.saturating_mul(size_of::<(K, V)>() as u64 + 1) + 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_refused_before_it_is_taken() {
        let mut budget = Budget::new(100);
        let mut items: Vec<u64> = Vec::new();
        budget.room(&mut items, 8).expect("64 bytes");
        assert_eq!((items.capacity(), budget.taken), (8, 64));
        items.extend([0; 8]);
        // 12 more beside the old 8, while they are copied.
        assert!(matches!(budget.room(&mut items, 1), Err(TraceFault::TooMuchData(100))));
        assert_eq!((items.capacity(), budget.taken), (8, 64));
        budget.dropped(&items);
        assert_eq!(budget.taken, 0);
    }

    #[test]
    fn a_short_input_has_little_room() {
        let mut budget = Budget::new(u64::MAX);
        budget.read = Some(100);
        let mut items: Vec<u8> = Vec::new();
        budget.room(&mut items, BASE as usize).expect("that much");
        assert!(matches!(
            budget.room(&mut items, (BASE + 1) as usize),
            Err(TraceFault::Exploding { read: 100, .. })
        ));
        let mut map = HashMap::<u64, u64>::new();
        let mut budget = Budget::new(1000);
        let outcome = (0..1000).try_for_each(|key| {
            budget.room_in_map(&mut map)?;
            map.insert(key, key);
            Ok::<_, TraceFault>(())
        });
        assert!(outcome.is_err() && map.len() > 10 && map_bytes::<u64, u64>(map.capacity()) <= 1000);
    }
}
