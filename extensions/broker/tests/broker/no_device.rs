//! A device that does not answer: CuBIE's tests of a manager without one, by their names. A broker is made
//! for a device that is open, so "no device" is one that does not report its figures, and later may.

use super::{MIB, device, pool};
use vrampool::host::{Call, HostDevice};
use vrampool::{BackendError, Error};
use vrampool_broker::{ArrayRequest, Broker, BrokerError, Client, HostBacking};

/// A device that does not answer the next questions for its memory.
fn silent(questions: u64) -> HostDevice {
    let device = device(MIB);
    (1..=questions).for_each(|nth| device.faults().fail_nth_with(Call::MemoryInfo, nth, no_answer()));
    device
}

fn no_answer() -> BackendError {
    BackendError::unavailable("host", "no answer")
}

fn is_no_answer(error: &BrokerError) -> bool {
    matches!(error, BrokerError::Memory(Error::Backend(error)) if **error == no_answer())
}

/// It is made, of the size that the device is said to be.
#[test]
fn test_attrs_post_init_cuda_less_environment() {
    let broker = Broker::builder(&pool(&silent(1))).build().expect("a broker");
    let client = broker.register(Client::new("client")).expect("a client");
    assert_eq!((client.stats().cap_bytes, broker.stats().pinned_budget_bytes), (MIB, MIB));
}

/// The device's own error, whatever asks.
#[test]
fn test_sizing_raises_from_the_stored_probe_error() {
    let broker = Broker::builder(&pool(&silent(2))).build().expect("a broker");
    let client = broker.register(Client::new("client")).expect("a client");
    client.queue(ArrayRequest::scratch("x", [1000], 1)).expect("queued");
    let error = broker.commit("default").expect_err("no figures");
    assert!(is_no_answer(&error), "{error:?}");
    assert_eq!((client.stats().held_bytes, client.stats().queued), (0, 1));
}

#[test]
fn test_sizing_recovers_when_a_device_appears() {
    let broker = Broker::builder(&pool(&silent(2))).build().expect("a broker");
    let client = broker.register(Client::new("client")).expect("a client");
    client.queue(ArrayRequest::scratch("x", [2 * MIB], 1)).expect("queued");
    assert!(broker.commit("default").is_err());
    // By itself: what was queued still is.
    assert_eq!(broker.commit("default").expect("it fits in two").partition().chunks(), 2);
}

/// Files and pageable memory need no device.
#[test]
fn test_choose_host_memory_type_host_only_without_device() {
    let device = device(MIB);
    let broker =
        Broker::builder(&pool(&device)).spill_threshold(1024).pinned_max(64).build().expect("a broker");
    device.faults().lose_device();
    assert_eq!(broker.host_array(2048).expect("an array").backing(), HostBacking::File);
    assert_eq!(broker.host_array(128).expect("an array").backing(), HostBacking::Pageable);
    assert!(broker.host_array(64).is_err_and(|error| error.is_device_lost()), "that would be pinned");
}
