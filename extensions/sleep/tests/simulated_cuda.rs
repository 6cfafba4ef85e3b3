//! Children that sleep on the simulated CUDA driver: each driver call fails once, and each wait is left out once.
//! Skipped with a message on another driver and without one.
#![cfg(feature = "cuda")]

#[path = "../../../tests/simulated_cuda/each_call.rs"]
mod each_call;
#[path = "../../../tests/simulated_cuda/each_wait.rs"]
mod each_wait;
#[allow(dead_code, reason = "other tests use all of it")]
#[path = "../../../tests/simulated_cuda/scene.rs"]
mod scene;
#[path = "../../../tests/simulated_cuda/simulated.rs"]
mod simulated;

use scene::{Outcome, Scene, after_a_fault, page, streams};
use simulated::Simulated;
use std::time::Duration;
use vrampool::cuda::{CudaDevice, CudaStream};
use vrampool::{Pool, Source};
use vrampool_sleep::{Offload, SleepArena, SleepUsage, sleep_all, wake_all};

const SCENES: [Scene; 1] = [Scene { name: "sleep and wake", run: sleep_and_wake }];

fn sleep_and_wake(device: &CudaDevice) -> Outcome {
    let page = page(device)?;
    // What is freed is idle in no bucket, and its backup is released at once.
    let pool = Pool::builder(device).source(Source::Virtual).cached_class(0).magazine_bytes(0).build()?;
    let tags = [pool.child("weights").build()?, pool.child("kv_cache").build()?];
    let arenas = tags.each_ref().map(|tag| SleepArena::new(tag.arena().expect("virtual").clone()));
    let wake = || wake_all(&arenas, &|_| ());
    let slept = |[one, two]: [CudaStream; 2]| -> Outcome {
        let mut kept = tags[0].allocate(3 * page, &one)?;
        let lost = tags[1].allocate(2 * page, &one)?;
        let written = vec![5; (3 * page) as usize];
        kept.write(&written, &one)?;
        let chosen = [(&arenas[0], Offload::Pinned), (&arenas[1], Offload::Discard)];
        let _ = sleep_all(chosen, Duration::ZERO, &|_| ())?;
        let _ = wake()?;
        let mut read = vec![0; written.len()];
        kept.read(&mut read, &two)?;
        drop((kept, lost));
        Ok(read == written)
    };
    let assert_idle = || {
        while arenas.iter().any(|arena| arena.backup_bytes() > 0) {
            // Another thread releases them.
            std::thread::yield_now();
        }
        let usages = arenas.each_ref().map(SleepUsage::of);
        assert!(usages.iter().all(|usage| usage.live_bytes + usage.asleep_bytes == 0), "{usages:?}");
    };
    let outcome = streams(device).and_then(slept);
    assert_idle();
    if outcome.is_err() {
        let _ = after_a_fault(device);
        let _ = wake().expect("the arenas serve on");
        assert!(streams(device).and_then(slept).expect("the arenas serve on"));
        assert_idle();
    }
    outcome
}

#[test]
fn a_call_that_fails_loses_nothing() {
    let Some(simulated) = Simulated::open() else { return };
    let faults = each_call::fail_each_call(&simulated, &SCENES);
    assert!(faults > 100, "{faults}");
}

/// A sleep and a wake wait on the host, so the streams' own waits order nothing that is still pending.
#[test]
fn a_wait_that_is_left_out_spoils_nothing() {
    let Some(simulated) = Simulated::open() else { return };
    let found = each_wait::leave_out_each_wait(&simulated, &SCENES);
    assert_eq!((found.scenes, found.spoilt, found.reported), (1, 0, 0), "{found:?}");
}
