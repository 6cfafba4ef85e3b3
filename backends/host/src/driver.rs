//! Bytes, and the claims under which they become slices. The only unsafe code of this backend.
//!
//! A [`Block`] owns bytes; nobody reads or writes them but through [`Claims::with`], which first enters every range the
//! caller touches into one table, all or nothing, and waits while any of them meets a range that somebody else has
//! entered. Taking all ranges in one step under one lock leaves no order in which two callers could wait for each other.

use memmap2::{MmapMut, MmapOptions};
use parking_lot::{Condvar, Mutex};
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ThreadId;

/// What every block's start is aligned to, bytes: a cache line, and more than any vector load needs.
pub(crate) const ALIGNMENT: u64 = 64;

/// From this size on a block is mapped, so that pages nobody touches cost nothing, bytes.
const MAP_FROM: u64 = 64 * 1024;

/// Keeps the bytes of a block alive. Never read: the block's pointer is the only way to them.
#[derive(Debug)]
enum Storage {
    /// A `Vec` and not a `Box`, because moving a box would claim its bytes to be reached through it alone.
    Heap {
        _lines: Vec<Line>,
    },
    Mapped {
        _map: MmapMut,
    },
}

#[derive(Debug, Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; ALIGNMENT as usize]);

/// Zeroed bytes.
#[derive(Debug)]
pub(crate) struct Block {
    base: NonNull<u8>,
    len: u64,
    _storage: Storage,
}

// SAFETY: `base` points into `_storage`, which the block owns and which never moves its bytes (a vector and a map are
// pointers to them), so sending a block sends the only way to them.
unsafe impl Send for Block {}
// SAFETY: a shared block gives out its address and length; its bytes are reached only in `Claims::with`, which lets no
// two callers have overlapping ranges unless both only read.
unsafe impl Sync for Block {}

impl Block {
    /// `None` when the system has no memory of this size.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        let len = usize::try_from(bytes).ok().filter(|&len| len > 0 && isize::try_from(len).is_ok())?;
        if bytes >= MAP_FROM {
            let mut map = MmapOptions::new().len(len).no_reserve_swap().map_anon().ok()?;
            let base = NonNull::new(map.as_mut_ptr())?;
            return Some(Self { base, len: bytes, _storage: Storage::Mapped { _map: map } });
        }
        let mut lines = vec![Line([0; ALIGNMENT as usize]); len.div_ceil(ALIGNMENT as usize)];
        let base = NonNull::new(lines.as_mut_ptr().cast())?;
        Some(Self { base, len: bytes, _storage: Storage::Heap { _lines: lines } })
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn address(&self) -> u64 {
        self.base.as_ptr() as u64
    }

    fn contains(&self, range: &Range<u64>) -> bool {
        range.start <= range.end && range.end <= self.len
    }
}

/// A range of a block that a piece of work touches.
#[derive(Debug, Clone)]
pub(crate) struct Span<'a> {
    pub(crate) block: &'a Block,
    pub(crate) range: Range<u64>,
}

impl Span<'_> {
    /// The addresses it covers.
    fn addresses(&self) -> Range<u64> {
        self.block.address() + self.range.start..self.block.address() + self.range.end
    }
}

#[derive(Debug)]
struct Claim {
    addresses: Range<u64>,
    writes: bool,
    owner: u64,
    thread: ThreadId,
}

/// All ranges that work of one device touches at this moment.
#[derive(Debug, Default)]
pub(crate) struct Claims {
    table: Mutex<Vec<Claim>>,
    released: Condvar,
    next_owner: AtomicU64,
    races: AtomicU64,
}

/// Takes one owner's claims out again, also when the work panics.
struct Release<'a> {
    claims: &'a Claims,
    owner: u64,
}

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.claims.table.lock().retain(|claim| claim.owner != self.owner);
        self.claims.released.notify_all();
    }
}

impl Claims {
    /// How often work met a range that other work was using.
    pub(crate) fn races(&self) -> u64 {
        self.races.load(Ordering::Relaxed)
    }

