//! Memory under tags sleeps and wakes on every device: contents stay, the rest goes, and where addresses are
//! said to stay they do.

use crate::MIB;
use crate::there;
use vrampool::Error;
use vrampool::sleep::{BlockState, Offload, Sleeper, Wake};

#[test]
fn contents_of_kept_tags_come_back_and_addresses_where_they_are_said_to() {
    there::on_each(|there| {
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
                let mut access = block.access_mut().expect("awake");
                there.write(&stream, access.on_mut(&stream).expect("a region"), seed);
            }
            let addresses: Vec<_> = blocks.iter().map(|block| block.address()).collect();
            let mapped = sleeper.usage().mapped_bytes;
            let report = sleeper.sleep(&["weights"]).expect("no fault");
            assert_eq!((report.freed_bytes, sleeper.usage().mapped_bytes), (mapped, 0), "{}", there.name);
            assert!(
                report.discarded_bytes >= 2 * MIB && report.backed_up_bytes >= 8 * MIB,
                "{}: {report:?}",
                there.name
            );
            assert_eq!(blocks[0].state(), BlockState::AsleepBackedUp);
            assert!(matches!(blocks[0].access(), Err(Error::Asleep { .. })));
            // One is freed asleep.
            let freed = blocks.pop();
            drop(freed);
            let _ = sleeper.wake_up(Wake::Tags(&["weights"])).expect("memory");
            assert_eq!(blocks[1].state(), BlockState::AsleepDiscarded);
            let _ = sleeper.wake_up(Wake::All).expect("memory");
            let count = there.count(&other);
            for seed in [0, 2] {
                let access = blocks[seed].access().expect("awake");
                count.verify(access.on(&other).expect("a region"), seed as u64);
            }
            assert_eq!(count.read(), 0, "{}, {offload:?}", there.name);
            if sleeper.stable_addresses() {
                let now: Vec<_> = blocks.iter().map(|block| block.address()).collect();
                assert_eq!(now, addresses[..3], "{}", there.name);
            }
        }
    });
}
