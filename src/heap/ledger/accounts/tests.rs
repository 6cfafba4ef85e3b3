//! Accounts of single steps.

use super::*;
use crate::environment::UNLIMITED;
use crate::heap::ledger::{Bounds, Level, Sum, Waiting};

fn accounts(limit: u64, soft: u64) -> Accounts {
    let caps = Caps {
        max_cached_bytes: UNLIMITED,
        max_buffers_per_bucket: UNLIMITED,
        limit,
        budget: soft,
        ..Caps::default()
    };
    Accounts::new(caps, Arc::default())
}

#[test]
fn a_miss_takes_the_place_of_what_it_evicts() {
    let mut accounts = accounts(100, UNLIMITED);
    accounts.reserve(60, 0);
    accounts.allocated(60, 60);
    accounts.returned(60, 60);
    accounts.cached(60);
    assert_eq!(accounts.admission(70), Admission::Evict(30));
    accounts.evict(60);
    assert_eq!(accounts.reserve(70, 60), 0, "all that was evicted is replaced");
    assert_eq!(accounts.now.charged, 70);
    assert_eq!(accounts.admission(40), Admission::Full, "no other request gets the place in between");
    accounts.cancel(70);
    assert_eq!(accounts.now, Bytes::default());
    assert_eq!(accounts.peak.held_bytes, 60, "what the device did not give was not held");
}

/// As when a pool wakes while another one's bytes are reserved.
#[test]
fn a_limit_that_others_exceed_refuses_nothing_within_a_share() {
    let mut accounts = accounts(UNLIMITED, UNLIMITED);
    accounts.share = 50;
    let bounds = Bounds { limit: 100, share: 0, is_private: false };
    accounts.above.push(Level { bounds, beside: Sum { charged: 80, ..Sum::default() } });
    accounts.taken(20, 20);
    assert!(accounts.admits_at_once(30) && !accounts.is_over_limit_with(30));
    assert_eq!((accounts.lacking(30), accounts.admission(31)), (None, Admission::Full));
    assert_eq!((accounts.without_room_for(50), accounts.without_room_for(51)), (None, Some((1, 100))));
    accounts.caps.limit = 60;
    assert_eq!(accounts.refusing(30, 20, [].into_iter()), (0, 60), "an earlier request waits for 20");
    accounts.above[0].beside.charged = u64::MAX;
    assert_eq!((accounts.admits_at_once(30), accounts.admission(31)), (true, Admission::Full));
}

/// Its own memory in transit returns to it, not to a request of another pool.
#[test]
fn what_others_wait_for_refuses_nothing_within_a_share() {
    let mut accounts = accounts(100, UNLIMITED);
    accounts.share = 100;
    let bounds = Bounds { limit: 1000, share: 0, is_private: false };
    accounts.above.push(Level { bounds, beside: Sum::default() });
    accounts.taken(80, 80);
    accounts.freeing = 60;
    let waits = |height| [Waiting { number: 1, height, bytes: 950 }].into_iter();
    assert_eq!((accounts.admission(40), accounts.reserved_at(40, waits(1))), (Admission::Wait, None));
    assert_eq!(accounts.reserved_at(40, waits(0)), Some((0, 100)));
}

#[test]
fn surplus_of_an_eviction_comes_back() {
    let mut accounts = accounts(100, UNLIMITED);
    accounts.reserve(90, 0);
    accounts.allocated(90, 90);
    accounts.returned(90, 90);
    accounts.cached(90);
    accounts.evict(90);
    assert_eq!(accounts.reserve(20, 90), 70);
    assert_eq!(accounts.admission(80), Admission::Wait, "70 are on their way back");
    assert_eq!(accounts.admission(81), Admission::Full);
    accounts.freed(70);
    assert_eq!(accounts.admission(80), Admission::Evict(0));
}

#[test]
fn bytes_reserved_for_others_are_no_part_of_the_peak() {
    let mut accounts = accounts(100, UNLIMITED);
    accounts.reserve(30, 0);
    accounts.reserve(50, 0);
    accounts.allocated(30, 30);
    assert_eq!((accounts.now.charged, accounts.now.held(), accounts.peak.held_bytes), (80, 30, 30));
    accounts.cancel(50);
    assert_eq!((accounts.now.charged, accounts.now.held(), accounts.peak.held_bytes), (30, 30, 30));
}

#[test]
fn empty_slots_are_no_part_of_what_was_idle() {
    let mut accounts = accounts(100, UNLIMITED);
    accounts.reserve(60, 0);
    accounts.allocated(60, 60);
    accounts.lease(80);
    assert_eq!(accounts.peak.idle_bytes, 60, "magazines keep no more than is out");
    accounts.returned(60, 60);
    accounts.cached(60);
    assert_eq!(accounts.peak.idle_bytes, 60, "it is in the bucket, and in no slot");
}

#[test]
fn slots_shrink_with_what_the_limit_leaves() {
    let mut accounts = accounts(800, UNLIMITED);
    assert_eq!(accounts.leasable(1, 0), 100, "an eighth of the limit");
    accounts.taken(640, 640);
    assert_eq!(accounts.leasable(1, 0), 40, "a quarter of the rest");
    accounts.lease(40);
    assert_eq!((accounts.leasable(1, 0), accounts.is_overleased()), (0, false));
    accounts.taken(100, 100);
    assert!(accounts.is_overleased());
    accounts.taken(50, 50);
    assert_eq!(accounts.admission(20), Admission::Full);
    assert!(accounts.may_fit_without_magazines(50) && !accounts.may_fit_without_magazines(51));
    accounts.stop_waiting();
    assert!(!accounts.may_fit_without_magazines(50), "it is waited for once");
    accounts.unlease(30);
    assert_eq!(accounts.awaited(), 0);
    accounts.lease(5);
    assert_eq!(accounts.awaited(), 5);
}

#[test]
fn the_soft_budget_evicts_but_does_not_refuse() {
    let mut accounts = accounts(UNLIMITED, 50);
    assert_eq!(accounts.admission(80), Admission::Evict(0));
    accounts.reserve(40, 0);
    accounts.allocated(40, 40);
    accounts.returned(40, 40);
    accounts.cached(40);
    assert_eq!(accounts.admission(20), Admission::Evict(10));
    assert_eq!(accounts.admission(80), Admission::Evict(40));
    assert_eq!(accounts.admission(u64::MAX), Admission::Full, "sums that overflow are no room");
}

#[test]
fn needed_bytes_are_live_or_in_flight() {
    let mut accounts = accounts(UNLIMITED, UNLIMITED);
    accounts.taken(60, 60);
    assert_eq!(accounts.peak.needed_bytes, 60);
    accounts.returned(60, 60);
    accounts.cached(60);
    accounts.in_flight.store(65, Ordering::Relaxed);
    accounts.taken(30, 30);
    assert_eq!(accounts.peak.needed_bytes, 95);
    accounts.in_flight.store(5, Ordering::Relaxed);
    accounts.note_needed();
    assert_eq!(accounts.peak.needed_bytes, 95);
    accounts.reset_peaks(0);
    assert_eq!(accounts.peak.needed_bytes, 35);
    accounts.add(Delta::default(), Delta { live: 7, requested: 7 });
    assert_eq!(accounts.peak.needed_bytes, 42, "served by magazines in between");
}
