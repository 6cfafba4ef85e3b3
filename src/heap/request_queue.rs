//! The requests that wait, in order of arrival, and what each waits for. Numbers and condition variables only.
//!
//! One queue for all reasons: memory that other threads are releasing, the device that refused memory, and memory
//! until a deadline. A request keeps its position while its reason changes.

use crate::heap::accounts::{Accounts, Admission};
use crate::sync::{Condvar, Instant};
use smallvec::SmallVec;
use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

/// What a request waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Awaited {
    /// Nothing: it is being served.
    Nothing,
    /// Any change, because it checks a condition of its own.
    Change,
    /// Enough memory that is being released.
    Release,
    /// The end of all earlier requests that ask a device that refused memory, and then its own.
    Device,
    /// Memory, until a deadline, as the first of those.
    Memory,
}

/// How long requests with a deadline reserve memory, and then let others pass, in turns.
const TURN: Duration = Duration::from_secs(10);

/// The queue of a pool.
#[derive(Debug)]
pub(crate) struct Queue {
    /// Earliest first.
    entries: VecDeque<Entry>,
    /// Number of requests that ever waited.
    begun: u64,
    /// Number of entries with a deadline.
    deadlines: u64,
    /// Whether entries with a deadline reserve nothing now, because the first one may never be served.
    is_open: bool,
    /// [`TURN`], but in tests.
    pub(crate) turn: Duration,
}

#[derive(Debug)]
struct Entry {
    number: u64,
    /// Bytes that it waits for; 0 once a reservation counts them.
    bytes: u64,
    awaited: Awaited,
    /// Later requests get only what the limit leaves beside its bytes, unless the queue is open.
    has_deadline: bool,
    is_asleep: bool,
    woken: Arc<Condvar>,
    /// When it was added.
    since: Instant,
}

/// Condition variables to notify without the lock.
pub(crate) type Woken = SmallVec<[Arc<Condvar>; 2]>;

impl Default for Queue {
    fn default() -> Self {
        Self { entries: VecDeque::new(), begun: 0, deadlines: 0, is_open: false, turn: TURN }
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
            is_asleep: false,
            woken: Arc::new(Condvar::new()),
            since: Instant::now(),
        });
        self.begun
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
        if let Some(entry) = self.entry(number) {
            (entry.bytes, entry.awaited) = (bytes, awaited);
        }
    }

    /// Marks a request as asleep. Returns the condition variable that wakes it, unless it is not queued.
    pub(crate) fn sleep(&mut self, number: u64) -> Option<Arc<Condvar>> {
        let entry = self.entry(number)?;
        entry.is_asleep = true;
        Some(Arc::clone(&entry.woken))
    }

    /// Marks a request as awake.
    pub(crate) fn wake(&mut self, number: u64) {
        if let Some(entry) = self.entry(number) {
            entry.is_asleep = false;
        }
    }

    /// Returns the sleeping requests that can go on, and marks them as awake. `is_closed`: all of them.
    ///
    /// Of each reason only the first can: it wakes the next one when it leaves.
    pub(crate) fn wake_ready(&mut self, accounts: &Accounts, is_closed: bool) -> Woken {
        let (mut no_release, mut no_device, mut no_deadline, is_open) = (true, true, true, self.is_open);
        let mut woken = Woken::new();
        for entry in &mut self.entries {
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
                        !accounts.is_over_limit_with(entry.bytes.min(accounts.caps.limit))
                    }
                }
            };
            if entry.is_asleep && (is_ready || is_closed) {
                entry.is_asleep = false;
                woken.push(Arc::clone(&entry.woken));
            }
        }
        woken
    }

    /// Number of requests with a deadline.
    #[inline]
    pub(crate) fn deadlines(&self) -> u64 {
        self.deadlines
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

    /// Whether no earlier request has a deadline.
    pub(crate) fn is_first_with_deadline(&self, number: u64) -> bool {
        self.before(number).all(|entry| !entry.has_deadline)
    }

    /// Whether it is the turn of a request with a deadline to ask for memory.
    pub(crate) fn may_ask(&self, number: u64) -> bool {
        self.is_open || self.is_first_with_deadline(number)
    }

    /// Returns the bytes that earlier requests reserve, which wait for them until a deadline.
    #[inline]
    pub(crate) fn reserved_before(&self, number: u64) -> u64 {
        if self.is_open { 0 } else { sum(self.before(number).filter(|entry| entry.has_deadline)) }
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

    fn entry(&mut self, number: u64) -> Option<&mut Entry> {
        self.place(number).map(|at| &mut self.entries[at])
    }
}

fn sum<'a>(entries: impl Iterator<Item = &'a Entry>) -> u64 {
    entries.fold(0, |sum, entry| sum.saturating_add(entry.bytes))
}

