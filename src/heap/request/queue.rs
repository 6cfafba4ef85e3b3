//! The waiting requests, in order of arrival, each with the event it waits for. Numbers and condition variables only.
//!
//! One queue for all reasons: memory that other threads are releasing, the device that refused memory, and memory
//! until a deadline. A request keeps its position while its reason changes.

use crate::heap::ledger::Waiting;
use crate::heap::{Accounts, Admission, Awaited, Entry, Queue, TURN};
use crate::sync::{Condvar, Instant};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

/// Condition variables to notify without the lock.
type Wakers = SmallVec<[Arc<Condvar>; 2]>;

impl Default for Queue {
    fn default() -> Self {
        let (entries, others) = (VecDeque::new(), SmallVec::new());
        Self { entries, begun: 0, deadlines: 0, is_open: false, others, turn: TURN }
    }
}

impl Queue {
    /// The number of a request that is not queued: behind all others.
    pub(crate) const LAST: u64 = u64::MAX;

    /// Appends a request. Returns its number.
    pub(crate) fn add(&mut self, has_deadline: bool) -> u64 {
        self.begun += 1;
        self.deadlines += u64::from(has_deadline);
        self.entries.push_back(Entry {
            number: self.begun,
            bytes: 0,
            awaited: Awaited::Nothing,
            has_deadline,
            woken: Arc::new(Condvar::new()),
            since: Instant::now(),
        });
        self.begun
    }

    /// Sets what the queue has in common with those of the other pools of a tree.
    pub(crate) fn join(
        &mut self,
        (begun, is_open): (u64, bool),
        others: Option<impl Iterator<Item = Waiting>>,
    ) {
        (self.begun, self.is_open) = (self.begun.max(begun), is_open);
        self.others.clear();
        others.into_iter().for_each(|others| self.others.extend(others));
    }

    /// Returns the number of requests that ever waited, and whether those with a deadline reserve nothing now.
    pub(crate) fn turns(&self) -> (u64, bool) {
        (self.begun, self.is_open)
    }

    /// Removes a request. Returns how long it was queued, if it has a deadline.
    pub(crate) fn remove(&mut self, number: u64) -> Option<Duration> {
        let is_first = self.is_first_with_deadline(number);
        let entry = self.place(number).and_then(|at| self.entries.remove(at))?;
        self.deadlines -= u64::from(entry.has_deadline);
        // The turns of the next first one begin anew.
        self.is_open &= !(is_first && entry.has_deadline);
        entry.has_deadline.then(|| entry.since.elapsed())
    }

    /// Opens or closes the queue, after the first entry with a deadline waited for `waited`: while it is open, no such
    /// entry reserves memory. Returns whether it was opened now, and the time until its next change.
    pub(crate) fn take_turns(&mut self, waited: Duration) -> (bool, Duration) {
        let turns = waited.as_nanos() / self.turn.as_nanos().max(1);
        let was_open = mem::replace(&mut self.is_open, turns % 2 == 1);
        let end = self.turn.saturating_mul(u32::try_from(turns + 1).unwrap_or(u32::MAX));
        (self.is_open && !was_open, end.saturating_sub(waited))
    }

    /// Sets what a request waits for.
    pub(crate) fn set(&mut self, number: u64, bytes: u64, awaited: Awaited) {
        if let Some(at) = self.place(number) {
            (self.entries[at].bytes, self.entries[at].awaited) = (bytes, awaited);
        }
    }

    /// Returns what a request waits for; nothing if it is not queued.
    pub(crate) fn awaited(&self, number: u64) -> Awaited {
        self.place(number).map_or(Awaited::Nothing, |at| self.entries[at].awaited)
    }

    /// Returns the condition variable that wakes a request, unless it is not queued.
    pub(crate) fn waker(&self, number: u64) -> Option<Arc<Condvar>> {
        self.place(number).map(|at| Arc::clone(&self.entries[at].woken))
    }

    /// Returns the condition variables of the requests that can go on; with `are_all`, of all requests.
    ///
    /// Only the first request of each reason can go on: it wakes the next one when it leaves.
    pub(crate) fn ready(&self, accounts: &Accounts, are_all: bool) -> Wakers {
        let (mut no_release, mut no_device, mut no_deadline, is_open) = (true, true, true, self.is_open);
        let mut wakers = Wakers::new();
        for entry in &self.entries {
            let is_first_deadline = entry.has_deadline && mem::take(&mut no_deadline);
            let admission = || accounts.admission(entry.bytes);
            let is_ready = match entry.awaited {
                Awaited::Nothing => false,
                Awaited::Change => true,
                Awaited::Release => mem::take(&mut no_release) && admission() != Admission::Wait,
                Awaited::Device => mem::take(&mut no_device),
                // A class that is larger than a lowered limit is clamped to it.
                Awaited::Memory => {
                    (is_first_deadline || is_open && entry.has_deadline) && {
                        let class = entry.bytes.min(accounts.least_limit());
                        let earlier = self.others_before(entry.number);
                        !accounts.is_over_limit_with(class) && accounts.reserved_at(class, earlier).is_none()
                    }
                }
            };
            if is_ready || are_all {
                wakers.push(Arc::clone(&entry.woken));
            }
        }
        wakers
    }

