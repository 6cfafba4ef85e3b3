//! Other users of the device. A second process on a GPU: `tests/cuda_second_process.rs`.

use super::{MIB, Squarer, device, numbers};
#[cfg(target_os = "linux")]
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
#[cfg(target_os = "linux")]
use std::time::Duration;
use vrampool::backend::AllocationRequest;
use vrampool::{Backend, Placement};
use vrampool_broker::{ArrayRequest, Broker, BrokerWarning, Client, Progress};

#[test]
fn a_reserve_is_left_to_others() {
    let device = device(10 * MIB);
    let others = device.allocate(&AllocationRequest::new(2 * MIB, Placement::Device)).expect("memory");
    let broker = Broker::builder(&device).reserve(3 * MIB).build().expect("a broker");
    let client = broker.register(Client::new("client")).expect("a client");
    assert_eq!(broker.available("default").expect("bytes"), 5 * MIB);
    client.queue(ArrayRequest::scratch("x", [20 * MIB], 1)).expect("queued");
    assert_eq!(broker.commit("default").expect("it fits").partition().chunk_len(), 5 * MIB);
    assert_eq!(device.memory_info().expect("figures").free_bytes, 3 * MIB);
    drop(others);
    client.queue(ArrayRequest::scratch("x", [20 * MIB], 1)).expect("queued");
    assert_eq!(broker.commit("default").expect("it fits").partition().chunk_len(), 7 * MIB);
}

/// Another process allocates memory during a run: the broker releases some, continues with finer chunks,
/// and completes.
#[test]
fn memory_that_others_take_in_the_middle_makes_chunks_finer() {
    for streams in [1, 2, 3] {
        let device = device(4 * MIB);
        let warnings = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&warnings);
        let broker = Broker::builder(&device)
            .staging(64 << 10, 64 << 10)
            .reserve(MIB)
            .on_warning(move |warning| seen.lock().expect("no panic").push(warning.clone()))
            .build()
            .expect("a broker");
        let squarer = Squarer::new(&broker, Client::new("client"), 4_000_000);
        broker.set_streams("default", streams).expect("idle");
        let plan = broker.commit("default").expect("it fits");
        let before = plan.partition().chunk_len();
        let grabbed = Mutex::new(Vec::new());
        let grab = |progress: &Progress| {
            // As much as there is, up to 2 MiB in all.
            let mut grabbed = grabbed.lock().expect("no panic");
            if progress.chunks_done >= 2 && grabbed.len() < 8 {
                grabbed.extend(device.allocate(&AllocationRequest::new(MIB / 4, Placement::Device)));
            }
        };
        let report = squarer.run_with(&plan, grab, |_, _| Ok(())).expect("a run");
        assert_eq!(grabbed.lock().expect("no panic").len(), 8, "others got what they need");
        assert!(report.shrinks > 0 && report.chunk_len < before, "{report:?}");
        assert!(report.chunks > plan.partition().chunks());
        let shrunk = |warning: &&BrokerWarning| matches!(warning, BrokerWarning::Shrunk { .. });
        assert_eq!(warnings.lock().expect("no panic").iter().filter(shrunk).count() as u64, report.shrinks);
        // The next run takes the memory that is available then.
        drop(grabbed);
        assert!(squarer.run(&plan).expect("a run").chunk_len > report.chunk_len);
        assert_eq!(device.races(), 0);
    }
}

/// Of a second process: where it and the first count their memory together.
#[cfg(target_os = "linux")]
const DIRECTORY: &str = "VRAMPOOL_TEST_SHARED_CAPACITY";

#[cfg(target_os = "linux")]
const CAPACITY: u64 = 4 * MIB;

/// Whatever else is in the directory of an account stays there, and counts nothing.
#[cfg(target_os = "linux")]
#[test]
fn an_account_leaves_strangers_files_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    // The last ones are nearly of our names.
    let names =
        ["thesis.txt", "123-0", "turn", "12-0123456789abcdeg.vrampool", "x-0123456789abcdef.vrampool"];
    for name in names {
        std::fs::write(directory.path().join(name), [1; 8]).expect("written");
    }
    let long = directory.path().join("12-0123456789abcdef.vrampool");
    std::fs::write(&long, "of our names, and nothing that we write").expect("written");
    let dead = directory.path().join("12-fedcba9876543210.vrampool");
    std::fs::write(&dead, [1; 8]).expect("written");
    let devices = [(); 2].map(|()| device(CAPACITY));
    for device in &devices {
        device.share_memory_limit(directory.path()).expect("an account");
    }
    let _memory = devices[0].allocate(&AllocationRequest::new(MIB, Placement::Device)).expect("memory");
    assert_eq!(devices[1].memory_info().expect("figures").free_bytes, CAPACITY - MIB);
    for name in names {
        assert_eq!(std::fs::read(directory.path().join(name)).expect("it is there"), [1; 8], "{name}");
    }
    assert!(long.exists() && !dead.exists(), "a dead member's file goes");
}