#[cfg(all(test, not(model)))]
mod tests {
    use super::*;
    use crate::heap::caps::Caps;
    use proptest::prelude::*;

    const REASONS: [Awaited; 5] =
        [Awaited::Nothing, Awaited::Change, Awaited::Release, Awaited::Device, Awaited::Memory];

    /// A request of the naive twin.
    #[derive(Debug, Clone)]
    struct Request {
        number: u64,
        bytes: u64,
        awaited: Awaited,
        has_deadline: bool,
        is_asleep: bool,
    }

    #[derive(Debug, Clone)]
    enum Step {
        /// How long the first one with a deadline has waited, in quarters of a turn.
        Turn(u32),
        Add {
            has_deadline: bool,
        },
        Remove(usize),
        Set(usize, u64, usize),
        Sleep(usize),
        Wake(usize),
        /// Charged and idle bytes, and those that are being released.
        Release {
            charged: u64,
            idle: u64,
            released: u64,
            is_closed: bool,
        },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            2 => (0..20u32).prop_map(Step::Turn),
            3 => any::<bool>().prop_map(|has_deadline| Step::Add { has_deadline }),
            2 => any::<usize>().prop_map(Step::Remove),
            6 => (any::<usize>(), 0..12u64, 0..REASONS.len())
                .prop_map(|(at, bytes, reason)| Step::Set(at, bytes, reason)),
            6 => any::<usize>().prop_map(Step::Sleep),
            1 => any::<usize>().prop_map(Step::Wake),
            4 => (0..12u64, 0..6u64, 0..6u64, prop::bool::weighted(0.1)).prop_map(
                |(charged, idle, released, is_closed)| Step::Release { charged, idle, released, is_closed },
            ),
        ];
        prop::collection::vec(step, 1..80)
    }

    /// The numbers of the requests that a release wakes, by the rules alone.
    fn expected(twin: &[Request], accounts: &Accounts, is_closed: bool, is_open: bool) -> Vec<u64> {
        let is_ready = |at: usize, request: &Request| {
            let is_first = |such: &dyn Fn(&Request) -> bool| !twin[..at].iter().any(such);
            let admission = accounts.admission(request.bytes);
            match request.awaited {
                Awaited::Nothing => false,
                Awaited::Change => true,
                Awaited::Release => {
                    is_first(&|other| other.awaited == Awaited::Release) && admission != Admission::Wait
                }
                Awaited::Device => is_first(&|other| other.awaited == Awaited::Device),
                Awaited::Memory => {
                    let clamped = accounts.admission(request.bytes.min(accounts.caps.limit));
                    request.has_deadline
                        && (is_open || is_first(&|other| other.has_deadline))
                        && matches!(clamped, Admission::Evict(_))
                }
            }
        };
        let woken = twin
            .iter()
            .enumerate()
            .filter(|(at, request)| request.is_asleep && (is_closed || is_ready(*at, request)));
        woken.map(|(_, request)| request.number).collect()
    }

    proptest! {
        /// The queue does what its rules say, whatever waits for what.
        #[test]
        fn the_queue_is_its_naive_twin(steps in steps()) {
            let (mut queue, mut twin) = (Queue::default(), Vec::<Request>::new());
            let mut is_open = false;
            for step in steps {
                let at = |at: usize, twin: &[Request]| (!twin.is_empty()).then(|| at % twin.len());
                match step {
                    Step::Turn(quarters) => {
                        let (begins, left) = queue.take_turns(TURN / 4 * quarters);
                        prop_assert_eq!(begins, quarters / 4 % 2 == 1 && !is_open);
                        prop_assert_eq!(left, TURN / 4 * (4 - quarters % 4));
                        is_open = quarters / 4 % 2 == 1;
                    }
                    Step::Add { has_deadline } => {
                        let number = queue.add(has_deadline);
                        let (bytes, awaited, is_asleep) = (0, Awaited::Nothing, false);
                        twin.push(Request { number, bytes, awaited, has_deadline, is_asleep });
                    }
                    Step::Remove(which) => {
                        if let Some(at) = at(which, &twin) {
                            let is_first = twin[..at].iter().all(|other| !other.has_deadline);
                            let request = twin.remove(at);
                            is_open &= !(is_first && request.has_deadline);
                            prop_assert_eq!(queue.remove(request.number).is_some(), request.has_deadline);
                        }
                    }
                    Step::Set(which, bytes, reason) => {
                        if let Some(at) = at(which, &twin) {
                            let request = &mut twin[at];
                            (request.bytes, request.awaited) = (bytes, REASONS[reason]);
                            queue.set(request.number, bytes, request.awaited);
                        }
                    }
                    Step::Sleep(which) => {
                        if let Some(at) = at(which, &twin) {
                            twin[at].is_asleep = true;
                            prop_assert!(queue.sleep(twin[at].number).is_some());
                        }
                    }
                    Step::Wake(which) => {
                        if let Some(at) = at(which, &twin) {
                            twin[at].is_asleep = false;
                            queue.wake(twin[at].number);
                        }
                    }
                    Step::Release { charged, idle, released, is_closed } => {
                        let caps = Caps { limit: 8, ..Caps::default() };
                        let mut accounts = Accounts::new(caps, Arc::default());
                        accounts.now.charged = charged.max(idle + released);
                        accounts.now.cached = idle + released;
                        accounts.evict(released);
                        let woken = expected(&twin, &accounts, is_closed, is_open);
                        prop_assert_eq!(queue.wake_ready(&accounts, is_closed).len(), woken.len());
                        for request in twin.iter_mut().filter(|request| woken.contains(&request.number)) {
                            request.is_asleep = false;
                        }
                        let asleep: Vec<_> = queue.entries.iter().map(|entry| entry.is_asleep).collect();
                        prop_assert_eq!(asleep, twin.iter().map(|request| request.is_asleep).collect::<Vec<_>>());
                    }
                }
                prop_assert!(queue.sleep(queue.begun + 1).is_none(), "it is not queued");
                let deadlines = twin.iter().filter(|request| request.has_deadline).count() as u64;
                prop_assert_eq!(queue.deadlines(), deadlines);
                let is_any = |awaited| twin.iter().any(|request| request.awaited == awaited);
                prop_assert_eq!(queue.awaits_release(), is_any(Awaited::Release));
                prop_assert_eq!(queue.awaits_device(), is_any(Awaited::Device));
                let numbers = twin.iter().map(|request| request.number).chain([Queue::LAST]);
                for (at, number) in numbers.enumerate() {
                    let before = &twin[..at];
                    let sum = |such: &dyn Fn(&&Request) -> bool| -> u64 {
                        before.iter().filter(such).map(|other| other.bytes).sum()
                    };
                    let reserved = if is_open { 0 } else { sum(&|other| other.has_deadline) };
                    prop_assert_eq!(queue.reserved_before(number), reserved);
                    prop_assert_eq!(queue.released_before(number), sum(&|other| other.awaited == Awaited::Release));
                    let is_first = before.iter().all(|other| !other.has_deadline);
                    prop_assert_eq!(queue.is_first_with_deadline(number), is_first);
                    prop_assert_eq!(queue.may_ask(number), is_first || is_open);
                    let is_first = before.iter().all(|other| other.awaited != Awaited::Device);
                    prop_assert_eq!(queue.is_first_at_device(number), is_first);
                }
            }
        }
    }
}
