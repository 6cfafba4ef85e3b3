//! The queue against a naive twin.

use super::*;
use crate::heap::ledger::Caps;
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
}

#[derive(Debug, Clone)]
enum Step {
    // How long the first one with a deadline has waited, in quarters of a turn.
    Turn(u32),
    Add { has_deadline: bool },
    Remove(usize),
    Set(usize, u64, usize),
    // Charged and idle bytes, and those that are being released.
    Release { charged: u64, idle: u64, released: u64, is_closed: bool },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (0..20u32).prop_map(Step::Turn),
        3 => any::<bool>().prop_map(|has_deadline| Step::Add { has_deadline }),
        2 => any::<usize>().prop_map(Step::Remove),
        6 => (any::<usize>(), 0..12u64, 0..REASONS.len())
            .prop_map(|(at, bytes, reason)| Step::Set(at, bytes, reason)),
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
    let woken = twin.iter().enumerate().filter(|(at, request)| is_closed || is_ready(*at, request));
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
                    twin.push(Request { number, bytes: 0, awaited: Awaited::Nothing, has_deadline });
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
                Step::Release { charged, idle, released, is_closed } => {
                    let caps = Caps { limit: 8, ..Caps::default() };
                    let mut accounts = Accounts::new(caps, Arc::default());
                    accounts.now.charged = charged.max(idle + released);
                    accounts.now.cached = idle + released;
                    accounts.evict(released);
                    let woken = expected(&twin, &accounts, is_closed, is_open);
                    let wakers = queue.ready(&accounts, is_closed);
                    prop_assert_eq!(wakers.len(), woken.len());
                    let is_of = |(waker, number): (&Arc<Condvar>, &u64)| {
                        queue.waker(*number).is_some_and(|own| Arc::ptr_eq(&own, waker))
                    };
                    prop_assert!(wakers.iter().zip(&woken).all(is_of));
                }
            }
            prop_assert!(queue.waker(queue.begun + 1).is_none(), "it is not queued");
            let deadlines = twin.iter().filter(|request| request.has_deadline).count() as u64;
            prop_assert_eq!(queue.deadlines, deadlines);
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
