//! What was wrong with CuBIE, each with a test that would show it here. By their numbers, those of which a
//! test is elsewhere:
//!
//! | | |
//! |---|---|
//! | #327, #561 | a broker's memory is a child of one pool, whose source does not change; `devices::every_source_that_a_device_has_serves` |
//! | #567, #576 | `share::test_set_manual_proportion_from_auto_pool` |
//! | #568, #577 | `runs::test_repeat_chunked_solve_matches_first`, `chunks::test_allocate_queue_empty_rebroadcasts_chunk_parameters` |
//! | #593, #620 | `shares::test_register_and_drop_change_everybodys_share`, `pressure::test_dead_instances_release_at_once` |
//! | #621 | `pressure::test_idle_solver_evicted_under_pressure_and_self_heals` |
//! | #644 | `chunks::test_active_cap_chunking_leaves_unrelated_stream_running`, `host_arrays::test_host_spill_does_not_wait_for_unrelated_stream` |
//! | #697 | `host_arrays::arrays_in_memory_are_bounded_together` |
//!
//! #438, #487, #712, and #713 are here alone.

use super::{Squarer, broker, device, pool};
use vrampool_broker::{ArrayRequest, Broker, BrokerError, Chunk, Client};

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
            let lose = |chunk: &Chunk<'_, _>, _: &_| {
                if chunk.index() == at {
                    device.faults().lose_device();
                }
                Ok(())
            };
            let error = squarer.run_with(&plan, |_| (), lose).expect_err("the device is lost");
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
    let broker = Broker::builder(&pool(&device(u64::MAX / 4))).build().expect("a broker");
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
