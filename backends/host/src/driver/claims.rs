//! The table of byte ranges in use.

use super::bytes::Span;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;
use vrampool_backend::BackendError;

/// What the numbers of a [`Place`] count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Space {
    /// Addresses of this process.
    Addresses,
    /// Offsets in the file of these numbers, which has physical memory.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "there is no physical memory"))]
    File { device: u64, inode: u64 },
}

/// A range of bytes, by what identifies them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) space: Space,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

impl Place {
    pub(super) fn of_addresses(addresses: Range<u64>) -> Self {
        Self { space: Space::Addresses, start: addresses.start, end: addresses.end }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.space == other.space
            && self.start < self.end
            && other.start < other.end
            && self.start < other.end
            && other.start < self.end
    }
}

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

    /// Runs `work` with `reads` and `writes` as slices. An error, without running it, when a range leaves its
    /// bytes, a range of `writes` meets any other of the same call, a range meets one that this very thread
    /// is using, or a part of one is bytes of a reservation that are not there.
    pub(crate) fn with<const R: usize, const W: usize, T>(
        &self,
        reads: [Span<'_>; R],
        writes: [Span<'_>; W],
        work: impl FnOnce([&[u8]; R], [&mut [u8]; W]) -> T,
    ) -> Result<T, BackendError> {
        if !disjoint(&reads, &writes) {
            return Err(BackendError::invalid(
                "range",
                "it leaves its memory, or a written one meets another",
            ));
        }
        let _release = self.claim(&reads, &writes)?;
        let read_slices = std::array::from_fn(|index| {
            let (start, len) = place(&reads[index]);
            // SAFETY: `start..start + len` lies in the bytes (`disjoint` checked it), which are initialised
            // (every storage starts zeroed) and live as long as `reads` borrows them, which outlives the call
            // of `work`. Those of a reservation are mapped and accessible (`claim` checked it) and stay so,
            // because whoever changes that claims the addresses for writing. Nobody writes them meanwhile:
            // this call's writes are disjoint from them, in addresses and in the physical memory behind them,
            // and every other call's are kept out by the claim until `_release` drops, after `work` has
            // returned or unwound. (Other processes that imported the memory keep order with this one, as
            // `SharedHandles` asks of them.)
            unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }
        });
        let write_slices = std::array::from_fn(|index| {
            let (start, len) = place(&writes[index]);
            // SAFETY: in bounds, initialised, there and alive as above. Nobody else reads or writes them
            // meanwhile: this call's other ranges are disjoint from it, and other calls are kept out by the
            // claim.
            unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) }
        });
        Ok(work(read_slices, write_slices))
    }

    /// Claims addresses for whoever changes what is mapped there, behind all work that uses them.
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

    fn claim(&self, reads: &[Span<'_>], writes: &[Span<'_>]) -> Result<Release, BackendError> {
        let spans = || reads.iter().map(|span| (span, false)).chain(writes.iter().map(|span| (span, true)));
        // Work keeps a reservation's addresses as they are, whatever it writes there.
        let addresses = || spans().map(|(span, writes)| (span.addresses(), writes && !span.is_reserved()));
        let mut table = TABLE.lock();
        let mut raced = false;
        loop {
            if let Some(thread) = met(&table, addresses()) {
                self.wait(&mut table, thread, &mut raced)?;
                continue;
            }
            // Nobody is changing what is mapped there now, nor can begin to before the table is unlocked.
            let mut physical = Vec::new();
            for (span, writes) in spans() {
                span.physical(|place| physical.push((place, writes)))?;
            }
            if shared_within(&mut physical) {
                return Err(failure(
                    "work writes physical memory that it also uses at other addresses".into(),
                ));
            }
            if let Some(thread) = met(&table, physical.iter().copied()) {
                self.wait(&mut table, thread, &mut raced)?;
                continue;
            }
            return Ok(enter(&mut table, addresses().chain(physical)));
        }
    }

    /// Waits until somebody's claims are gone, unless they are this thread's own.
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

/// Whose claim meets what is wanted.
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

/// Where a span's bytes start, and how many there are. The span was checked against its bytes.
fn place(span: &Span<'_>) -> (NonNull<u8>, usize) {
    let offset = span.range.start as usize;
    // SAFETY: `offset` is at most the number of bytes (`disjoint` checked the range), so the result is inside
    // the allocation or one past its end; the length fits an `isize` because blocks and reservations refuse
    // others.
    let start = unsafe { span.bytes.base().add(offset) };
    (start, (span.range.end - span.range.start) as usize)
}

/// Whether every range lies in its bytes and no written range meets another.
fn disjoint(reads: &[Span<'_>], writes: &[Span<'_>]) -> bool {
    reads.iter().chain(writes).all(Span::is_inside)
        && writes.iter().enumerate().all(|(index, written)| {
            let meets = |other: &Span<'_>| written.addresses().overlaps(&other.addresses());
            !reads.iter().any(meets) && !writes[index + 1..].iter().any(meets)
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::{Block, Bytes};
    use std::sync::Arc;

    fn block(bytes: u64) -> Bytes {
        Bytes::Own(Block::new(bytes, &Arc::default()).expect("memory"))
    }

    fn span(bytes: &Bytes, range: Range<u64>) -> Span<'_> {
        Span { bytes, range }
    }

    #[test]
    fn overlapping_or_outlying_ranges_are_refused() {
        let claims = Claims::default();
        for bytes in [100, 64 * 1024 + 1] {
            let block = block(bytes);
            let refused = |reads: Range<u64>, writes: Range<u64>| {
                claims.with([span(&block, reads)], [span(&block, writes)], |_, _| ()).is_err()
            };
            assert!(refused(0..10, 9..20));
            assert!(refused(0..10, 0..bytes + 1));
            assert!(refused(0..bytes + 1, 0..0));
            assert!(!refused(0..10, 10..20));
            let both = claims.with([], [span(&block, 0..2), span(&block, 1..3)], |[], _| ());
            assert!(both.is_err());
        }
        assert_eq!(claims.races(), 0);
    }

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

    #[test]
    fn a_panic_gives_the_claim_back() {
        let claims = Claims::default();
        let block = block(64);
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            claims.with([], [span(&block, 0..64)], |[], [_]| panic!("a kernel's bug"))
        }));
        assert!(result.is_err());
        assert_eq!(claims.with([], [span(&block, 0..64)], |[], [bytes]| bytes.len()), Ok(64));
    }

    #[test]
    fn writers_of_one_range_take_turns_and_are_counted() {
        let claims = Claims::default();
        let block = block(4096);
        let (entered, inside) = crossbeam_channel::unbounded();
        let (leave, left) = crossbeam_channel::unbounded::<()>();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                claims.with([], [span(&block, 0..4096)], |[], [bytes]| {
                    entered.send(()).expect("the test waits");
                    left.recv().expect("the test sends");
                    bytes.fill(1);
                })
            });
            inside.recv().expect("the writer sends");
            let reader =
                scope.spawn(|| claims.with([span(&block, 10..20)], [], |[bytes], []| bytes.to_vec()));
            while claims.races() == 0 {
                std::thread::yield_now();
            }
            leave.send(()).expect("the writer waits");
            assert_eq!(reader.join().expect("no panic"), Ok(vec![1; 10]));
        });
    }
}
