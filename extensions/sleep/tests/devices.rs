//! Memory under tags sleeps and wakes on every device with virtual memory: contents of kept tags and all
//! addresses stay. Other devices are refused.

#[allow(dead_code, reason = "the library's tests use all of it")]
#[path = "../../../tests/devices/there.rs"]
mod there;

use std::time::Duration;
use vrampool::{Backend, Error, Pool, Source};
use vrampool_sleep::{Offload, SleepArena, SleepUsage, sleep_all, wake_all};

const MIB: u64 = 1 << 20;

#[test]
fn contents_of_kept_tags_and_addresses_come_back() {
    there::on_each(|there| {
        let pool = Pool::builder(&there.device).source(Source::Virtual).addresses_stay(true).build();
        if there.device.virtual_memory().is_none() {
            let text = pool.expect_err("no virtual memory").to_string();
            assert!(text.contains("no virtual memory"), "{}: {text}", there.name);
            return;
        }
        let pool = pool.expect("a pool");
        let [stream, other] = there.streams();
        for offload in [Offload::Pinned, Offload::Pageable] {
            let tags = ["weights", "kv_cache"].map(|tag| pool.child(tag).build().expect("a pool"));
            let arenas = tags.each_ref().map(|tag| SleepArena::new(tag.arena().expect("virtual").clone()));
            let sizes = [(0, 3 * MIB), (1, 2 * MIB), (0, 1000), (0, 5 * MIB + 4)];
            let mut blocks: Vec<_> =
                sizes.map(|(tag, bytes)| tags[tag].allocate(bytes, &stream).expect("memory")).into();
            for (seed, block) in (0..).zip(&mut blocks) {
                there.write(&stream, block.on_mut(&stream).expect("a region"), seed);
            }
            let addresses: Vec<_> = blocks.iter().map(|block| block.address()).collect();
            let mapped = || arenas.iter().map(|arena| SleepUsage::of(arena).mapped_bytes).sum::<u64>();
            let before = mapped();
            let chosen = [(&arenas[0], offload), (&arenas[1], Offload::Discard)];
            let report = sleep_all(chosen, Duration::ZERO, &|_| ()).expect("no fault");
            assert_eq!((report.physical_bytes, mapped()), (before, 0), "{}", there.name);
            assert!(
                report.discarded_bytes >= 2 * MIB && report.copied_bytes >= 8 * MIB,
                "{}: {report:?}",
                there.name
            );
            assert!(arenas[0].backup_bytes() > 0);
            assert!(matches!(blocks[0].on(&stream), Err(Error::Asleep { .. })));
            // One is freed asleep.
            let freed = blocks.pop();
            drop(freed);
            let _ = arenas[0].wake().expect("memory");
            assert_eq!(arenas[1].backup_bytes(), 0);
            let _ = wake_all(&arenas, &|_| ()).expect("memory");
            let count = there.count(&other);
            for seed in [0, 2] {
                count.verify(blocks[seed].on(&other).expect("a region"), seed as u64);
            }
            assert_eq!(count.read(), 0, "{}, {offload:?}", there.name);
            let now: Vec<_> = blocks.iter().map(|block| block.address()).collect();
            assert_eq!(now, addresses[..3], "{}", there.name);
        }
    });
}
