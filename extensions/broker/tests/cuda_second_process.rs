//! A second process takes nearly all of the GPU in the middle of a run: the broker shrinks, cuts finer, and
//! finishes. Alone in its process, because the other one takes what others here would need. The same on the
//! host's device is in `tests/broker/others.rs`.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Stdio};
use std::sync::{Condvar, Mutex};
use vrampool::backend::AllocationRequest;
use vrampool::cuda::CudaDevice;
use vrampool::{Backend, BackendError, Placement, Pool};
use vrampool_broker::{ArrayRequest, Broker, Client, Plan};
use vrampool_test_support::{is_inside, require, skip, test_again};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

/// What the broker's clients hold at most, what it is to leave to others, and what the second process leaves,
/// which is less than half of that. What is missing then is less than what the clients hold.
const BUDGET: u64 = GIB;
const RESERVE: u64 = GIB;
const LEFT: u64 = 384 * MIB;
/// With less than this nothing is shown.
const LEAST_FREE: u64 = BUDGET + RESERVE + 2 * GIB;
/// Bytes of a run that are copied each way, and those of the device alone.
const STATE: u64 = 4 * KIB;
const WORK: u64 = MIB;
const RUNS: u64 = 6 * BUDGET / WORK;

/// Takes all but `LEFT` of what is free, says so, and holds it until its standard input is closed.
#[test]
#[ignore = "the second process of the test below"]
fn second_process() {
    if !is_inside() {
        return;
    }
    let device = require("cuda", || CudaDevice::open(0)).expect("the first process has it");
    let (mut taken, mut piece) = (Vec::new(), 8 * GIB);
    loop {
        let free = device.memory_info().expect("figures").free_bytes;
        let bytes = free.saturating_sub(LEFT).min(piece) / (2 * MIB) * (2 * MIB);
        if bytes == 0 {
            break;
        }
        match device.allocate(&AllocationRequest::new(bytes, Placement::Device)) {
            Ok(memory) => taken.push(memory),
            // Others took some meanwhile, or it is in pieces.
            Err(BackendError::OutOfMemory { .. }) => piece = bytes / 2,
            Err(error) => panic!("{error}"),
        }
    }
    println!("taken");
    std::io::stdin().read_to_end(&mut Vec::new()).expect("a pipe");
    // The harness's output is not read, and the end of the process releases all memory.
    std::process::exit(0);
}

/// Starts it; the pipe of its standard input is what keeps it.
fn start() -> std::io::Result<Child> {
    test_again("second_process").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
}

/// Whether it took what it wants: none while it is not known.
#[derive(Debug, Default)]
struct Taken {
    said: Mutex<Option<bool>>,
    changed: Condvar,
}

impl Taken {
    fn say(&self, taken: bool) {
        *self.said.lock().expect("no panic") = Some(taken);
        self.changed.notify_all();
    }

    fn wait(&self) -> bool {
        let said = self.said.lock().expect("no panic");
        let said = self.changed.wait_while(said, |said| said.is_none()).expect("no panic");
        said.expect("it was waited for")
    }
}

/// What a run through the work's memory has to give.
fn data() -> Vec<u8> {
    (0..RUNS * STATE).map(|index| (index * 31 % 251) as u8).collect()
}

/// How a run with a second process in the middle ended.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Shown,
    /// Other users of the GPU released or allocated memory in between.
    Disturbed,
}

#[test]
fn a_second_process_takes_the_gpu_in_the_middle() {
    let Some(device) = require("cuda", || CudaDevice::open(0)) else { return };
    if vrampool_cuda_simulator_control::Simulator::loaded().is_some() {
        vrampool_test_support::skipped(
            "a simulated device is its process's own, and this needs two processes on one device",
        );
        return;
    }
    let free = device.memory_info().expect("figures").free_bytes;
    let shown = free >= LEAST_FREE && (0..3).any(|_| run_with_second(&device) == Outcome::Shown);
    if !shown {
        skip("cuda", format_args!("others use the GPU: {free} bytes were free at first"));
    }
}

