//! A tree of ledgers against a naive twin, alone and with threads.

use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use vrampool::Ledger;
use vrampool::backend::spi::Grant;

#[derive(Debug, Clone)]
enum Step {
    Child { of: usize, limit: Option<u64> },
    SetLimit { of: usize, limit: Option<u64> },
    Reserve { of: usize, bytes: u64 },
    Force { of: usize, bytes: u64 },
    Split { grant: usize, bytes: u64 },
    Merge { into: usize, from: usize },
    Drop { grant: usize },
}

fn limit() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![4 => (0..100u64).prop_map(Some), 1 => Just(None)]
}

fn bytes() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0..60u64, 1 => Just(u64::MAX), 1 => Just(u64::MAX - 10)]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = any::<usize>;
    let step = prop_oneof![
        2 => (index(), limit()).prop_map(|(of, limit)| Step::Child { of, limit }),
        1 => (index(), limit()).prop_map(|(of, limit)| Step::SetLimit { of, limit }),
        8 => (index(), bytes()).prop_map(|(of, bytes)| Step::Reserve { of, bytes }),
        1 => (index(), bytes()).prop_map(|(of, bytes)| Step::Force { of, bytes }),
        2 => (index(), bytes()).prop_map(|(grant, bytes)| Step::Split { grant, bytes }),
        2 => (index(), index()).prop_map(|(into, from)| Step::Merge { into, from }),
        5 => index().prop_map(|grant| Step::Drop { grant }),
    ];
    prop::collection::vec(step, 1..120)
}

/// A ledger and what the twin knows of it.
struct Twin {
    ledger: Ledger,
    parent: Option<usize>,
    limit: Option<u64>,
    peak: u64,
}

/// The ledgers from `at` to the root.
fn up(twins: &[Twin], at: usize) -> Vec<usize> {
    std::iter::successors(Some(at), |&at| twins[at].parent).collect()
}

/// The sum of the grants of a ledger and those below it.
fn charged(twins: &[Twin], grants: &[(usize, Grant)], of: usize) -> u128 {
    let below = grants.iter().filter(|(at, _)| up(twins, *at).contains(&of));
    below.map(|(_, grant)| u128::from(grant.bytes())).sum()
}

proptest! {
    #[test]
    fn ledgers_are_their_naive_twins(steps in steps()) {
        let mut twins = vec![Twin { ledger: Ledger::new(90), parent: None, limit: Some(90), peak: 0 }];
        let mut grants: Vec<(usize, Grant)> = Vec::new();
        for step in steps {
            let of = |index: usize| index % twins.len();
            match step {
                Step::Child { of: index, limit } => {
                    let at = of(index);
                    let ledger = twins[at].ledger.child(limit);
                    twins.push(Twin { ledger, parent: Some(at), limit, peak: 0 });
                }
                Step::SetLimit { of: index, limit } => {
                    let at = of(index);
                    twins[at].ledger.set_limit(limit);
                    twins[at].limit = limit;
                }
                Step::Reserve { of: index, bytes } => {
                    let at = of(index);
                    // No bytes fit anywhere.
                    let fits = bytes == 0 || up(&twins, at).into_iter().all(|at| {
                        let most = twins[at].limit.map_or(u128::from(u64::MAX), u128::from);
                        charged(&twins, &grants, at) + u128::from(bytes) <= most
                    });
                    match twins[at].ledger.reserve(bytes) {
                        Ok(grant) => {
                            prop_assert!(fits, "{bytes} bytes were granted");
                            prop_assert_eq!(grant.bytes(), bytes);
                            grants.push((at, grant));
                        }
                        Err(error) => {
                            prop_assert!(!fits && error.is_out_of_memory(), "{bytes} bytes: {error}");
                        }
                    }
                }
                Step::Force { of: index, bytes } => {
                    let at = of(index);
                    let grant = twins[at].ledger.force(bytes);
                    grants.push((at, grant));
                }
                Step::Split { grant, bytes } if !grants.is_empty() => {
                    let at = grant % grants.len();
                    let (of, ref mut grant) = grants[at];
                    let before = grant.bytes();
                    let part = grant.split(bytes);
                    prop_assert_eq!(part.bytes(), bytes.min(before));
                    prop_assert_eq!(grant.bytes() + part.bytes(), before);
                    grants.push((of, part));
                }
                Step::Merge { into, from } if grants.len() > 1 => {
                    let (of, from) = grants.swap_remove(from % grants.len());
                    let at = into % grants.len();
                    let (other, into) = &mut grants[at];
                    let sum = into.bytes() + from.bytes();
                    match into.merge(from) {
                        Ok(()) => prop_assert!(of == *other && into.bytes() == sum),
                        Err(refused) => {
                            prop_assert!(of != *other);
                            grants.push((of, refused));
                        }
                    }
                }
                Step::Drop { grant } if !grants.is_empty() => drop(grants.swap_remove(grant % grants.len())),
                Step::Split { .. } | Step::Merge { .. } | Step::Drop { .. } => {}
            }
            for at in 0..twins.len() {
                let charged = charged(&twins, &grants, at);
                twins[at].peak = twins[at].peak.max(charged as u64);
                let ledger = &twins[at].ledger;
                prop_assert_eq!(u128::from(ledger.charged()), charged);
                prop_assert_eq!((ledger.peak(), ledger.limit()), (twins[at].peak, twins[at].limit));
            }
        }
        drop(grants);
        prop_assert!(twins.iter().all(|twin| twin.ledger.charged() == 0));
    }
}

/// Children of one ledger, many threads: no limit is exceeded at any instant, and a request that fits is not
/// refused because another one fails.
#[test]
fn limits_are_exact_under_threads() {
    let root = Ledger::new(1000);
    let children = [root.child(600), root.child(600), root.child(None)];
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..6)
            .map(|thread| {
                let (root, child) = (&root, &children[thread % 3]);
                scope.spawn(move || {
                    for round in 0..20_000u64 {
                        // Never granted, and never seen by others.
                        assert!(child.reserve(1001).is_err());
                        // 6 threads of at most 90 bytes: always granted.
                        let mut grant = child.reserve(round % 60).expect("it fits");
                        let more = child.reserve(30).expect("it fits");
                        grant.merge(more).expect("of the same ledger");
                        drop(grant.split(round % 7));
                        assert!(root.charged() <= 540);
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                assert!(children.iter().all(|child| child.charged() <= 540));
            }
        });
        threads.into_iter().for_each(|thread| thread.join().expect("no panic"));
        is_over.store(true, Relaxed);
    });
    assert_eq!((root.charged(), root.free()), (0, 1000));
    assert!(root.peak() <= 540);
}
