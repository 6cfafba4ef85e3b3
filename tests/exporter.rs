//! Resources of an exporter in a process with few of them, and in a process that is not scraped. The process runs
//! this program again, and executes commands, one a line.
#![cfg(all(feature = "prometheus", target_os = "linux"))]

use log::{LevelFilter, Log, Metadata, Record};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use vrampool::host::HostDevice;
use vrampool::telemetry::Exporter;
use vrampool::{Error, Pool};
use vrampool_test_support::{is_inside, passed, test_again, test_behind};

/// How many clients send half a request.
const HALF_OPEN: usize = 100;

/// A process that serves one pool.
struct Served {
    child: Child,
    to: ChildStdin,
    from: Lines<BufReader<ChildStdout>>,
    address: SocketAddr,
}

impl Served {
    /// The test of this name in a process of its own, behind `limit`, a command of the shell's.
    fn start(test: &str, limit: &str) -> Self {
        let mut child = test_behind(limit, test)
            .arg("--test-threads=1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let to = child.stdin.take().expect("piped");
        let mut from = BufReader::new(child.stdout.take().expect("piped")).lines();
        let address = from.find_map(|line| line.ok()?.split_once("serves at ")?.1.parse().ok());
        Self { child, to, from, address: address.expect("it serves") }
    }

    /// Sends it a command, and returns its answer.
    fn ask(&mut self, what: &str) -> String {
        writeln!(self.to, "{what}").expect("it listens");
        self.from.next().expect("it answers").expect("text")
    }

    fn scrape(&self) -> String {
        let mut client = self.connect("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        let mut answer = String::new();
        client.read_to_string(&mut answer).expect("an answer");
        answer
    }

    fn connect(&self, send: &str) -> TcpStream {
        let mut client = TcpStream::connect(self.address).expect("the system's queue has a place");
        client.write_all(send.as_bytes()).expect("it is sent");
        client
    }

    fn end(mut self) {
        drop(self.to);
        assert!(self.child.wait().expect("it ends").success());
    }
}

/// Serves a pool and serves commands until its input ends.
fn serve() {
    log::set_logger(&Refusals).expect("the only one");
    log::set_max_level(LevelFilter::Warn);
    let pool = Pool::builder(&HostDevice::new()).name("inside").build().expect("a pool");
    let exporter = Exporter::listen((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
    exporter.add(&pool).expect("the only pool");
    println!("serves at {}", exporter.address());
    let mut all = Vec::new();
    for line in std::io::stdin().lines() {
        match line.expect("text").as_str() {
            "open one" => println!("{}", File::open("/dev/null").is_ok()),
            // Uses up the files of this process.
            "open all" => {
                all.extend(std::iter::from_fn(|| File::open("/dev/null").ok()));
                println!("{}", all.len());
            }
            "close all" => {
                all.clear();
                println!("done");
            }
            "refusals" => {
                let began = Instant::now();
                let until = Refusals::COUNT.load(Relaxed) + 6;
                while Refusals::COUNT.load(Relaxed) < until {
                    std::thread::yield_now();
                }
                println!("{}", began.elapsed().as_millis());
            }
            "cpu" => println!("{}", of_exporter("schedstat").split(' ').next().unwrap_or_default()),
            "wakes" => {
                let status = of_exporter("status");
                let line = status.lines().find(|line| line.starts_with("voluntary_ctxt_switches"));
                println!("{}", line.expect("it is there").rsplit('\t').next().unwrap_or_default());
            }
            other => panic!("{other}?"),
        }
    }
}

/// A file that the system has of the exporter's thread.
fn of_exporter(file: &str) -> String {
    let threads = fs::read_dir("/proc/self/task").expect("this process's threads");
    let path = threads.map(|thread| thread.expect("an entry").path()).find(|path| {
        fs::read_to_string(path.join("comm")).is_ok_and(|name| name.starts_with("vrampool export"))
    });
    fs::read_to_string(path.expect("it runs").join(file)).expect("a file")
}

/// Counts connections that were not accepted.
struct Refusals;

impl Refusals {
    const COUNT: &AtomicU64 = {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        &COUNT
    };
}

impl Log for Refusals {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        if record.args().to_string().contains("was not accepted") {
            Self::COUNT.fetch_add(1, Relaxed);
        }
    }

    fn flush(&self) {}
}

#[test]
fn half_open_clients_leave_the_program_its_descriptors_and_time() {
    if is_inside() {
        return serve();
    }
    let name = "half_open_clients_leave_the_program_its_descriptors_and_time";
    let mut served = Served::start(name, "ulimit -n 64");
    let mut clients: Vec<_> = (0..HALF_OPEN).map(|_| served.connect("GET /metrics HTTP/1.1\r\nHo")).collect();
    assert_eq!(served.ask("open one"), "true");
    // The first of them are hung up on after a second, the deadline of requests, and a scrape has its turn.
    clients.drain(HALF_OPEN / 2..);
    let began = Instant::now();
    assert!(served.scrape().starts_with("HTTP/1.1 200 "));
    let waited = began.elapsed();
    assert!(waited < Duration::from_secs(8), "{waited:?}: ten seconds are the deadline of answers");
    assert_eq!(served.ask("open one"), "true");
    let nanoseconds: u64 = served.ask("cpu").parse().expect("a number");
    assert!(nanoseconds < 2_000_000_000, "{nanoseconds} ns of a processor in some seconds");
    drop(clients);
    served.end();
}

#[test]
fn an_exporter_without_descriptors_pauses_and_then_serves() {
    if is_inside() {
        return serve();
    }
    let mut served = Served::start("an_exporter_without_descriptors_pauses_and_then_serves", "ulimit -n 64");
    assert_ne!(served.ask("open all"), "0");
    let mut waiting = served.connect("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    // Six were refused, with a pause of 100 ms behind each.
    let milliseconds: u64 = served.ask("refusals").parse().expect("a number");
    assert!(milliseconds >= 400, "six connections were refused in {milliseconds} ms");
    served.ask("close all");
    let mut answer = String::new();
    waiting.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    served.end();
}

#[test]
fn an_exporter_that_is_not_scraped_sleeps() {
    if is_inside() {
        return serve();
    }
    let mut served = Served::start("an_exporter_that_is_not_scraped_sleeps", "true");
    assert!(served.scrape().starts_with("HTTP/1.1 200 "));
    let mut wakes = || served.ask("wakes").parse::<u64>().expect("a number");
    let before = wakes();
    // It is idle for so long. The end of the scrape may come after its answer.
    std::thread::sleep(Duration::from_secs(1));
    let after = wakes();
    assert!(after <= before + 2, "it woke {} times", after - before);
    served.end();
}

#[test]
fn an_exporter_without_a_thread_is_a_typed_error() {
    if is_inside() {
        // No stack of this size can be mapped.
        let error = Exporter::listen((Ipv4Addr::LOCALHOST, 0).into()).expect_err("no thread");
        assert!(matches!(&error, Error::Configuration(setting) if setting.field == "metrics"), "{error:?}");
        return assert!(error.to_string().contains("no thread to serve from"), "{error}");
    }
    let mut test = test_again("an_exporter_without_a_thread_is_a_typed_error");
    passed(test.arg("--test-threads=1").env("RUST_MIN_STACK", (1u64 << 60).to_string()));
}
