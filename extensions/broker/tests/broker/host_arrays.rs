//! Arrays of the host's.

use super::{MIB, Squarer, device, floats, numbers, pool};
use std::borrow::Cow;
use vrampool::{Backend, BackendError, Event};
use vrampool_broker::{Broker, BrokerError, Client, HostArray, HostBacking, HostSource};
use vrampool_test_support::close_gate;

#[test]
fn test_choose_host_memory_type_applies_policy() {
    let directory = tempfile::tempdir().expect("a directory");
    let device = device(16 * MIB);
    let broker = Broker::builder(&pool(&device))
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
    let forced = broker.host_array_in(MIB, HostBacking::Pinned).expect("past the budget");
    assert_eq!(broker.stats().pinned_live_bytes, 2 * MIB + 1);
    drop((held, forced));
    assert_eq!(broker.stats().pinned_live_bytes, 0);
}

/// As many pinned bytes as the device has. The default threshold is that of `budget` in `src/builder.rs`.
#[test]
fn test_choose_host_memory_type_default_threshold() {
    let broker = Broker::builder(&pool(&device(MIB))).spill_threshold(8 * MIB).build().expect("a broker");
    let backing = |bytes| broker.host_array(bytes).expect("an array").backing();
    assert_eq!(backing(8 * MIB + 1), HostBacking::File);
    assert_eq!(backing(8 * MIB), HostBacking::Pageable);
    assert_eq!((backing(128), broker.stats().pinned_budget_bytes), (HostBacking::Pinned, MIB));
}

/// A view that is about still keeps the array, and so its bytes: that it cannot outlive it is the compiler's
/// business.
#[test]
fn test_pinned_view_keeps_reservation() {
    let broker = Broker::builder(&pool(&device(MIB))).pinned_max(1024).build().expect("a broker");
    let array = broker.host_array(768).expect("an array");
    let view = HostSource::from(&array);
    assert_eq!(
        (broker.stats().pinned_live_bytes, broker.host_array(768).expect("an array").backing()),
        (768, HostBacking::Pageable)
    );
    drop(view);
    drop(array);
    assert_eq!(broker.stats().pinned_live_bytes, 0);
    assert_eq!(broker.host_array(768).expect("an array").backing(), HostBacking::Pinned);
}

#[test]
fn test_host_arrays_spill_to_disk_and_results_match() {
    let device = device(200_000);
    let broker = Broker::builder(&pool(&device))
        .staging(64 << 10, 64 << 10)
        .spill_threshold(512)
        .build()
        .expect("a broker");
    let squarer = Squarer::new(&broker, Client::new("client"), 100_000);
    let plan = broker.commit("default").expect("it fits in parts");
    let numbers = numbers(100_000);
    let mut source = broker.host_array(400_000).expect("an array");
    source.write_at(&numbers, 0).expect("written");
    let mut sink = broker.host_array(400_000).expect("an array");
    assert_eq!(
        (source.backing(), sink.backing(), broker.stats().spilled_bytes),
        (HostBacking::File, HostBacking::File, 800_000)
    );
    let run = plan.execution().upload(squarer.from, &source).download(squarer.to, &mut sink);
    assert!(run.run(|chunk, stream| squarer.work(chunk, stream)).expect("a run").chunks > 1);
    let mut spilled = vec![0; 400_000];
    sink.read_at(&mut spilled, 0).expect("read");
    assert!(floats(&numbers).zip(floats(&spilled)).all(|(from, to)| to == from * from));
    drop((source, sink));
    assert_eq!(broker.stats().spilled_bytes, 0);
}

/// Neither making an array in a file nor a run to and from it waits for what another stream has to do.
#[test]
fn test_host_spill_does_not_wait_for_unrelated_stream() {
    let device = device(200_000);
    let broker = Broker::builder(&pool(&device))
        .staging(64 << 10, 64 << 10)
        .spill_threshold(1)
        .build()
        .expect("a broker");
    let blocked = broker.stream("unrelated").expect("a stream");
    let open = close_gate(&blocked);
    let behind = device.record(&blocked).expect("recorded");
    let squarer = Squarer::new(&broker, Client::new("client"), 50_000);
    let plan = broker.commit("default").expect("it fits in parts");
    let mut source = broker.host_array(200_000).expect("an array");
    source.write_at(&numbers(50_000), 0).expect("written");
    let mut sink = broker.host_array(200_000).expect("an array");
    let run = plan.execution().upload(squarer.from, &source).download(squarer.to, &mut sink);
    run.run(|chunk, stream| squarer.work(chunk, stream)).expect("the other is independent");
    assert_eq!(behind.is_complete(), Ok(false));
    assert!(broker.stats().peak_staging_bytes <= 64 << 10);
    drop(open);
    device.synchronize(&blocked).expect("no failure");
}

