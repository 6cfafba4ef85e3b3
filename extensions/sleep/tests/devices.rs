//! Memory under tags sleeps and wakes on every device with virtual memory: contents of kept tags and all
//! addresses stay. Other devices are refused.

#[allow(dead_code, reason = "the library's tests use all of it")]
#[path = "../../../tests/devices/there.rs"]
mod there;

use vrampool::{Backend, Error};
use vrampool_sleep::{BlockState, Offload, Sleeper, Wake};

const MIB: u64 = 1 << 20;

#[test]
fn contents_of_kept_tags_and_addresses_come_back() {
    there::on_each(|there| {
        if there.device.virtual_memory().is_none() {
            let refused = Sleeper::new(&there.device);
            assert!(matches!(refused, Err(vrampool_sleep::Error::NoVirtualMemory { .. })), "{}", there.name);
            return;
        }
        let [stream, other] = there.streams();
        for offload in [Offload::Pinned, Offload::Pageable] {
            let sleeper = Sleeper::builder(&there.device).offload(offload).build().expect("a sleeper");
            let tags = ["weights", "kv_cache", "weights", "weights"];
            let sizes = [3 * MIB, 2 * MIB, 1000, 5 * MIB + 4];
            let mut blocks: Vec<_> = tags
                .iter()
                .zip(sizes)
                .map(|(tag, bytes)| sleeper.allocate_tagged(bytes, tag, &stream).expect("memory"))
                .collect();
            for (seed, block) in (0..).zip(&mut blocks) {
                there.write(&stream, block.on_mut(&stream).expect("a region"), seed);
            }
            let addresses: Vec<_> = blocks.iter().map(|block| block.address()).collect();
            let mapped = sleeper.usage().mapped_bytes;
            let report = sleeper.sleep(&["weights"]).expect("no fault");
            assert_eq!((report.physical_bytes, sleeper.usage().mapped_bytes), (mapped, 0), "{}", there.name);
            assert!(
                report.discarded_bytes >= 2 * MIB && report.copied_bytes >= 8 * MIB,
                "{}: {report:?}",
                there.name
            );
            assert_eq!(blocks[0].state(), BlockState::AsleepBackedUp);
            assert!(matches!(blocks[0].on(&stream), Err(Error::Asleep { .. })));
            // One is freed asleep.
            let freed = blocks.pop();
            drop(freed);
            let _ = sleeper.wake_up(Wake::Tags(&["weights"])).expect("memory");
            assert_eq!(blocks[1].state(), BlockState::AsleepDiscarded);
            let _ = sleeper.wake_up(Wake::All).expect("memory");
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
