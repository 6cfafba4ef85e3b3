//! The table of byte ranges in use.

use super::place::{Place, Space};
use parking_lot::{Condvar, Mutex, MutexGuard};
#[cfg(target_os = "linux")]
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;
use vrampool_backend::BackendError;

#[derive(Debug)]
struct Claim {
    place: Place,
    writes: bool,
    owner: u64,
    thread: ThreadId,
}

/// All places that work touches at this moment. One table for all devices, because physical memory that one
/// of them exported and another imported is the same bytes.
static TABLE: Mutex<Vec<Claim>> = Mutex::new(Vec::new());
static RELEASED: Condvar = Condvar::new();
static NEXT_OWNER: AtomicU64 = AtomicU64::new(0);

/// The claims of one device's work.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    races: AtomicU64,
}

/// Takes one owner's claims out again, also when the work panics.
#[derive(Debug)]
pub(super) struct Release {
    owner: u64,
}

impl Drop for Release {
    fn drop(&mut self) {
        TABLE.lock().retain(|claim| claim.owner != self.owner);
        RELEASED.notify_all();
    }
}

impl Claims {
    /// How often work met a range that other work was using.
    pub(crate) fn races(&self) -> u64 {
        self.races.load(Ordering::Relaxed)
    }

    /// Claims addresses for the code that changes what is mapped there, behind all work that uses them.
    #[cfg(target_os = "linux")]
    pub(super) fn claim_addresses(&self, addresses: Range<u64>) -> Result<Release, BackendError> {
        let place = Place::of_addresses(addresses);
        let mut table = TABLE.lock();
        let mut raced = false;
        while let Some(thread) = met(&table, [(place, true)]) {
            self.wait(&mut table, thread, &mut raced)?;
        }
        Ok(enter(&mut table, [(place, true)]))
    }

    /// Claims `addresses` and the physical memory behind them, which `physical` reports, all or nothing. An error
    /// when a place of it meets one that this very thread is using, when `physical` fails, or when physical memory
    /// is written that is used twice.
    pub(super) fn claim<A: Iterator<Item = (Place, bool)> + Clone>(
        &self,
        addresses: &A,
        physical: impl Fn(&mut Vec<(Place, bool)>) -> Result<(), BackendError>,
    ) -> Result<Release, BackendError> {
        let mut table = TABLE.lock();
        let mut raced = false;
        loop {
            if let Some(thread) = met(&table, addresses.clone()) {
                self.wait(&mut table, thread, &mut raced)?;
                continue;
            }
            // Nothing is changing what is mapped there now, nor can begin to before the table is unlocked.
            let mut behind = Vec::new();
            physical(&mut behind)?;
            if shared_within(&mut behind) {
                return Err(failure(
                    "work writes physical memory that it also uses at other addresses".into(),
                ));
            }
            if let Some(thread) = met(&table, behind.iter().copied()) {
                self.wait(&mut table, thread, &mut raced)?;
                continue;
            }
            return Ok(enter(&mut table, addresses.clone().chain(behind)));
        }
    }

    /// Waits until other claims are released, unless they are this thread's own.
    fn wait(
        &self,
        table: &mut MutexGuard<'_, Vec<Claim>>,
        met: ThreadId,
        raced: &mut bool,
    ) -> Result<(), BackendError> {
        if met == std::thread::current().id() {
            let reason = "the kernel that asks for it is using it; use the slice it was given";
            return Err(BackendError::invalid("range", reason));
        }
        if !std::mem::replace(raced, true) {
            self.races.fetch_add(1, Ordering::Relaxed);
        }
        RELEASED.wait(table);
        Ok(())
    }
}

/// Returns the thread of a claim that overlaps one of the wanted places.
fn met(table: &[Claim], wanted: impl IntoIterator<Item = (Place, bool)> + Clone) -> Option<ThreadId> {
    let meets = |held: &Claim, place: &Place, writes| (writes || held.writes) && place.overlaps(&held.place);
    table
        .iter()
        .find(|held| wanted.clone().into_iter().any(|(place, writes)| meets(held, &place, writes)))
        .map(|held| held.thread)
}

fn enter(table: &mut Vec<Claim>, wanted: impl IntoIterator<Item = (Place, bool)>) -> Release {
    let owner = NEXT_OWNER.fetch_add(1, Ordering::Relaxed);
    let thread = std::thread::current().id();
    table.extend(wanted.into_iter().map(|(place, writes)| Claim { place, writes, owner, thread }));
    Release { owner }
}

/// Whether a place that is written meets another one. Sorts them.
fn shared_within(places: &mut [(Place, bool)]) -> bool {
    places.sort_unstable();
    // How far the places so far reach, and how far those that are written do.
    let (mut space, mut end, mut written) = (Space::Addresses, 0, 0);
    places.iter().any(|&(place, writes)| {
        if place.space != space {
            (space, end, written) = (place.space, 0, 0);
        }
        let meets = place.start < written || writes && place.start < end;
        end = end.max(place.end);
        if writes {
            written = written.max(place.end);
        }
        meets
    })
}

/// Work that did not find its bytes.
pub(super) fn failure(message: String) -> BackendError {
    BackendError::driver("access", -1, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_places_that_meet_are_found_as_by_comparing_all() {
        let file = |inode| Space::File { device: 0, inode };
        for seed in 0..4096u64 {
            let mut places: Vec<_> = (0..4)
                .map(|n| {
                    let bits = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(n * 16);
                    let start = bits >> 8 & 15;
                    (Place { space: file(bits & 1), start, end: start + 1 + (bits >> 12 & 3) }, bits & 2 == 0)
                })
                .collect();
            let naive = (0..4).any(|one| {
                (0..one).any(|two| {
                    let ((a, a_writes), (b, b_writes)) = (places[one], places[two]);
                    (a_writes || b_writes) && a.overlaps(&b)
                })
            });
            assert_eq!(shared_within(&mut places), naive, "{places:?}");
        }
    }
}
