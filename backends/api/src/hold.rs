//! Holds, which keep memory at its address while code outside the pool may use that address.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU32, Ordering};

/// Keeps bytes at their place: a sub-allocator does not move a block while a hold of it exists.
///
/// A sub-allocator that compacts gives one to each of its [`Region`](crate::Region)s, taken under the lock
/// under which it decides what to move. An operation drops its regions once its work is enqueued; from there
/// on the stream's order protects the bytes.
#[derive(Debug)]
pub struct Hold<'a> {
    holds: &'a AtomicU32,
    /// Of a sub-allocator whose memory is itself held.
    beneath: Option<Box<Hold<'a>>>,
}

impl<'a> Hold<'a> {
    /// One more hold, until it is dropped.
    #[must_use]
    pub fn new(holds: &'a AtomicU32) -> Self {
        // Relaxed: a move reads the count under the lock that is held here, too.
        holds.fetch_add(1, Ordering::Relaxed);
        Self { holds, beneath: None }
    }

    /// This hold and those that were there before it.
    pub(crate) fn above(mut self, beneath: Option<Self>) -> Self {
        if let Some(beneath) = beneath {
            self.beneath = Some(Box::new(match self.beneath.take() {
                Some(own) => own.above(Some(beneath)),
                None => beneath,
            }));
        }
        self
    }
}

impl Clone for Hold<'_> {
    fn clone(&self) -> Self {
        // Relaxed: the count is not 0 already, so nothing moves what is held.
        self.holds.fetch_add(1, Ordering::Relaxed);
        Self { holds: self.holds, beneath: self.beneath.clone() }
    }
}

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        // Release: pairs with the acquire of the code that reads 0 and then moves; the work was enqueued before.
        self.holds.fetch_sub(1, Ordering::Release);
    }
}

/// A borrowed memory whose part of interest stays where it is while this exists.
///
/// Regions made of it borrow it, so that no region outlives the hold:
///
/// ```compile_fail,E0597
/// # use std::sync::atomic::AtomicU32;
/// # use vrampool_backend::{HeldMemory, Memory, Region, Stream};
/// # use vrampool_backend::spi::Hold;
/// # fn example<M: Memory, S: Stream>(memory: &M, holds: &AtomicU32, stream: &S) {
/// let region = {
///     let held = HeldMemory::new(memory, Some(Hold::new(holds)));
///     Region::whole(&*held, stream)
/// };
/// # drop(region);
/// # }
/// ```
pub struct HeldMemory<'a, M> {
    memory: &'a M,
    _hold: Option<Hold<'a>>,
}

impl<'a, M> HeldMemory<'a, M> {
    /// `memory` under `hold`; without a hold for memory that never moves.
    #[must_use]
    pub fn new(memory: &'a M, hold: Option<Hold<'a>>) -> Self {
        Self { memory, _hold: hold }
    }
}

impl<M> Deref for HeldMemory<'_, M> {
    type Target = M;

    fn deref(&self) -> &M {
        self.memory
    }
}

impl<M: fmt::Debug> fmt::Debug for HeldMemory<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HeldMemory").field(self.memory).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_holds_count_one_each_until_the_last_clone_is_dropped() {
        let counts = [const { AtomicU32::new(0) }; 3];
        let [first, second, third] = &counts;
        let seen = || [0, 1, 2].map(|index: usize| counts[index].load(Ordering::Relaxed));
        let two = Hold::new(second).above(Some(Hold::new(first)));
        assert_eq!(seen(), [1, 1, 0]);
        let three = Hold::new(third).above(Some(two.clone()));
        assert_eq!(seen(), [2, 2, 1]);
        drop(two);
        assert_eq!(seen(), [1, 1, 1]);
        let four = two_of(&three);
        drop(three);
        assert_eq!(seen(), [1, 1, 1]);
        drop(four);
        assert_eq!(seen(), [0, 0, 0]);
    }

    fn two_of<'a>(hold: &Hold<'a>) -> Hold<'a> {
        hold.clone()
    }
}