    /// Runs `work` with `reads` and `writes` as slices. `None`, without running it, when a range leaves its block, a range of
    /// `writes` meets any other of the same call, or a range meets one that this very thread is using.
    pub(crate) fn with<const R: usize, const W: usize, T>(
        &self,
        reads: [Span<'_>; R],
        writes: [Span<'_>; W],
        work: impl FnOnce([&[u8]; R], [&mut [u8]; W]) -> T,
    ) -> Option<T> {
        if !disjoint(&reads, &writes) {
            return None;
        }
        let _release = self.claim(&reads, &writes)?;
        let read_slices = std::array::from_fn(|index| {
            let (start, len) = place(&reads[index]);
            // SAFETY: `start..start + len` lies in the block (`disjoint` checked it), whose bytes are initialised (both
            // storages start zeroed) and live as long as `reads` borrows the block, which outlives the call of `work`.
            // Nobody writes them meanwhile: this call's writes are disjoint from them, and every other call's are kept
            // out by the claim until `_release` drops, after `work` has returned or unwound.
            unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }
        });
        let write_slices = std::array::from_fn(|index| {
            let (start, len) = place(&writes[index]);
            // SAFETY: in bounds, initialised and alive as above. Nobody else reads or writes them meanwhile: this
            // call's other ranges are disjoint from it, and other calls are kept out by the claim.
            unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) }
        });
        Some(work(read_slices, write_slices))
    }

    fn claim(&self, reads: &[Span<'_>], writes: &[Span<'_>]) -> Option<Release<'_>> {
        let owner = self.next_owner.fetch_add(1, Ordering::Relaxed);
        let wanted = || reads.iter().map(|span| (span, false)).chain(writes.iter().map(|span| (span, true)));
        let thread = std::thread::current().id();
        let mut table = self.table.lock();
        let mut raced = false;
        while let Some(met) = table.iter().find(|held| {
            wanted().any(|(span, w)| (w || held.writes) && overlap(&span.addresses(), &held.addresses))
        }) {
            if met.thread == thread {
                return None;
            }
            if !std::mem::replace(&mut raced, true) {
                self.races.fetch_add(1, Ordering::Relaxed);
            }
            self.released.wait(&mut table);
        }
        table.extend(wanted().map(|(span, writes)| Claim {
            addresses: span.addresses(),
            writes,
            owner,
            thread,
        }));
        Some(Release { claims: self, owner })
    }
}

/// Where a span's bytes start, and how many there are. The span was checked against its block.
fn place(span: &Span<'_>) -> (NonNull<u8>, usize) {
    let offset = span.range.start as usize;
    // SAFETY: `offset` is at most the block's length (`disjoint` checked the range), so the result is inside the
    // allocation or one past its end; the length fits an `isize` because `Block::new` refuses others.
    let start = unsafe { span.block.base.add(offset) };
    (start, (span.range.end - span.range.start) as usize)
}

fn overlap(one: &Range<u64>, two: &Range<u64>) -> bool {
    !one.is_empty() && !two.is_empty() && one.start < two.end && two.start < one.end
}

/// Whether every range lies in its block and no written range meets another.
fn disjoint(reads: &[Span<'_>], writes: &[Span<'_>]) -> bool {
    reads.iter().chain(writes).all(|span| span.block.contains(&span.range))
        && writes.iter().enumerate().all(|(index, written)| {
            let meets = |other: &Span<'_>| overlap(&written.addresses(), &other.addresses());
            !reads.iter().any(meets) && !writes[index + 1..].iter().any(meets)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(block: &Block, range: Range<u64>) -> Span<'_> {
        Span { block, range }
    }

    #[test]
    fn overlapping_or_outlying_ranges_are_refused() {
        let claims = Claims::default();
        for bytes in [100, MAP_FROM + 1] {
            let block = Block::new(bytes).expect("memory");
            assert!(block.address().is_multiple_of(ALIGNMENT));
            let refused = |reads: Range<u64>, writes: Range<u64>| {
                claims.with([span(&block, reads)], [span(&block, writes)], |_, _| ()).is_none()
            };
            assert!(refused(0..10, 9..20));
            assert!(refused(0..10, 0..bytes + 1));
            assert!(refused(0..bytes + 1, 0..0));
            assert!(!refused(0..10, 10..20));
            let both = claims.with([], [span(&block, 0..2), span(&block, 1..3)], |[], _| ());
            assert!(both.is_none());
        }
        assert_eq!(claims.races(), 0);
    }

    #[test]
    fn sizes_that_no_system_has_are_refused() {
        assert!(Block::new(0).is_none());
        assert!(Block::new(u64::MAX).is_none());
        assert!(Block::new(1 << 62).is_none());
    }

    #[test]
    fn a_panic_gives_the_claim_back() {
        let claims = Claims::default();
        let block = Block::new(64).expect("memory");
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            claims.with([], [span(&block, 0..64)], |[], [_]| panic!("a kernel's bug"))
        }));
        assert!(result.is_err());
        assert_eq!(claims.with([], [span(&block, 0..64)], |[], [bytes]| bytes.len()), Some(64));
    }

    #[test]
    fn writers_of_one_range_take_turns_and_are_counted() {
        let claims = Claims::default();
        let block = Block::new(4096).expect("memory");
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
            assert_eq!(reader.join().expect("no panic"), Some(vec![1; 10]));
        });
    }
}
