//! Shares that shrink during a run: the run goes on within them.

use super::{MIB, broker, device};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Barrier, Mutex};
use std::time::{Duration, Instant};
use vrampool_broker::{ArrayRequest, Client, Share};

/// Only a test that fails waits so long.
const PATIENCE: Duration = Duration::from_secs(60);

/// One stream: the next chunk is within the share.
#[test]
fn a_share_that_shrinks_during_a_run_counts_from_the_next_chunk_on() {
    let (broker, warnings) = broker(&device(MIB));
    let client = broker.register(Client::new("a").share(Share::Fixed(0.9))).expect("a client");
    client.queue(ArrayRequest::scratch("x", [8 * MIB], 1)).expect("queued");
    let plan = broker.commit("default").expect("it fits in chunks");
    let most = AtomicU64::new(0);
    let report = plan
        .run(|chunk, _| {
            match chunk.index() {
                0 => {
                    assert!(client.stats().held_bytes > MIB * 8 / 10);
                    client.set_share(Share::Fixed(0.2)).expect("a share");
                }
                _ => {
                    most.fetch_max(client.stats().held_bytes, SeqCst);
                }
            }
            Ok(())
        })
        .expect("a run");
    assert_eq!(client.stats().cap_bytes, MIB / 5);
    let most = most.into_inner();
    assert!(most > MIB / 6 && most <= MIB / 5, "{most} of {}", MIB / 5);
    assert_eq!((report.runs, report.shrinks), (8 * MIB, 1));
    assert_eq!(warnings.count("the group `default` goes on with"), 1);
}

/// Also where shares are enforced only from then on, and others register.
#[test]
fn shares_that_are_enforced_during_a_run_count_in_it() {
    let (broker, _) = broker(&device(MIB));
    let client = broker.register(Client::new("a")).expect("a client");
    client.queue(ArrayRequest::scratch("x", [8 * MIB], 1)).expect("queued");
    let (others, most) = (Mutex::new(Vec::new()), AtomicU64::new(0));
    let plan = broker.commit("default").expect("it fits in chunks");
    plan.run(|chunk, _| {
        let register = |client| {
            others.lock().expect("no panic").push(broker.register(client).expect("a client"));
        };
        match chunk.index() {
            0 => register(Client::new("b").group("b").share(Share::Fixed(0.2))),
            1 => register(Client::new("c").group("c")),
            _ => {
                most.fetch_max(client.stats().held_bytes, SeqCst);
            }
        }
        Ok(())
    })
    .expect("a run");
    assert!(most.load(SeqCst) <= MIB * 4 / 10, "{most:?}");
}

/// Several streams, of which the share has room for one with a single run.
#[test]
fn streams_that_the_share_has_no_room_for_release_their_memory() {
    const RUN: u64 = 64 << 10;
    let (broker, _) = broker(&device(16 * RUN));
    let client = broker.register(Client::new("a").share(Share::Fixed(0.9))).expect("a client");
    client.queue(ArrayRequest::scratch("x", [64, RUN], 1)).expect("queued");
    broker.set_streams("default", 3).expect("idle");
    let plan = broker.commit("default").expect("it fits in chunks");
    assert_eq!(plan.streams(), 3);
    let (start, all, has_waited) = (Instant::now(), Barrier::new(3), AtomicBool::new(false));
    let report = plan
        .run(|chunk, _| {
            // Each stream begins one of the first three.
            if chunk.index() < 3 {
                all.wait();
                if chunk.index() == 0 {
                    client.set_share(Share::Bytes(RUN + 100)).expect("a share");
                }
                all.wait();
            }
            // The others follow with their next chunks. A stream may take one chunk more while another one looks.
            let waits = chunk.index() >= 3 && chunk.runs() == 1 && !has_waited.swap(true, SeqCst);
            while waits && client.stats().held_bytes > RUN + 100 {
                assert!(start.elapsed() < PATIENCE, "{:?}", client.stats());
                std::thread::yield_now();
            }
            Ok(())
        })
        .expect("a run");
    assert_eq!((report.runs, report.chunk_len), (64, 1));
    // A run holds one run at least: what does not fit at all is for the next commit to refuse.
    client.set_share(Share::Bytes(RUN / 2)).expect("a share");
    assert!(broker.commit("default").expect_err("no run fits").is_out_of_memory());
}
