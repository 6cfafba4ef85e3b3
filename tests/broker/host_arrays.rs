//! Arrays of the host's.

use super::{MIB, device};
use vrampool::broker::{Broker, BrokerError, HostBacking};
use vrampool::{Backend, BackendError};

#[test]
fn test_choose_host_memory_type_by_thresholds_and_ledger() {
    let directory = tempfile::tempdir().expect("a directory");
    let device = device(16 * MIB);
    let broker = Broker::builder(&device)
        .pinned_max(2 * MIB)
        .spill_threshold(4 * MIB)
        .spill_directory(directory.path())
        .build()
        .expect("a broker");
    let backing = |bytes| broker.host_array(bytes).expect("an array").backing();
    assert_eq!(backing(2 * MIB), HostBacking::Pinned);
    assert_eq!(backing(2 * MIB + 1), HostBacking::Pageable);
    assert_eq!(backing(4 * MIB + 1), HostBacking::File);
    // The ledger is full.
    let held = broker.host_array(MIB + 1).expect("an array");
    assert_eq!(backing(MIB), HostBacking::Pageable);
    let forced = broker.host_array_in(HostBacking::Pinned, MIB).expect("past the budget");
    assert_eq!(broker.pinned_ledger().live_bytes(), 2 * MIB + 1);
    drop((held, forced));
    assert_eq!(broker.pinned_ledger().live_bytes(), 0);
}

#[test]
fn arrays_are_read_and_written_alike_wherever_they_are() {
    let broker = Broker::builder(&device(MIB)).build().expect("a broker");
    for backing in [HostBacking::Pinned, HostBacking::Pageable, HostBacking::File] {
        let mut array = broker.host_array_in(backing, 10_001).expect("an array");
        assert_eq!((array.backing(), array.len(), array.is_empty()), (backing, 10_001, false));
        array.write(9_999, &[7, 8]).expect("written");
        let mut bytes = [0; 3];
        array.read(9_998, &mut bytes).expect("read");
        assert_eq!(bytes[1..], [7, 8]);
        assert!(matches!(array.write(10_000, &[1, 2]), Err(BrokerError::Memory(_))));
        assert!(matches!(array.read(u64::MAX, &mut bytes), Err(BrokerError::Memory(_))));
    }
}

/// A spilled array's file has no name, so that there is none to be left by whatever ends the process, and none whose removal fails.
#[test]
fn spill_files_are_gone_whatever_happens() {
    let directory = tempfile::tempdir().expect("a directory");
    let broker = Broker::builder(&device(MIB)).spill_directory(directory.path()).build().expect("a broker");
    let array = broker.host_array_in(HostBacking::File, 50 * MIB).expect("an array");
    let entries = || std::fs::read_dir(directory.path()).expect("a listing").count();
    assert_eq!((array.len(), entries()), (50 * MIB, 0));
    // Not even its destructor is needed.
    std::mem::forget(array);
    assert_eq!(entries(), 0);
    let gone = directory.path().join("gone");
    std::fs::create_dir(&gone).expect("a directory");
    let broker = Broker::builder(&device(MIB)).spill_directory(&gone).build().expect("a broker");
    std::fs::remove_dir(&gone).expect("removed");
    let error = broker.host_array_in(HostBacking::File, MIB).expect_err("there is no directory");
    assert!(matches!(error, BrokerError::Spill { .. }) && error.to_string().contains("choose a directory"));
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let device = device(MIB);
    let refused = |builder: vrampool::broker::BrokerBuilder<_>, wanted: &str| {
        let error = builder.build().expect_err(wanted);
        assert!(matches!(&error, BrokerError::Setting { field, .. } if *field == wanted), "{error}");
    };
    refused(Broker::builder(&device).granularity(0), "granularity");
    refused(Broker::builder(&device).spill_threshold(0), "spill_threshold");
    refused(Broker::builder(&device).spill_directory("/nowhere/at/all"), "spill_directory");
    device.faults().lose_device();
    assert!(matches!(Broker::builder(&device).build(), Ok(_) | Err(BrokerError::Memory(_))));
    assert!(matches!(device.memory_info(), Err(BackendError::DeviceLost { .. })));
}

#[test]
fn a_device_that_refuses_pinned_memory_leaves_pageable() {
    let device = device(MIB);
    let broker = Broker::builder(&device).pinned_max(8 * MIB).build().expect("a broker");
    let array = broker.host_array(2 * MIB).expect("an array");
    assert_eq!((array.backing(), broker.pinned_ledger().live_bytes()), (HostBacking::Pageable, 0));
    let forced = broker.host_array_in(HostBacking::Pinned, 2 * MIB);
    assert!(forced.is_err_and(|error| error.is_out_of_memory()));
    assert_eq!(broker.pinned_ledger().live_bytes(), 0);
}