    /// Whether requests with a deadline wait, of any pool of the tree.
    #[inline]
    pub(crate) fn has_deadlines(&self) -> bool {
        self.deadlines > 0 || !self.others.is_empty()
    }

    /// Returns the number and the bytes of the first request with a deadline.
    pub(crate) fn first_with_deadline(&self) -> Option<(u64, u64)> {
        if self.deadlines == 0 {
            return None;
        }
        self.entries.iter().find(|entry| entry.has_deadline).map(|entry| (entry.number, entry.bytes))
    }

    /// Returns how long the first request with a deadline has been queued.
    pub(crate) fn oldest_wait(&self) -> Duration {
        let mut waiting = self.entries.iter().filter(|entry| entry.has_deadline);
        waiting.next().map_or(Duration::ZERO, |entry| entry.since.elapsed())
    }

    /// Whether requests wait for memory that is being released.
    #[inline]
    pub(crate) fn awaits_release(&self) -> bool {
        self.entries.iter().any(|entry| entry.awaited == Awaited::Release)
    }

    /// Whether requests ask, or wait for, a device that refused memory.
    #[inline]
    pub(crate) fn awaits_device(&self) -> bool {
        self.entries.iter().any(|entry| entry.awaited == Awaited::Device)
    }

    /// Whether no earlier request asks, or waits for, a device that refused memory.
    pub(crate) fn is_first_at_device(&self, number: u64) -> bool {
        self.before(number).all(|entry| entry.awaited != Awaited::Device)
    }

    /// Whether no earlier request of any pool of the tree has a deadline.
    pub(crate) fn is_first_with_deadline(&self, number: u64) -> bool {
        self.is_first_here(number) && self.others.iter().all(|other| other.number > number)
    }

    /// Whether it is the turn of a request with a deadline to ask for memory.
    pub(crate) fn may_ask(&self, number: u64) -> bool {
        self.is_open || self.is_first_here(number)
    }

    fn is_first_here(&self, number: u64) -> bool {
        self.before(number).all(|entry| !entry.has_deadline)
    }

    /// Returns the earlier requests of other pools of the tree that reserve memory.
    pub(crate) fn others_before(&self, number: u64) -> impl Iterator<Item = Waiting> + Clone {
        let is_open = self.is_open;
        self.others.iter().filter(move |other| !is_open && other.number < number).copied()
    }

    /// Returns the bytes that earlier requests reserve, which wait for them until a deadline.
    #[inline]
    pub(crate) fn reserved_before(&self, number: u64) -> u64 {
        if self.is_open { 0 } else { sum(self.before(number).filter(|entry| entry.has_deadline)) }
    }

    /// As [`reserved_before`](Self::reserved_before), with requests of other pools of the tree that need bytes of the
    /// node `height` levels above the pool's, or of a node below it.
    pub(crate) fn waiting_before(&self, number: u64, height: usize) -> u64 {
        let others = self.others_before(number).filter(|other| other.height <= height);
        others.fold(self.reserved_before(number), |sum, other| sum.saturating_add(other.bytes))
    }

    /// Returns the bytes that requests wait for until a deadline.
    pub(crate) fn waiting_bytes(&self) -> u64 {
        sum(self.entries.iter().filter(|entry| entry.has_deadline))
    }

    /// Returns the bytes of earlier requests that wait for memory that is being released.
    pub(crate) fn released_before(&self, number: u64) -> u64 {
        sum(self.before(number).filter(|entry| entry.awaited == Awaited::Release))
    }

    fn before(&self, number: u64) -> impl Iterator<Item = &Entry> {
        self.entries.iter().take_while(move |entry| entry.number < number)
    }

    fn place(&self, number: u64) -> Option<usize> {
        self.entries.binary_search_by_key(&number, |entry| entry.number).ok()
    }
}

fn sum<'a>(entries: impl Iterator<Item = &'a Entry>) -> u64 {
    entries.fold(0, |sum, entry| sum.saturating_add(entry.bytes))
}

#[cfg(all(test, not(model)))]
mod tests;
