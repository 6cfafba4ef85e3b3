//! Copies behind computation. What happens at once is waited for, so that no clock is read;
//! `vrampool solve --compare` measures it.

use super::{MIB, Squarer, pool};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use vrampool::host::{HostDevice, HostStream};
use vrampool_broker::{Broker, Chunk, Client};

/// What makes copies hidden: while a chunk is computed, the results of the one before arrive, and the data of
/// the next are copied and its computation begins. Each computation here waits to see both, so that a run in
/// which they do not happen at once does not end.
#[test]
fn copies_are_hidden_behind_computation() {
    #[derive(Default)]
    struct Seen {
        begun: u64,
        arrived: u64,
    }
    static SEEN: Mutex<Seen> = Mutex::new(Seen { begun: 0, arrived: 0 });
    static CHANGED: Condvar = Condvar::new();
    static HIDDEN: AtomicU64 = AtomicU64::new(0);
    const LONGEST: Duration = Duration::from_secs(60);
    let note = |change: &dyn Fn(&mut Seen)| {
        change(&mut SEEN.lock().expect("no panic"));
        CHANGED.notify_all();
    };
    // Without latency, and with so much for each copy and each computation.
    let cases =
        [Duration::ZERO, Duration::from_millis(2)].map(|latency| [2, 3].map(|streams| (latency, streams)));
    for (latency, streams) in cases.into_iter().flatten() {
        *SEEN.lock().expect("no panic") = Seen::default();
        HIDDEN.store(0, Relaxed);
        let device = HostDevice::builder().memory_limit(500_000).work_latency(latency).build();
        // Blocks enough for all.
        let broker =
            Broker::builder(&pool(&device)).staging(64 << 10, MIB).budget(240_000).build().expect("a broker");
        let squarer = Squarer::new(&broker, Client::new("client"), 300_000);
        broker.set_streams("default", streams).expect("idle");
        let plan = broker.commit("default").expect("it fits");
        let chunks = plan.partition().chunks();
        let waits = |chunk: &Chunk<'_, HostDevice>, stream: &HostStream| {
            let index = chunk.index();
            stream.launch([], [], move |[], []: [&mut [u8]; 0]| {
                let mut seen = SEEN.lock().expect("no panic");
                seen.begun = seen.begun.max(index + 1);
                CHANGED.notify_all();
                // The chunk that this stream had before, and all before that, are done anyway.
                let (seen, waited) = CHANGED
                    .wait_timeout_while(seen, LONGEST, |seen| {
                        (seen.arrived < index && streams == 2) || seen.begun < (index + 2).min(chunks)
                    })
                    .expect("no panic");
                drop(seen);
                if !waited.timed_out() {
                    HIDDEN.fetch_add(1, Relaxed);
                }
            })?;
            Ok(())
        };
        squarer.run_with(&plan, |_| note(&|seen| seen.arrived += 1), waits).expect("a run");
        assert_eq!(HIDDEN.load(Relaxed), chunks, "of {chunks} on {streams} streams, {latency:?}");
        // All uploads but the first, and all results but the last.
        assert!((chunks - 1) * 100 >= 80 * chunks);
        assert_eq!(device.races(), 0);
    }
}
