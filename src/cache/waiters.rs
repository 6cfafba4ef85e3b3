//! Requests that wait for memory for a bounded time, in order of arrival. Numbers only.
//!
//! While there are any, the pool has no magazines, so that each freed buffer arrives at the depot and is
//! noticed, and later requests get only what the limit leaves beside the bytes of earlier ones.

use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(crate) struct Waiters {
    /// Number and class of each, oldest first.
    queue: VecDeque<(u64, u64)>,
    /// Number of requests that ever waited.
    begun: u64,
}

impl Waiters {
    /// The number of a request that waits if it is refused: behind all others.
    pub(crate) const LAST: u64 = u64::MAX;

    /// Appends a request of `class` bytes. Returns its number.
    pub(crate) fn begin(&mut self, class: u64) -> u64 {
        self.begun += 1;
        self.queue.push_back((self.begun, class));
        self.begun
    }

    /// Sets the bytes that a request waits for: none while it has a reservation, which counts them.
    pub(crate) fn set_bytes(&mut self, number: u64, bytes: u64) {
        self.queue.iter_mut().filter(|(waiting, _)| *waiting == number).for_each(|(_, class)| *class = bytes);
    }

    /// Removes a request that no longer waits.
    pub(crate) fn end(&mut self, number: u64) {
        self.queue.retain(|(waiting, _)| *waiting != number);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn count(&self) -> u64 {
        self.queue.len() as u64
    }

    /// Whether no request has waited longer.
    pub(crate) fn is_first(&self, number: u64) -> bool {
        self.queue.front().is_none_or(|(first, _)| *first >= number)
    }

    /// Returns the bytes that earlier requests wait for: earlier than `number`, or all of them for a request
    /// that does not wait.
    #[inline]
    pub(crate) fn bytes_before(&self, number: Option<u64>) -> u64 {
        let before = self.queue.iter().take_while(|(waiting, _)| number.is_none_or(|own| *waiting < own));
        before.fold(0, |sum, (_, class)| sum.saturating_add(*class))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_served_in_order_of_arrival() {
        let mut waiters = Waiters::default();
        assert!(waiters.is_empty() && waiters.is_first(7));
        let (first, second, third) = (waiters.begin(10), waiters.begin(20), waiters.begin(30));
        assert!(waiters.is_first(first) && !waiters.is_first(second));
        assert_eq!(waiters.bytes_before(Some(third)), 30);
        assert_eq!(waiters.bytes_before(None), 60);
        waiters.set_bytes(second, 0);
        assert_eq!(waiters.bytes_before(Some(Waiters::LAST)), 40, "what it waits for is reserved");
        waiters.set_bytes(second, 20);
        assert_eq!(waiters.bytes_before(Some(Waiters::LAST)), 60);
        waiters.end(second);
        assert_eq!((waiters.bytes_before(Some(third)), waiters.count()), (10, 2));
        waiters.end(first);
        assert!(waiters.is_first(third));
        waiters.begin(u64::MAX);
        assert_eq!(waiters.bytes_before(None), u64::MAX, "a sum that overflows is the largest");
    }
}
