//! Accounts of single steps.

use super::*;
use crate::environment::UNLIMITED;

fn budget(limit: u64, soft: u64) -> Budget {
    Budget::new(Caps {
        max_cached_bytes: UNLIMITED,
        max_buffers_per_bucket: UNLIMITED,
        limit,
        budget: soft,
        ..Caps::default()
    })
}

#[test]
fn a_miss_takes_the_place_of_what_it_evicts() {
    let mut budget = budget(100, UNLIMITED);
    budget.promise(60, 0);
    budget.allocated(60, 60);
    budget.returned(60, 60);
    budget.cached(60);
    assert_eq!(budget.room(70), Room::Evict(30));
    budget.evict(60);
    assert_eq!(budget.promise(70, 60), 0, "all that was evicted is replaced");
    assert_eq!(budget.now.charged, 70);
    assert_eq!(budget.room(40), Room::Full, "nobody else gets the place in between");
    budget.broken(70);
    assert_eq!(budget.now, Bytes::default());
    assert_eq!(budget.peak.held, 60, "what the device did not give was not held");
}

#[test]
fn surplus_of_an_eviction_comes_back() {
    let mut budget = budget(100, UNLIMITED);
    budget.promise(90, 0);
    budget.allocated(90, 90);
    budget.returned(90, 90);
    budget.cached(90);
    budget.evict(90);
    assert_eq!(budget.promise(20, 90), 70);
    assert_eq!(budget.room(80), Room::Wait, "70 are on their way back");
    assert_eq!(budget.room(81), Room::Full);
    budget.freed(70);
    assert_eq!(budget.room(80), Room::Evict(0));
}

#[test]
fn what_others_are_promised_is_no_part_of_the_peak() {
    let mut budget = budget(100, UNLIMITED);
    budget.promise(30, 0);
    budget.promise(50, 0);
    budget.allocated(30, 30);
    assert_eq!((budget.now.charged, budget.now.held(), budget.peak.held), (80, 30, 30));
    budget.broken(50);
    assert_eq!((budget.now.charged, budget.now.held(), budget.peak.held), (30, 30, 30));
}

#[test]
fn empty_slots_are_no_part_of_what_was_idle() {
    let mut budget = budget(100, UNLIMITED);
    budget.promise(60, 0);
    budget.allocated(60, 60);
    budget.lease(80);
    assert_eq!(budget.peak.cached, 60, "magazines keep no more than is out");
    budget.returned(60, 60);
    budget.cached(60);
    assert_eq!(budget.peak.cached, 60, "it is in the bucket, and in no slot");
}

#[test]
fn slots_shrink_with_what_the_limit_leaves() {
    let mut budget = budget(800, UNLIMITED);
    assert_eq!(budget.leasable(1, 0), 100, "an eighth of the limit");
    budget.taken(640, 640);
    assert_eq!(budget.leasable(1, 0), 40, "a quarter of the rest");
    budget.lease(40);
    assert_eq!((budget.leasable(1, 0), budget.is_overleased()), (0, false));
    budget.taken(100, 100);
    assert!(budget.is_overleased());
    budget.taken(50, 50);
    assert_eq!(budget.room(20), Room::Full);
    assert!(budget.may_fit_without_magazines(50) && !budget.may_fit_without_magazines(51));
    budget.give_up_waiting();
    assert!(!budget.may_fit_without_magazines(50), "it is waited for once");
    budget.unlease(30);
    assert_eq!(budget.awaited(), 0);
    budget.lease(5);
    assert_eq!(budget.awaited(), 5);
}

#[test]
fn the_soft_budget_evicts_but_does_not_refuse() {
    let mut budget = budget(UNLIMITED, 50);
    assert_eq!(budget.room(80), Room::Evict(0));
    budget.promise(40, 0);
    budget.allocated(40, 40);
    budget.returned(40, 40);
    budget.cached(40);
    assert_eq!(budget.room(20), Room::Evict(10));
    assert_eq!(budget.room(80), Room::Evict(40));
    assert_eq!(budget.room(u64::MAX), Room::Full, "sums that overflow are no room");
}
