//! What was wrong with CuBIE, each with a test that would show it here. By their numbers, those of which a
//! test is elsewhere:
//!
//! | | |
//! |---|---|
//! | #327, #561 | `groups::the_allocator_changes_and_everybodys_state_stays` |
//! | #567, #576 | `share::test_set_manual_proportion_from_auto_pool`, and here |
//! | #568, #577 | `runs::test_repeat_chunked_solve_matches_first`, `chunks::test_allocate_queue_empty_rebroadcasts_chunk_parameters` |
//! | #593, #620 | `lifetimes::test_dead_manual_instances_release_proportion`, `pressure::test_dead_instances_release_at_once` |
//! | #644 | `chunks::test_active_cap_chunking_leaves_unrelated_stream_running`, and here |
//!
//! #438, #487, #621, #697, #712, and #713 are here alone.

use super::{MIB, Squarer, broker, device};
use vrampool::Backend;
use vrampool::host::{Call, HostDevice};
use vrampool_broker::{ArrayRequest, Broker, BrokerError, Client, Share};
use vrampool_test_support::close_gate;

/// #567 and #576.
#[test]
fn a_fixed_share_is_counted_once() {
    let (broker, _) = broker(&device(MIB));
    let client = broker.register(Client::new("client").share(Share::Fixed(0.6))).expect("a client");
    let _other = broker.register(Client::new("other")).expect("a client");
    for share in [0.9, 0.5, 0.95, 0.7] {
        client.set_share(Share::Fixed(share)).expect("it has room");
        assert_eq!(broker.shares().fixed, share);
    }
}

/// #438 and #487: with other axes before the runs, chunks of a small device had wrong strides. See also
/// `runs::test_chunked_results_match_unchunked`.
#[test]
fn chunks_along_any_axis_are_where_they_belong() {
    let device = device(20_000);
    let (broker, _) = broker(&device);
    let client = broker.register(Client::new("client")).expect("a client");
    let data: Vec<u8> = (0..7 * 30 * 5 * 20).map(|index: u32| (index % 251) as u8).collect();
    for (axis, shape) in [(0, [150, 7, 20]), (1, [7, 150, 20]), (2, [7, 20, 150])] {
        for streams in [1, 2] {
            broker.set_streams("default", streams).expect("idle");
            let request = ArrayRequest::in_out("x", shape, 1).chunk_axis(axis);
            let array = client.queue(request).expect("queued");
            let plan = broker.commit("default").expect("it fits");
            assert!(plan.partition().chunks() > 1);
            let mut bytes = data.clone();
            let report = plan.execution().exchange(array, &mut bytes[..]).run(|chunk, stream| {
                let region = chunk.region_mut(array)?;
                // What a chunk has at its row and run is what the array has there.
                let (range, rows) = (chunk.range(), shape[..axis].iter().product::<u64>());
                let run_bytes = shape[axis + 1..].iter().product::<u64>();
                stream.launch([], [region], move |[], [bytes]: [&mut [u8]; 1]| {
                    let len = range.end - range.start;
                    for row in 0..rows {
                        for byte in 0..len * run_bytes {
                            let index = (row * 150 + range.start) * run_bytes + byte;
                            let found = &mut bytes[(row * len * run_bytes + byte) as usize];
                            assert_eq!(*found, (index % 251) as u8);
                            *found ^= 0xFF;
                        }
                    }
                })?;
                Ok(())
            });
            report.expect("a run");
            assert!(bytes.iter().zip(&data).all(|(after, before)| *after == before ^ 0xFF));
        }
    }
}

/// #621: a solver whose results were in files lost its device memory to another, and then them.
#[test]
fn an_eviction_leaves_what_is_spilled() {
    let device = device(MIB);
    let broker =
        Broker::builder(&device).staging(64 << 10, 64 << 10).spill_threshold(1).build().expect("a broker");
    let one = Squarer::new(&broker, Client::new("one").group("one"), 200_000);
    let two = Squarer::new(&broker, Client::new("two").group("two"), 200_000);
    let (first, second) = (broker.commit("one").expect("it fits"), broker.commit("two").expect("it fits"));
    let numbers = super::numbers(200_000);
    let mut results = broker.host_array(800_000).expect("an array");
    for round in 1..=3 {
        let run = first.execution().upload(one.from, &numbers[..]).download(one.to, &mut results);
        run.run(|chunk, stream| one.work(chunk, stream)).expect("a run");
        two.run(&second).expect("a run");
        assert!(one.client.stats().evictions >= round && broker.stats().spilled_bytes == 800_000);
        let mut squares = vec![0; 800_000];
        results.read_at(&mut squares, 0).expect("read");
        assert!(super::floats(&numbers).zip(super::floats(&squares)).all(|(from, to)| to == from * from));
    }
}