#[test]
fn arrays_are_read_and_written_alike_wherever_they_are() {
    let broker = Broker::builder(&pool(&device(MIB))).build().expect("a broker");
    for backing in [HostBacking::Pinned, HostBacking::Pageable, HostBacking::File] {
        let mut array = broker.host_array_in(10_001, backing).expect("an array");
        assert_eq!((array.backing(), array.len(), array.is_empty()), (backing, 10_001, false));
        array.write_at(&[7, 8], 9_999).expect("written");
        let mut bytes = [1; 3];
        array.read_at(&mut bytes, 9_998).expect("read");
        assert!(bytes[1..] == [7, 8] && (bytes[0] == 0 || backing == HostBacking::Pinned), "{bytes:?}");
        assert!(matches!(array.write_at(&[1, 2], 10_000), Err(BrokerError::Memory(_))));
        assert!(matches!(array.read_at(&mut bytes, u64::MAX), Err(BrokerError::Memory(_))));
    }
}

/// The results of a run in chunks are seen in place, at one address for every view; those in a file are read, and
/// only the range of the view.
#[test]
fn results_are_viewed_without_a_copy() {
    const RUNS: u64 = 50_000;
    for backing in [HostBacking::Pinned, HostBacking::Pageable, HostBacking::File] {
        let device = device(800_000);
        let broker = Broker::builder(&pool(&device))
            .staging(64 << 10, 64 << 10)
            .budget(100_000)
            .build()
            .expect("a broker");
        let squarer = Squarer::new(&broker, Client::new("client"), RUNS);
        let plan = broker.commit("default").expect("it fits in parts");
        let mut sink = broker.host_array_in(4 * RUNS, backing).expect("an array");
        let mut first = None;
        for round in 0..2 {
            let scaled: Vec<u8> =
                floats(&numbers(RUNS)).flat_map(|number| (number + round as f32).to_ne_bytes()).collect();
            let run = plan.execution().upload(squarer.from, &scaled[..]).download(squarer.to, &mut sink);
            assert!(run.run(|chunk, stream| squarer.work(chunk, stream)).expect("a run").chunks > 1);
            let view = sink.view::<f32>(..).expect("all of it");
            assert!(
                view.len() as u64 == RUNS
                    && view.iter().zip(floats(&scaled)).all(|(to, from)| *to == from * from)
            );
            assert_eq!(matches!(view, Cow::Borrowed(_)), backing != HostBacking::File, "{backing:?}");
            let address = view.as_ptr();
            if backing != HostBacking::File {
                assert_eq!(*first.get_or_insert(address), address, "{backing:?}");
            }
            // The view can go to a thread, as a slice does.
            std::thread::scope(|scope| scope.spawn(|| view[7]).join().expect("no panic"));
        }
        let part = sink.view::<[f32; 2]>(10..=11).expect("two pairs").into_owned();
        assert_eq!(part[1], [23.0 * 23.0, 24.0 * 24.0]);
        assert!(sink.view::<u8>(4 * RUNS..).expect("none").is_empty());
        let refused = |error: BrokerError, text: &str| assert!(error.to_string().contains(text), "{error}");
        refused(sink.view::<f32>(..RUNS + 1).expect_err("it ends before"), "the array has 50000 of them");
        refused(sink.view::<f32>(u64::MAX..).expect_err("it ends before"), "the array has 50000 of them");
        refused(sink.view::<[u8; 3]>(..).expect_err("a third of one is left"), "whole number");
        refused(sink.view::<()>(..).expect_err("it has no bytes"), "whole number");
        drop(sink.view::<u8>(..));
    }
}

/// A spilled array's file has no name, so that no end of the process can leave it behind and no removal can
/// fail. Windows removes it, with its name, when its last handle is closed.
#[test]
fn spill_files_never_outlive_their_process() {
    let directory = tempfile::tempdir().expect("a directory");
    let broker =
        Broker::builder(&pool(&device(MIB))).spill_directory(directory.path()).build().expect("a broker");
    let array = broker.host_array_in(50 * MIB, HostBacking::File).expect("an array");
    let entries = || std::fs::read_dir(directory.path()).expect("a listing").count();
    assert_eq!((array.len(), entries()), (50 * MIB, usize::from(cfg!(windows))));
    if cfg!(windows) {
        drop(array);
    } else {
        // Not even its destructor is needed.
        std::mem::forget(array);
    }
    assert_eq!(entries(), 0);
}

