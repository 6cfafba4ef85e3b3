//! Limits of the memory that each client may hold.

use super::{MIB, broker, device};
use vrampool_broker::{ArrayRequest, BrokerError, Client, Share, ShareError};

#[test]
fn test_register_and_drop_change_everybodys_share() {
    let (broker, _) = broker(&device(100 * MIB));
    let first = broker.register(Client::new("first")).expect("a client");
    assert_eq!((first.stats().proportion, first.stats().cap_bytes), (1.0, 100 * MIB));
    let second = broker.register(Client::new("second")).expect("a client");
    assert_eq!((first.stats().proportion, second.stats().proportion), (0.5, 0.5));
    let third = broker.register(Client::new("third").share(Share::Fixed(0.5))).expect("a client");
    assert_eq!((first.stats().proportion, third.stats().cap_bytes), (0.25, 50 * MIB));
    third.set_share(Share::Fixed(0.4)).expect("a share");
    assert_eq!((first.stats().proportion, second.stats().proportion), (0.3, 0.3));
    third.set_share(Share::Auto).expect("a share");
    assert_eq!(first.stats().proportion, 1.0 / 3.0);
    drop((second, third));
    assert_eq!((first.stats().proportion, broker.stats().clients), (1.0, 1));
}

/// The seed's text promises it, and its source asks for one more call.
#[test]
fn giving_a_share_turns_limits_on() {
    let (broker, _) = broker(&device(100 * MIB));
    let other = broker.register(Client::new("other").group("other")).expect("a client");
    let automatic = broker.register(Client::new("automatic")).expect("a client");
    automatic.queue(ArrayRequest::scratch("x", [100 * MIB], 1)).expect("queued");
    let held = || {
        broker.commit("default").expect("it fits").run(|_, _| Ok(())).expect("a run");
        automatic.stats().held_bytes
    };
    assert_eq!((automatic.stats().cap_bytes, held()), (50 * MIB, 100 * MIB));
    let fixed =
        broker.register(Client::new("fixed").group("fixed").share(Share::Fixed(0.2))).expect("a client");
    assert_eq!(held(), 40 * MIB);
    // Without a share, whether it changes or ends, all may take all again.
    fixed.set_share(Share::Auto).expect("a share");
    assert_eq!(held(), 100 * MIB);
    other.set_share(Share::Bytes(30 * MIB)).expect("a share");
    assert_eq!((held(), other.stats().cap_bytes), (35 * MIB, 30 * MIB));
    drop(other);
    assert_eq!((automatic.stats().cap_bytes, held()), (50 * MIB, 100 * MIB));
}

/// CuBIE added the client, and then raised.
#[test]
fn test_register_proportion_out_of_range() {
    let (broker, _) = broker(&device(100 * MIB));
    for share in [Share::Fixed(1.5), Share::Fixed(-0.5), Share::Bytes(101 * MIB)] {
        let error = broker.register(Client::new("greedy").share(share)).expect_err("no such share");
        assert!(matches!(error, BrokerError::Share(ShareError::OutOfRange { .. })), "{error}");
    }
    assert_eq!(broker.stats().clients, 0);
    let client = broker.register(Client::new("modest").share(Share::Fixed(0.9))).expect("nothing is taken");
    let error = client.set_share(Share::Fixed(2.0)).expect_err("no such share");
    assert!(matches!(error, BrokerError::Share(_)) && client.stats().proportion == 0.9);
}

#[test]
fn test_add_manual_proportion_warns_low_autopool_and_auto_raises() {
    let (broker, warnings) = broker(&device(100 * MIB));
    let _fixed = broker.register(Client::new("fixed").share(Share::Fixed(0.97))).expect("a client");
    assert_eq!((warnings.count("fixed shares are 0.970 of the device"), warnings.count("")), (1, 1));
    let error = broker.register(Client::new("automatic")).expect_err("there is no room");
    assert!(matches!(error, BrokerError::Share(ShareError::BelowFloor { .. })), "{error}");
    assert_eq!(broker.stats().clients, 1);
}

/// What a former client had is there for the others' next commit, though they ask for nothing new.
#[test]
fn a_share_that_grows_makes_the_next_commit_coarser() {
    let (broker, _) = broker(&device(100 * MIB));
    let fixed =
        broker.register(Client::new("fixed").group("fixed").share(Share::Fixed(0.5))).expect("a client");
    let other = broker.register(Client::new("other").group("other")).expect("a client");
    let client = broker.register(Client::new("growing")).expect("a client");
    client.queue(ArrayRequest::scratch("x", [100 * MIB], 1)).expect("queued");
    let chunks = || broker.commit("default").expect("it fits").partition().chunks();
    assert_eq!(chunks(), 4);
    drop(other);
    assert_eq!(chunks(), 2);
    drop(fixed);
    assert_eq!((chunks(), client.stats().held_bytes), (1, 100 * MIB));
}

#[test]
fn a_share_that_shrinks_makes_the_next_commit_finer() {
    let (broker, _) = broker(&device(100 * MIB));
    let client = broker.register(Client::new("shrinking").share(Share::Fixed(0.5))).expect("a client");
    client.queue(ArrayRequest::scratch("x", [80 * MIB], 1)).expect("queued");
    let plan = broker.commit("default").expect("it fits in two");
    assert_eq!((plan.partition().chunks(), client.stats().held_bytes), (2, 50 * MIB));
    client.set_share(Share::Fixed(0.25)).expect("a share");
    let plan = broker.commit("default").expect("it fits in four");
    assert_eq!((plan.partition().chunks(), client.stats().held_bytes), (4, 25 * MIB));
}
