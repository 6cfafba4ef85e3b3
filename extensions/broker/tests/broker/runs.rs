//! What a run does with a plan's chunks.

use super::{MIB, Squarer, broker, device, numbers, pool, with_budget};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use vrampool::errors::chain;
use vrampool::host::{Call, HostDevice};
use vrampool::{Backend, BackendError};
use vrampool_broker::{
    ArrayRequest, Broker, BrokerError, Chunk, Client, HostBacking, Plan, Progress, RunReport, Stage,
};

/// Integrates `x' = a·x·(1 − x)` for `runs` values of `a`, and keeps 8 values of time, which lie before the
/// runs: so rows of a chunk are strided. A table of steps is not cut.
#[derive(Debug)]
struct Logistic<'a> {
    broker: &'a Broker<HostDevice>,
    runs: usize,
}

const TIMES: usize = 8;

impl Logistic<'_> {
    fn solve(&self, group: &str, streams: usize, backing: Option<HostBacking>) -> (Vec<u8>, RunReport) {
        let (broker, runs) = (self.broker, self.runs);
        let client = broker.register(Client::new("logistic").group(group)).expect("a client");
        let rates = client.queue(ArrayRequest::input("rates", [runs as u64], 4)).expect("queued");
        let steps =
            client.queue(ArrayRequest::input("steps", [TIMES as u64], 4).chunk_axis(None)).expect("queued");
        let shape = [TIMES as u64, runs as u64];
        let states = client.queue(ArrayRequest::output("states", shape, 4).chunk_axis(1)).expect("queued");
        let scratch =
            client.queue(ArrayRequest::scratch("scratch", [4], 4).chunk_axis(None)).expect("queued");
        broker.set_streams(group, streams).expect("idle");
        let plan = broker.commit(group).expect("it fits");
        let rate_bytes: Vec<u8> = (0..runs).flat_map(|run| (run as f32 * 1e-4).to_ne_bytes()).collect();
        let step_bytes: Vec<u8> =
            (0..TIMES).flat_map(|time| (0.1 / (time + 1) as f32).to_ne_bytes()).collect();
        let mut out = vec![0x55; TIMES * runs * 4];
        let work = |chunk: &Chunk<'_, HostDevice>, stream: &vrampool::host::HostStream| {
            let (reads, writes) = (
                [chunk.region(rates)?, chunk.region(steps)?],
                [chunk.region_mut(states)?, chunk.region_mut(scratch)?],
            );
            assert!(matches!(chunk.region_mut(steps), Err(BrokerError::Request { .. })));
            let runs = chunk.runs() as usize;
            stream.launch(reads, writes, move |[rates, steps], [states, scratch]: [&mut [f32]; 2]| {
                for (run, rate) in rates.iter().enumerate() {
                    scratch[0] = 0.01;
                    for (time, step) in steps.iter().enumerate() {
                        scratch[0] += step * rate * scratch[0] * (1.0 - scratch[0]);
                        states[time * runs + run] = scratch[0];
                    }
                }
            })?;
            Ok(())
        };
        let execution = plan.execution().upload(steps, &step_bytes[..]);
        let report = match backing {
            None => execution.upload(rates, &rate_bytes[..]).download(states, &mut out[..]).run(work),
            Some(backing) => {
                let mut source = broker.host_array_in(rate_bytes.len() as u64, backing).expect("an array");
                source.write_at(&rate_bytes, 0).expect("written");
                let mut sink = broker.host_array_in(out.len() as u64, backing).expect("an array");
                let report = execution.upload(rates, &source).download(states, &mut sink).run(work);
                sink.read_at(&mut out, 0).expect("read");
                report
            }
        };
        (out, report.expect("a run"))
    }
}

#[test]
fn test_chunked_results_match_unchunked() {
    let runs = 40_000;
    let large = device(64 * MIB);
    let (roomy, _) = broker(&large);
    let (whole, report) = Logistic { broker: &roomy, runs }.solve("solver", 1, None);
    assert_eq!((report.chunks, report.streams), (1, 1));
    for capacity in [1_400_000, 500_000, 100_000] {
        let small = device(capacity);
        let (tight, _) = broker(&small);
        let logistic = Logistic { broker: &tight, runs };
        for streams in [1, 2, 3] {
            for backing in [None, Some(HostBacking::Pageable), Some(HostBacking::File)] {
                let (cut, report) = logistic.solve("solver", streams, backing);
                assert!(cut == whole, "{capacity} bytes, {streams} streams, {backing:?}");
                assert!(report.chunks > 1 && report.streams == streams, "{report:?}");
                assert_eq!(report.copied_bytes, (runs * 4 * 9 + TIMES * 4) as u64);
            }
        }
        assert_eq!(small.races(), 0);
    }
    // Pinned arrays count on the host's device as memory of it.
    let (pinned, _) = Logistic { broker: &roomy, runs }.solve("solver", 3, Some(HostBacking::Pinned));
    assert!(pinned == whole);
}

