//! A hash table by address: open addressing without tombstones, so that what is put in and taken out at once
//! touches one place. Each table is filled to half at most.

use std::mem;

/// Values by address. 0 is no address.
#[derive(Debug)]
pub(crate) struct Table<V> {
    /// Each with its address, 0 where none is. Their number is a power of two, or 0.
    places: Vec<(u64, V)>,
    len: usize,
}

/// Places of a table that is not empty, at least.
const LEAST: usize = 16;

/// Fibonacci hashing: the upper bits of the product depend on all of the address's.
#[inline(always)]
pub(crate) fn hash(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl<V: Default> Table<V> {
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new(), len: 0 }
    }

    /// The place where the search for an address begins. Not by the highest bits, which may select the table.
    #[inline(always)]
    fn home(&self, address: u64) -> usize {
        (hash(address) >> 36) as usize & self.places.len().wrapping_sub(1)
    }

    #[inline(always)]
    fn after(&self, place: usize) -> usize {
        (place + 1) & self.places.len().wrapping_sub(1)
    }

    /// Returns the place of an address, or the empty one where it would be.
    #[inline(always)]
    fn find(&self, address: u64) -> usize {
        let mut place = self.home(address);
        while let Some((other, _)) = self.places.get(place) {
            if *other == address || *other == 0 {
                break;
            }
            place = self.after(place);
        }
        place
    }

    #[inline(always)]
    pub(crate) fn get(&self, address: u64) -> Option<&V> {
        let (other, value) = self.places.get(self.find(address))?;
        (*other != 0).then_some(value)
    }

    pub(crate) fn get_mut(&mut self, address: u64) -> Option<&mut V> {
        let place = self.find(address);
        let (other, value) = self.places.get_mut(place)?;
        (*other != 0).then_some(value)
    }

    /// Adds the value that `make` returns. Returns false if the address is 0 or has a value already.
    #[inline(always)]
    pub(crate) fn insert(&mut self, address: u64, make: impl FnOnce() -> V) -> bool {
        if 2 * self.len >= self.places.len() {
            self.grow();
        }
        let place = self.find(address);
        match self.places.get_mut(place) {
            Some(free) if free.0 == 0 && address != 0 => {
                *free = (address, make());
                self.len += 1;
                true
            }
            _ => false,
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let places = (2 * self.places.len()).max(LEAST);
        let before = mem::replace(&mut self.places, (0..places).map(|_| (0, V::default())).collect());
        for (address, value) in before.into_iter().filter(|(address, _)| *address != 0) {
            let place = self.find(address);
            self.places[place] = (address, value);
        }
    }

    /// Removes an address if `take` returns what it took out of the value. What it leaves is dropped later.
    #[inline(always)]
    pub(crate) fn take<T>(&mut self, address: u64, take: impl FnOnce(&mut V) -> Option<T>) -> Option<T> {
        let place = self.find(address);
        let (other, value) = self.places.get_mut(place)?;
        if *other == 0 {
            return None;
        }
        let taken = take(value)?;
        *other = 0;
        self.len -= 1;
        if self.places[self.after(place)].0 != 0 {
            self.close(place);
        }
        Some(taken)
    }

    /// Moves later values to a place that became empty, where the search for them would end.
    #[cold]
    #[inline(never)]
    fn close(&mut self, mut empty: usize) {
        let mask = self.places.len() - 1;
        let mut place = self.after(empty);
        while self.places[place].0 != 0 {
            let home = self.home(self.places[place].0);
            // Whether the empty place is between its home and where it is.
            if place.wrapping_sub(empty) & mask <= place.wrapping_sub(home) & mask {
                self.places.swap(empty, place);
                empty = place;
            }
            place = self.after(place);
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        self.places.iter().filter(|(address, _)| *address != 0).map(|(address, value)| (*address, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        /// The naive twin is a map of the standard library. Few addresses, so that many have the same home.
        #[test]
        fn it_has_what_was_put_in_and_not_taken_out(
            steps in prop::collection::vec((0..4u8, 0..64u64), 0..600),
        ) {
            let (mut table, mut twin) = (Table::new(), BTreeMap::new());
            for (number, (step, address)) in steps.into_iter().enumerate() {
                match step {
                    0 | 1 => {
                        let is_new = address != 0 && !twin.contains_key(&address);
                        prop_assert_eq!(table.insert(address, || number), is_new);
                        if is_new {
                            twin.insert(address, number);
                        }
                    }
                    2 => prop_assert_eq!(table.take(address, |value| Some(*value)), twin.remove(&address)),
                    _ => prop_assert_eq!(table.take(address, |_| None::<usize>), None),
                }
                prop_assert_eq!(table.get(address), twin.get(&address));
                prop_assert_eq!(table.get_mut(address).copied(), twin.get(&address).copied());
                let all: BTreeMap<_, _> = table.iter().map(|(address, value)| (address, *value)).collect();
                prop_assert_eq!(&all, &twin);
            }
        }
    }
}