#[test]
fn settings_that_cannot_be_are_refused() {
    let device = device(MIB);
    let refused = |builder: vrampool_broker::BrokerBuilder<_>, wanted: &str| {
        let error = builder.build().expect_err(wanted);
        assert!(matches!(&error, BrokerError::Setting { field, .. } if *field == wanted), "{error}");
    };
    refused(Broker::builder(&pool(&device)).granularity(0), "granularity");
    refused(Broker::builder(&pool(&device)).spill_threshold(0), "spill_threshold");
    refused(Broker::builder(&pool(&device)).spill_directory("/nowhere/at/all"), "spill_directory");
    device.faults().lose_device();
    assert!(matches!(Broker::builder(&pool(&device)).build(), Ok(_) | Err(BrokerError::Memory(_))));
    assert!(matches!(device.memory_info(), Err(BackendError::DeviceLost { .. })));
}

#[test]
fn a_device_that_refuses_pinned_memory_leaves_pageable() {
    let device = device(MIB);
    let broker = Broker::builder(&pool(&device)).pinned_max(8 * MIB).build().expect("a broker");
    let array = broker.host_array(2 * MIB).expect("an array");
    assert_eq!((array.backing(), broker.stats().pinned_live_bytes), (HostBacking::Pageable, 0));
    let forced = broker.host_array_in(2 * MIB, HostBacking::Pinned);
    assert!(forced.is_err_and(|error| error.is_out_of_memory()));
    assert_eq!(broker.stats().pinned_live_bytes, 0);
}

/// Each array by itself is below the limit, and together they would take more than the host has.
#[test]
fn arrays_in_memory_are_bounded_together() {
    use HostBacking::{File, Pageable, Pinned};
    let directory = tempfile::tempdir().expect("a directory");
    let backings = |pinned_max: u64| {
        let broker = Broker::builder(&pool(&device(1 << 40)))
            .spill_threshold(80 * MIB)
            .pinned_max(pinned_max)
            .spill_directory(directory.path())
            .build()
            .expect("a broker");
        let arrays: Vec<_> = (0..5).map(|_| broker.host_array(35 * MIB).expect("an array")).collect();
        let all: Vec<_> = arrays.iter().map(HostArray::backing).collect();
        // What ends makes room.
        drop(arrays);
        assert_ne!(broker.host_array(70 * MIB).expect("an array").backing(), File);
        all
    };
    assert_eq!(backings(0), [Pageable, Pageable, File, File, File]);
    assert_eq!(backings(40 * MIB), [Pinned, Pageable, File, File, File]);
    assert_eq!(backings(u64::MAX), [Pinned, Pinned, File, File, File]);
}

/// Less of a batch on the device would not help, nor would any other remedy for a lack of the device's memory.
#[test]
fn a_lack_of_host_memory_is_not_the_devices() {
    let broker = Broker::builder(&pool(&device(MIB))).build().expect("a broker");
    for bytes in [1 << 60, u64::MAX] {
        let error = broker.host_array_in(bytes, HostBacking::Pageable).expect_err("more than there is");
        assert!(!error.is_out_of_memory() && error.out_of_memory().is_none(), "{error}");
        assert!(error.to_string().contains("host memory") && error.to_string().contains("file"), "{error}");
        assert!(matches!(error, BrokerError::HostMemory { requested_bytes, .. } if requested_bytes == bytes));
    }
}

/// The remedy follows the cause.
#[test]
fn a_spill_that_fails_names_its_directory_and_the_remedy_of_its_cause() {
    let directory = tempfile::tempdir().expect("a directory");
    let spill = directory.path().join("spill");
    std::fs::create_dir(&spill).expect("a directory");
    let broker = Broker::builder(&pool(&device(MIB))).spill_directory(&spill).build().expect("a broker");
    std::fs::remove_dir(&spill).expect("it is empty");
    let error = broker.host_array_in(MIB, HostBacking::File).expect_err("it was removed").to_string();
    assert!(error.contains(&*spill.to_string_lossy()) && error.contains("create the directory"), "{error}");
    assert!(!error.contains("space"), "{error}");
    // A file is no directory.
    std::fs::write(&spill, b"").expect("written");
    let error = broker.host_array_in(MIB, HostBacking::File).expect_err("it is a file").to_string();
    assert!(error.contains("choose a directory") && !error.contains("space"), "{error}");
}