/// #568: the second solve of a chunked batch had other results.
#[test]
fn test_repeat_chunked_solve_matches_first() {
    let (device, broker) = with_budget(300_000);
    let squarer = Squarer::new(&broker, Client::new("client"), 100_000);
    broker.set_streams("default", 2).expect("idle");
    let plan = broker.commit("default").expect("it fits");
    let allocations = device.faults().calls(Call::Allocate);
    for _ in 0..5 {
        let report = squarer.run(&plan).expect("a run");
        assert_eq!(report.chunks, plan.partition().chunks());
    }
    // The exception is a staging block: there is room for one, and a chunk without it waits for it.
    assert_eq!(device.faults().calls(Call::Allocate), allocations + 1, "memory is kept for the next run");
}

/// The first result is kept, and then the device has less: the second solve is cut finer, and both are right.
#[test]
fn test_repeat_solve_with_held_result_and_collapsed_vram() {
    let device = device(4 * MIB);
    let broker = Broker::builder(&pool(&device)).staging(64 << 10, 64 << 10).build().expect("a broker");
    let squarer = Squarer::new(&broker, Client::new("client"), 1_000_000);
    let (numbers, plan) = (numbers(1_000_000), broker.commit("default").expect("it fits"));
    let solve = || {
        let mut result = broker.host_array_in(4_000_000, HostBacking::Pageable).expect("an array");
        let execution = plan.execution().upload(squarer.from, &numbers[..]).download(squarer.to, &mut result);
        let report = execution.run(|chunk, stream| squarer.work(chunk, stream)).expect("a run");
        (result, report.chunks)
    };
    let bytes = |result: &vrampool_broker::HostArray<HostDevice>| {
        let mut bytes = vec![0; 4_000_000];
        result.read_at(&mut bytes, 0).expect("read");
        bytes
    };
    let (held, chunks) = solve();
    let first = bytes(&held);
    // Others have it now; and what the client had is released.
    broker.evict_all().expect("idle");
    device.set_memory_limit(MIB);
    let (second, more_chunks) = solve();
    assert!(chunks > 1 && more_chunks >= 3 * chunks, "{chunks}, {more_chunks}");
    assert!(bytes(&second) == first && bytes(&held) == first);
    // Less than nothing is free, and the memory that it has is enough.
    device.set_memory_limit(1);
    let (third, as_many) = solve();
    assert_eq!(as_many, more_chunks);
    assert!(bytes(&third) == first);
}

#[test]
fn concurrent_solves_are_as_if_alone() {
    let device = device(4 * MIB);
    let (broker, _) = broker(&device);
    let (alone, _) = Logistic { broker: &broker, runs: 20_000 }.solve("alone", 1, None);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (broker, alone) = (&broker, &alone);
            scope.spawn(move || {
                for round in 0..5 {
                    let group = format!("group {number}");
                    let (out, _) = Logistic { broker, runs: 20_000 }.solve(&group, 1 + round % 3, None);
                    assert!(out == *alone, "{group}, round {round}");
                }
            });
        }
    });
    assert_eq!(device.races(), 0);
}

#[test]
fn what_goes_both_ways_is_taken_and_replaced() {
    let device = device(100_000);
    let (broker, _) = broker(&device);
    let client = broker.register(Client::new("client")).expect("a client");
    let numbers_id =
        client.queue(ArrayRequest::in_out("numbers", [3, 50_000], 4).chunk_axis(1)).expect("queued");
    let sum = client.queue(ArrayRequest::in_out("sum", [1], 4).chunk_axis(None)).expect("queued");
    broker.set_streams("default", 3).expect("idle");
    let plan = broker.commit("default").expect("it fits");
    assert_eq!(plan.streams(), 1, "what is copied back whole is one stream's");
    let mut data = numbers(150_000);
    let before = data.clone();
    let mut total = 10.0_f32.to_ne_bytes();
    let report = plan
        .execution()
        .exchange(numbers_id, &mut data[..])
        .exchange(sum, &mut total[..])
        .run(|chunk, stream| {
            let written = [chunk.region_mut(numbers_id)?, chunk.region_mut(sum)?];
            stream.launch([], written, |[], [numbers, sum]: [&mut [f32]; 2]| {
                numbers.iter_mut().for_each(|number| *number += 1.0);
                sum[0] += 1.0;
            })?;
            Ok(())
        })
        .expect("a run");
    assert!(report.chunks > 6);
    assert_eq!(f32::from_ne_bytes(total), 10.0 + report.chunks as f32);
    assert!(super::floats(&data).zip(super::floats(&before)).all(|(after, before)| after == before + 1.0));
}