fn run_with_second(device: &CudaDevice) -> Outcome {
    let free = || device.memory_info().expect("figures").free_bytes;
    let broker = Broker::builder(&Pool::new(device).expect("a pool"))
        .staging(MIB, 8 * MIB)
        .reserve(RESERVE)
        .budget(BUDGET)
        .build();
    let broker = broker.expect("a broker");
    let client = broker.register(Client::new("client")).expect("a client");
    let from = client.queue(ArrayRequest::input("from", [RUNS, STATE], 1)).expect("queued");
    let to = client.queue(ArrayRequest::output("to", [RUNS, STATE], 1)).expect("queued");
    let work = client.queue(ArrayRequest::scratch("work", [RUNS, WORK], 1)).expect("queued");
    broker.set_streams("default", 2).expect("idle");
    let plan: Plan<CudaDevice> = broker.commit("default").expect("it fits in parts");
    let before = plan.partition();
    let held = client.stats().held_bytes;
    assert!(before.chunks() >= 10 && held <= BUDGET && held > BUDGET / 2, "{before:?}, {held}");

    let (data, mut out) = (data(), vec![0; (RUNS * STATE) as usize]);
    let (taken, second) = (Taken::default(), Mutex::new(None::<Child>));
    let mut is_short = false;
    let report = std::thread::scope(|scope| {
        let report = plan
            .execution()
            .upload(from, &data[..])
            .download(to, &mut out[..])
            .on_progress(|progress| {
                let mut second = second.lock().expect("no panic");
                if progress.chunks_done == 2 && second.is_none() {
                    // Else all would wait for ever.
                    let Ok(mut process) = start() else { return taken.say(false) };
                    let stdout = process.stdout.take().expect("it is piped");
                    let taken = &taken;
                    scope.spawn(move || {
                        let mut lines = BufReader::new(stdout).lines().map_while(Result::ok);
                        taken.say(lines.any(|line| line.contains("taken")));
                    });
                    *second = Some(process);
                }
            })
            .run(|chunk, stream| {
                // Some chunks later all wait for the other process; none of these needs memory.
                if chunk.index() >= 4 {
                    taken.wait();
                }
                // Through the far end of the work's memory, all of which is written.
                let scratch = chunk.region_mut(work)?;
                let (start, bytes) = (chunk.runs() * (WORK - STATE), chunk.runs() * STATE);
                device.fill(stream, scratch, 0xA5)?;
                device.copy(
                    stream,
                    chunk.region(from)?,
                    chunk.region_mut(work)?.slice(start..start + bytes)?,
                )?;
                let far = chunk.region(work)?.slice(start..start + bytes)?;
                Ok(device.copy(stream, far, chunk.region_mut(to)?)?)
            });
        is_short = free() < RESERVE / 2;
        report
    });
    let has_taken = taken.wait();
    let mut second = second.into_inner().expect("no panic").expect("it was started");
    // With others about, memory may be taken that nothing here took.
    let report = report.expect("a run");
    assert!(out == data, "{report:?}");
    assert!(has_taken, "the second process ended early: {:?}", second.wait());
    drop(second.stdin.take());
    assert!(second.wait().expect("it ends").success());
    if report.shrinks == 0 {
        assert!(!is_short, "less than half of the reserve is free, and nothing is released: {report:?}");
        return Outcome::Disturbed;
    }
    assert!(report.chunk_len < before.chunk_len() && report.chunks > before.chunks(), "{report:?}");
    assert!(client.stats().peak_held_bytes <= BUDGET, "{:?}", client.stats());
    assert_eq!(broker.stats().counts.shrinks, report.shrinks);
    // What the other released by ending is there for the next run.
    let is_free = |_| {
        std::thread::yield_now();
        free() >= LEAST_FREE
    };
    // The driver may take a moment to notice.
    if !(0..100_000).any(is_free) {
        return Outcome::Disturbed;
    }
    assert_eq!(broker.commit("default").expect("it fits in parts").partition(), before);
    Outcome::Shown
}
