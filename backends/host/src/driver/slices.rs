//! Ranges of bytes as slices, under claims.

use super::bytes::Span;
use super::claims::{Claims, Release};
use std::ptr::NonNull;
use vrampool_backend::BackendError;

impl Claims {
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
        let _release = self.claim_spans(&reads, &writes)?;
        let read_slices = std::array::from_fn(|index| {
            let (start, len) = place(&reads[index]);
            // SAFETY: `start..start + len` lies in the bytes (`disjoint` checked it), which are initialised
            // (every storage starts zeroed) and live as long as `reads` borrows them, which outlives the call
            // of `work`. Those of a reservation are mapped and accessible (`claim_spans` checked it) and stay so,
            // because the code that changes that claims the addresses for writing. Nothing writes them meanwhile:
            // this call's writes are disjoint from them, in addresses and in the physical memory behind them,
            // and every other call's are kept out by the claim until `_release` drops, after `work` has
            // returned or unwound. (Other processes that imported the memory keep order with this one, as
            // `SharedHandles` asks of them.)
            unsafe { std::slice::from_raw_parts(start.as_ptr(), len) }
        });
        let write_slices = std::array::from_fn(|index| {
            let (start, len) = place(&writes[index]);
            // SAFETY: in bounds, initialised, there and alive as above. Nothing else reads or writes them
            // meanwhile: this call's other ranges are disjoint from it, and other calls are kept out by the
            // claim.
            unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), len) }
        });
        Ok(work(read_slices, write_slices))
    }

    fn claim_spans(&self, reads: &[Span<'_>], writes: &[Span<'_>]) -> Result<Release, BackendError> {
        let spans = || reads.iter().map(|span| (span, false)).chain(writes.iter().map(|span| (span, true)));
        // Work keeps a reservation's addresses as they are, whatever it writes there.
        let addresses = spans().map(|(span, writes)| (span.addresses(), writes && !span.is_reserved()));
        self.claim(&addresses, |places| {
            spans().try_for_each(|(span, writes)| span.physical(|place| places.push((place, writes))))
        })
    }
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
    use std::ops::Range;
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