#[test]
fn a_failed_copy_is_raised_at_its_chunk() {
    let (device, broker) = with_budget(200_000);
    let squarer = Squarer::new(&broker, Client::new("client"), 100_000);
    let plan = broker.commit("default").expect("it fits");
    let chunks = plan.partition().chunks();
    assert_eq!(chunks, 5);
    // Two blocks up and two down a chunk, but for the last.
    for chunk in 0..chunks - 1 {
        for (stage, nth) in
            [(Stage::Upload, 1), (Stage::Upload, 2), (Stage::Download, 3), (Stage::Download, 4)]
        {
            device.faults().fail_nth(Call::Copy, 4 * chunk + nth);
            match squarer.run(&plan) {
                Err(BrokerError::Run { chunk: at, range, stage: during, source, .. }) => {
                    assert_eq!((at, during), (chunk, stage), "{source}");
                    assert_eq!(range, plan.partition().chunk(chunk));
                    assert!(matches!(*source, BrokerError::Memory(_)));
                }
                other => panic!("{other:?}"),
            }
            device.faults().clear();
            squarer.run(&plan).expect("nothing is lost");
        }
    }
    assert!(squarer.client.stats().held_bytes <= 200_000 && broker.stats().staging_bytes <= 64 << 10);
}

#[test]
fn every_failing_call_is_an_error_and_nothing_is_lost() {
    for call in [Call::Copy, Call::Launch, Call::Synchronize, Call::Record, Call::Mapped, Call::Allocate] {
        for streams in [1, 3] {
            for nth in 1..30 {
                let (device, broker) = with_budget(400_000);
                let squarer = Squarer::new(&broker, Client::new("client"), 100_000);
                broker.set_streams("default", streams).expect("idle");
                let plan = broker.commit("default").expect("it fits");
                let before = device.faults().calls(call);
                device.faults().fail_nth(call, nth);
                match squarer.run(&plan) {
                    Ok(_) | Err(BrokerError::Run { .. } | BrokerError::Memory(_)) => {}
                    Err(other) => panic!("{call:?} {nth}: {other:?}"),
                }
                if device.faults().calls(call) - before < nth {
                    break;
                }
                device.faults().clear();
                squarer.run(&plan).expect("it goes on");
                assert_eq!(device.races(), 0);
                drop((squarer, plan));
                broker.evict_all().expect("idle");
                assert_eq!(
                    (broker.stats().held_bytes, broker.stats().staging_bytes),
                    (0, 0),
                    "{call:?} {nth}"
                );
                let free = device.memory_info().expect("figures").free_bytes;
                assert_eq!(free, 465_536, "{call:?} {nth}");
            }
        }
    }
}

/// The device copies into a pinned array of the program's while it refuses to wait: the run returns when that is over.
#[test]
fn a_run_that_failed_copies_into_no_array_of_the_program() {
    let latency = Duration::from_millis(20);
    let device = HostDevice::builder().memory_limit(4 * MIB).work_latency(latency).build();
    let broker = Broker::builder(&pool(&device)).pinned_max(u64::MAX).build().expect("a broker");
    let squarer = Squarer::new(&broker, Client::new("client"), 100_000);
    let plan = broker.commit("default").expect("it fits");
    let (numbers, mut squares) = (numbers(100_000), broker.host_array(400_000).expect("an array"));
    assert_eq!(squares.backing(), HostBacking::Pinned);
    squares.write_at(&vec![0xAA; 400_000], 0).expect("no fault");
    device.faults().fail_all(Call::Synchronize, BackendError::driver("wait", 5, "refused"));
    let execution = plan.execution().upload(squarer.from, &numbers[..]).download(squarer.to, &mut squares);
    assert!(execution.run(|chunk, stream| squarer.work(chunk, stream)).is_err());
    let [mut first, mut second] = [(); 2].map(|()| vec![0; 400_000]);
    squares.read_at(&mut first, 0).expect("no fault");
    device.faults().clear();
    // On the same stream: whatever that one still had to do is complete.
    squarer.run(&plan).expect("it goes on");
    squares.read_at(&mut second, 0).expect("no fault");
    assert!(first == second, "a copy arrived after the run had returned");
    assert_eq!(device.races(), 0);
}

