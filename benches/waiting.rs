//! Threads that share a few buffers of a pool at its limit, beside a plain condition variable.
//!
//! Prints, for each number of threads: requests a second, the longest wait as a multiple of the fair share (every
//! other thread is served once), and context switches a request. Arguments: seconds a measurement (default 2).

use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use vrampool::host::HostDevice;
use vrampool::{Backend, Pool, SizeClasses};

const BUFFERS: usize = 10;
const HELD: Duration = Duration::from_millis(2);
const BYTES: u64 = 1 << 16;
const LONG: Duration = Duration::from_secs(60);

/// Figures of one measurement.
struct Measured {
    requests: u64,
    seconds: f64,
    longest: Duration,
    switches: u64,
}

fn measure(threads: usize, time: Duration, request: impl Fn(&dyn Fn()) + Sync) -> Measured {
    let (began, request) = (Instant::now(), &request);
    let (requests, longest, switches) = thread::scope(|scope| {
        let run = || {
            let (mut requests, mut longest) = (0u64, Duration::ZERO);
            while began.elapsed() < time {
                let asked = Instant::now();
                let waited = std::cell::Cell::new(Duration::ZERO);
                request(&|| {
                    waited.set(asked.elapsed());
                    thread::sleep(HELD);
                });
                longest = longest.max(waited.get());
                requests += 1;
            }
            let text = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
            let own = text.lines().filter(|line| line.contains("ctxt_switches"));
            let own: u64 = own.filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok()).sum();
            (requests, longest, own)
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        threads
            .into_iter()
            .filter_map(|thread| thread.join().ok())
            .fold((0, Duration::ZERO, 0), |(requests, longest, switches), one| {
                (requests + one.0, longest.max(one.1), switches + one.2)
            })
    });
    Measured { requests, seconds: began.elapsed().as_secs_f64(), longest, switches }
}

fn main() {
    let seconds = std::env::args().filter_map(|argument| argument.parse().ok()).next().unwrap_or(2.0);
    let time = Duration::from_secs_f64(seconds);
    let device = HostDevice::new();
    let stream = device.create_stream().expect("a stream");
    println!("threads  of                   requests/s  longest/fair  switches/request");
    for threads in [10, 100, 400] {
        let pool = Pool::builder(&device).limit(BUFFERS as u64 * BYTES).size_classes(SizeClasses::EXACT);
        let pool = pool.build().expect("a pool");
        let (free, freed) = (Mutex::new(BUFFERS), Condvar::new());
        let by_pool = |hold: &dyn Fn()| {
            let buffer = pool.allocate_timeout(BYTES, &stream, LONG).expect("memory in time");
            hold();
            drop(buffer);
        };
        let by_condvar = |hold: &dyn Fn()| {
            let mut left =
                freed.wait_while(free.lock().expect("no panic"), |left| *left == 0).expect("no panic");
            *left -= 1;
            drop(left);
            hold();
            *free.lock().expect("no panic") += 1;
            freed.notify_one();
        };
        for round in 0..2 {
            for (name, measured) in [
                ("condition variable", measure(threads, time, by_condvar)),
                ("allocate_timeout", measure(threads, time, by_pool)),
            ] {
                let fair = HELD.as_secs_f64() * (threads as f64 / BUFFERS as f64);
                println!(
                    "{threads:7}  {name:18} {round}  {:10.0}  {:12.2}  {:16.2}",
                    measured.requests as f64 / measured.seconds,
                    measured.longest.as_secs_f64() / fair,
                    measured.switches as f64 / measured.requests as f64,
                );
            }
        }
    }
}