/// #644: one solver waited for the whole device.
#[test]
fn a_run_waits_for_its_own_streams_alone() {
    let device = device(MIB);
    let (broker, _) = broker(&device);
    let blocked = broker.stream("blocked").expect("a stream");
    let open = close_gate(&blocked);
    let squarer = Squarer::new(&broker, Client::new("client"), 100_000);
    squarer.run(&broker.commit("default").expect("it fits")).expect("the other stream is independent");
    drop(open);
    device.synchronize(&blocked).expect("no failure");
}

/// #697: each array by itself was below the bound, and together they took the host's memory.
#[test]
fn pinned_arrays_are_bounded_together() {
    let broker = Broker::builder(&device(64 * MIB)).host_memory(10 * MIB).build().expect("a broker");
    let arrays: Vec<_> = (0..20).map(|_| broker.host_array(MIB).expect("an array")).collect();
    let pinned =
        arrays.iter().filter(|array| array.backing() == vrampool_broker::HostBacking::Pinned).count();
    assert_eq!((pinned, broker.stats().pinned_budget_bytes), (8, 8 * MIB));
}

/// #712: a failed copy back, or a lost device, made a solve wait for ever.
#[test]
fn a_device_that_is_lost_is_an_error() {
    for streams in [1, 3] {
        for at in 0..5 {
            let device = device(200_000);
            let (broker, _) = broker(&device);
            let squarer = Squarer::new(&broker, Client::new("client"), 100_000);
            broker.set_streams("default", streams).expect("idle");
            let plan = broker.commit("default").expect("it fits");
            let (numbers, mut squares) = (super::numbers(100_000), vec![0; 400_000]);
            let error = plan
                .execution()
                .upload(squarer.from, &numbers[..])
                .download(squarer.to, &mut squares[..])
                .run(|chunk, stream| {
                    if chunk.index() == at {
                        device.faults().lose_device();
                    }
                    squarer.work(chunk, stream)
                })
                .expect_err("the device is lost");
            assert!(error.is_device_lost(), "{error}");
            assert!(
                matches!(error, BrokerError::Run { chunk, .. } if chunk <= at + streams as u64),
                "{error}"
            );
            let again = squarer.run(&plan).expect_err("it stays so");
            assert!(again.is_device_lost(), "{again}");
        }
    }
}

/// #713: what Linux used for files was taken for used, and a solve waited for memory that was there.
#[test]
fn the_hosts_memory_is_all_of_it() {
    let broker = Broker::builder(&device(u64::MAX / 4)).build().expect("a broker");
    if cfg!(target_os = "linux") {
        let text = std::fs::read_to_string("/proc/meminfo").expect("Linux has it");
        let kib: u64 = text
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse().ok())
            .expect("it is reported");
        let budget = broker.stats().pinned_budget_bytes;
        // A container may have less.
        assert!(budget > 0 && budget <= kib * 1024 / 10 * 8 + 1024, "{budget} of {kib} KiB");
    }
}

/// A failed commit left arrays of the old size behind, which the next one took for its own.
#[test]
fn a_failed_commit_leaves_nothing_half_done() {
    for nth in 1..7 {
        let device: HostDevice = device(MIB);
        let (broker, _) = broker(&device);
        let squarer = Squarer::new(&broker, Client::new("client"), 100_000);
        broker.set_streams("default", 3).expect("idle");
        device.faults().fail_nth(Call::Allocate, nth);
        match broker.commit("default") {
            Ok(_) => {}
            Err(error) => assert!(matches!(error, BrokerError::Memory(_)), "{error}"),
        }
        device.faults().clear();
        squarer.run(&broker.commit("default").expect("it fits")).expect("a run");
        drop(squarer);
        broker.evict_all().expect("idle");
        assert_eq!(device.memory_info().expect("figures").free_bytes, MIB);
    }
}