/// What a kernel throws is a failure of its stream, and the next run has another one.
#[test]
fn a_kernel_that_fails_fails_its_chunk_and_the_next_run_is_well() {
    let (broker, _) = broker(&device(200_000));
    let squarer = Squarer::new(&broker, Client::new("client"), 100_000);
    let plan = broker.commit("default").expect("it fits");
    let (numbers, mut squares) = (numbers(100_000), vec![0; 400_000]);
    let mut run = |bad: u64| {
        let execution =
            plan.execution().upload(squarer.from, &numbers[..]).download(squarer.to, &mut squares[..]);
        execution.timed().run(|chunk, stream| {
            if chunk.index() == bad {
                stream.launch([], [], |[], []: [&mut [u8]; 0]| panic!("a kernel's bug"))?;
            }
            squarer.work(chunk, stream)
        })
    };
    let failed = run(3).expect_err("a kernel panics");
    assert!(matches!(failed, BrokerError::Run { chunk: 3, stage: Stage::Compute, .. }), "{failed}");
    assert!(chain(&failed).to_string().contains("a kernel's bug"), "{failed}");
    let report = run(u64::MAX).expect("a new stream");
    // Three stages a chunk, each behind the one before.
    assert_eq!(report.spans.len() as u64, 3 * report.chunks);
    for spans in report.spans.windows(2) {
        assert!(spans[0].start <= spans[0].end && spans[0].end <= spans[1].start);
    }
}

#[test]
fn a_panic_of_the_callers_is_the_callers_and_nothing_is_lost() {
    let (broker, _) = broker(&device(400_000));
    let squarer = Squarer::new(&broker, Client::new("client"), 100_000);
    broker.set_streams("default", 3).expect("idle");
    let plan = broker.commit("default").expect("it fits");
    let bug =
        |chunk: &Chunk<'_, _>, _: &_| if chunk.index() == 2 { panic!("a caller's bug") } else { Ok(()) };
    let thrown =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| squarer.run_with(&plan, |_| (), bug)));
    let thrown = thrown.expect_err("it is thrown on");
    assert_eq!(thrown.downcast_ref::<&str>(), Some(&"a caller's bug"));
    squarer.run(&plan).expect("nothing is lost");
}

#[test]
fn data_that_do_not_go_with_the_arrays_are_refused() {
    let (broker, _) = broker(&device(MIB));
    let squarer = Squarer::new(&broker, Client::new("client"), 1000);
    let plan: Plan<HostDevice> = broker.commit("default").expect("it fits");
    let (from, to) = (squarer.from, squarer.to);
    let (numbers, mut squares) = (numbers(1000), vec![0; 4000]);
    let ran = AtomicU64::new(0);
    let work = |_: &Chunk<'_, HostDevice>, _: &vrampool::host::HostStream| {
        ran.fetch_add(1, Relaxed);
        Ok(())
    };
    let unbound = plan.execution().upload(from, &numbers[..]).run(work);
    assert!(matches!(unbound, Err(BrokerError::Request { ref label, .. }) if label == "to"), "{unbound:?}");
    let short = plan.execution().upload(from, &numbers[..3999]).download(to, &mut squares[..]).run(work);
    assert!(
        matches!(&short, Err(error) if error.to_string().contains("4000 bytes, but its data 3999")),
        "{short:?}"
    );
    let wrong = plan.execution().upload(to, &numbers[..]).run(work);
    assert!(wrong.is_err_and(|error| error.to_string().contains("download")));
    let old = from;
    let new = squarer.client.queue(ArrayRequest::input("from", [1000], 4)).expect("queued");
    let stale = plan.execution().upload(old, &numbers[..]).download(to, &mut squares[..]).run(work);
    assert!(matches!(stale, Err(BrokerError::Request { .. })), "{stale:?}");
    assert_eq!(ran.load(Relaxed), 0);
    plan.execution().upload(new, &numbers[..]).download(to, &mut squares[..]).run(work).expect("a run");
}

#[test]
fn progress_is_reported_after_each_chunk() {
    let (broker, _) = broker(&device(200_000));
    let squarer = Squarer::new(&broker, Client::new("client"), 100_000);
    let plan = broker.commit("default").expect("it fits");
    let notified = Mutex::new(Vec::<Progress>::new());
    let note = |progress: &Progress| notified.lock().expect("no panic").push(progress.clone());
    squarer.run_with(&plan, note, |_, _| Ok(())).expect("a run");
    let notified = notified.into_inner().expect("no panic");
    let ranges: Vec<_> = notified.iter().map(|progress| progress.range.clone()).collect();
    assert_eq!(ranges, plan.partition().ranges().collect::<Vec<_>>());
    assert_eq!(
        notified.last().map(|progress| (progress.runs_done, progress.chunks_done)),
        Some((100_000, 5))
    );
}