/// The second process: allocates all free memory, then requests more until the first process releases some.
/// Reports that, and ends on request.
#[cfg(target_os = "linux")]
#[test]
#[ignore = "the second process of the test below"]
fn second_process() {
    let Some(directory) = std::env::var_os(DIRECTORY) else { return };
    let device = device(CAPACITY);
    device.share_memory_limit(directory.as_ref()).expect("an account");
    let mut taken = Vec::new();
    while taken.len() < 8 {
        // Others work meanwhile.
        match device.allocate(&AllocationRequest::new(MIB / 4, Placement::Device)) {
            Ok(memory) => taken.push(memory),
            Err(error) => assert!(error.is_out_of_memory(), "{error}"),
        }
        std::thread::yield_now();
    }
    println!("taken");
    std::io::stdin().read_line(&mut String::new()).expect("the first process lives");
    // Not released: ending is enough.
    std::mem::forget(taken);
    std::process::exit(0);
}

/// A process that ends with a test that fails, whose threads read what it says.
#[cfg(target_os = "linux")]
struct Kept<'a>(&'a Mutex<Option<std::process::Child>>);

#[cfg(target_os = "linux")]
impl Drop for Kept<'_> {
    fn drop(&mut self) {
        let mut process = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(process) = process.as_mut().filter(|_| std::thread::panicking()) {
            let _ = process.kill();
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_second_process_takes_memory_in_the_middle() {
    use std::io::{BufRead, BufReader, Write};
    use std::process::Stdio;
    use vrampool_test_support::test_again;

    let directory = tempfile::tempdir().expect("a directory");
    let device = device(CAPACITY);
    device.share_memory_limit(directory.path()).expect("an account");
    let broker = Broker::builder(&device).staging(64 << 10, 64 << 10).reserve(MIB).build().expect("a broker");
    let squarer = Squarer::new(&broker, Client::new("client"), 8_000_000);
    broker.set_streams("default", 2).expect("idle");
    let plan = broker.commit("default").expect("it fits");
    let before = plan.partition().chunk_len();
    let free = || device.memory_info().expect("figures").free_bytes;
    let second = Mutex::new(None);
    let (numbers, mut squares) = (numbers(8_000_000), vec![0; 32_000_000]);
    let (asked, notified) = std::sync::mpsc::channel();
    // Whether it has all that it wants, or has ended.
    let has_all = &AtomicBool::new(false);
    let report = std::thread::scope(|scope| {
        let _kept = Kept(&second);
        let report = plan
            .execution()
            .upload(squarer.from, &numbers[..])
            .download(squarer.to, &mut squares[..])
            .on_progress(|progress| {
                let mut second = second.lock().expect("no panic");
                if progress.chunks_done >= 3 && second.is_none() {
                    let mut process = test_again("others::second_process")
                        .env(DIRECTORY, directory.path())
                        .stdin(Stdio::piped())
                        .stdout(Stdio::piped())
                        .spawn()
                        .expect("a process");
                    let stdout = process.stdout.take().expect("it is piped");
                    let asked = asked.clone();
                    scope.spawn(move || {
                        let taken = BufReader::new(stdout)
                            .lines()
                            .map_while(Result::ok)
                            .any(|line| line.contains("taken"));
                        has_all.store(true, Relaxed);
                        asked.send(taken).expect("the test waits");
                    });
                    *second = Some(process);
                }
            })
            .run(|chunk, stream| {
                // From the middle on each chunk waits until the other took what is there: so much of the
                // reserve that the broker releases then.
                while chunk.range().start > 2_000_000 && !has_all.load(Relaxed) && free() >= MIB / 2 {
                    std::thread::yield_now();
                }
                squarer.work(chunk, stream)
            })
            .expect("a run");
        // The deadline only ends a test that would fail.
        assert_eq!(notified.recv_timeout(Duration::from_secs(90)), Ok(true), "it got all it wanted");
        report
    });
    assert!(report.shrinks > 0 && report.chunk_len < before && report.chunks > plan.partition().chunks());
    assert!(super::floats(&numbers).zip(super::floats(&squares)).all(|(from, to)| to == from * from));
    // The other process's memory is not available until it ends, which it does without releasing it.
    broker.evict_all().expect("idle");
    assert_eq!(free(), CAPACITY - 2 * MIB);
    let mut second = second.into_inner().expect("no panic").expect("it was started");
    second.stdin.take().expect("it is piped").write_all(b"end\n").expect("written");
    assert!(second.wait().expect("it ends").success());
    assert_eq!(free(), CAPACITY);
}
