//! A request ends with its time while a free of the driver waits for the device.

use crate::simulated::Simulated;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;
use vrampool::{Backend, Pool, SizeClasses, Source};

/// Long enough for a loaded machine.
const SOON: Duration = Duration::from_secs(60);

#[test]
fn a_free_that_waits_for_the_device_delays_no_request_beyond_its_timeout() {
    let Some(Simulated { simulator, device, _alone }) = Simulated::open() else { return };
    let [held, other] = [(); 2].map(|()| device.create_stream().expect("a stream"));
    let raw = held.cudarc().cu_stream() as usize;
    for timeout in [Duration::ZERO, Duration::from_millis(100)] {
        let builder = Pool::builder(&device).source(Source::Direct).size_classes(SizeClasses::EXACT);
        let pool = builder.limit(8 << 20).build().expect("a pool");
        let mut buffer = pool.allocate(6 << 20, &held).expect("memory");
        simulator.hold(raw);
        device.fill(&held, buffer.on_mut(&held).expect("a region"), 1).expect("queued");
        drop(buffer);
        let (done, is_done) = mpsc::channel();
        let request = thread::spawn({
            let (pool, other) = (pool.clone(), other.clone());
            move || done.send(pool.allocate_timeout(8 << 20, &other, timeout).map(drop))
        });
        let answer = is_done.recv_timeout(SOON);
        simulator.release(raw);
        let answer = answer.expect("it ends while the work is pending");
        assert!(answer.is_err_and(|error| error.is_out_of_memory()), "{timeout:?}");
        request.join().expect("no panic").expect("it was received");
        // The work is complete, and its memory free.
        drop(pool.allocate_timeout(8 << 20, &other, SOON).expect("memory"));
    }
}
