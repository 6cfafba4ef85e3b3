//! A hash table by address: open addressing without tombstones, so that what is put in and taken out at once
//! touches one place. Each table is filled to half at most.

use std::mem;
use std::num::NonZeroU64;

/// Values by address. 0 is no address.
#[derive(Debug)]
pub(crate) struct Table<V> {
    /// Their number is a power of two, or 0.
    places: Vec<Place<V>>,
    /// The number of values that it takes before it grows.
    room: usize,
}

/// A value with its address, 0 where none is. On a cache line, if it fits.
#[derive(Debug)]
#[repr(align(64))]
struct Place<V>(u64, V);

/// Places of a table that is not empty, at least.
const LEAST: usize = 16;

/// Fibonacci hashing: the upper bits of the product depend on all of the address's.
#[inline(always)]
pub(crate) fn hash(address: u64) -> u64 {
    address.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Where the search for an address begins. Not by the highest bits, which may select the table.
#[inline(always)]
fn home<V>(places: &[Place<V>], address: u64) -> usize {
    (hash(address) >> 36) as usize & places.len().wrapping_sub(1)
}

#[inline(always)]
fn after<V>(places: &[Place<V>], place: usize) -> usize {
    (place + 1) & places.len().wrapping_sub(1)
}

/// Returns the place of an address; as the error the empty place for it, or no place of a table without places.
#[inline(always)]
fn find<V>(places: &[Place<V>], address: u64) -> Result<usize, usize> {
    let mut place = home(places, address);
    loop {
        match places.get(place) {
            None | Some(Place(0, _)) => return Err(place),
            Some(Place(other, _)) if *other == address => return Ok(place),
            Some(_) => place = after(places, place),
        }
    }
}

impl<V: Default> Table<V> {
    pub(crate) const fn new() -> Self {
        Self { places: Vec::new(), room: 0 }
    }

    #[inline(always)]
    pub(crate) fn get(&self, address: u64) -> Option<&V> {
        let place = find(&self.places, address).ok()?;
        Some(&self.places.get(place)?.1)
    }

    pub(crate) fn get_mut(&mut self, address: u64) -> Option<&mut V> {
        let place = find(&self.places, address).ok()?;
        Some(&mut self.places.get_mut(place)?.1)
    }

    /// Adds an address. Returns its value, in which there is nothing to drop yet; `None` if the address has one
    /// already.
    #[inline(always)]
    pub(crate) fn add(&mut self, address: NonZeroU64) -> Option<&mut V> {
        let address = address.get();
        if self.room == 0 {
            self.grow();
        }
        let Err(place) = find(&self.places, address) else { return None };
        let Place(free, value) = self.places.get_mut(place)?;
        *free = address;
        self.room -= 1;
        Some(value)
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let places = (2 * self.places.len()).max(LEAST);
        let before = mem::replace(&mut self.places, (0..places).map(|_| Place(0, V::default())).collect());
        self.room = (places - before.len()) / 2;
        for Place(address, value) in before.into_iter().filter(|Place(address, _)| *address != 0) {
            if let Err(place) = find(&self.places, address) {
                self.places[place] = Place(address, value);
            }
        }
    }

    /// Removes an address if `take` returns what it took out of the value. The rest of the value must need no drop.
    #[inline(always)]
    pub(crate) fn take<T>(&mut self, address: u64, take: impl FnOnce(&mut V) -> Option<T>) -> Option<T> {
        let places = &mut *self.places;
        let place = find(places, address).ok()?;
        let Place(other, value) = places.get_mut(place)?;
        let taken = take(value)?;
        *other = 0;
        self.room += 1;
        if places.get(after(places, place)).is_some_and(|Place(other, _)| *other != 0) {
            close(places, place);
        }
        Some(taken)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        self.places
            .iter()
            .filter(|Place(address, _)| *address != 0)
            .map(|Place(address, value)| (*address, value))
    }
}

/// Moves later values to a place that became empty, where the search for them would end.
#[cold]
#[inline(never)]
fn close<V>(places: &mut [Place<V>], mut empty: usize) {
    let mask = places.len() - 1;
    let mut place = after(places, empty);
    while places[place].0 != 0 {
        let home = home(places, places[place].0);
        // Whether the empty place is between its home and where it is.
        if place.wrapping_sub(empty) & mask <= place.wrapping_sub(home) & mask {
            places.swap(empty, place);
            empty = place;
        }
        place = after(places, place);
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
                        let Some(place) = NonZeroU64::new(address) else { continue };
                        let added = table.add(place).map(|value| *value = number).is_some();
                        prop_assert_eq!(added, !twin.contains_key(&address));
                        twin.entry(address).or_insert(number);
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
