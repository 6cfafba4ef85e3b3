//! Tags: their limit, what is freed, faults.

use crate::setup::{Tags, on_each};
use crate::{MIB, discrete, integrated};
use vrampool_sleep::{Offload, SleepState, SleepUsage};

/// vLLM's `test_workspace_scratch_discarded_on_sleep`.
#[test]
fn what_was_outgrown_does_not_come_back() {
    on_each(&["workspace"], |tags| {
        let outgrown = tags.filled("workspace", 2 * MIB, 1);
        let scratch = tags.filled("workspace", 8 * MIB, 2);
        drop(outgrown);
        let place = scratch.address();
        let report = tags.sleep(&[]).expect("no fault");
        let usage = SleepUsage::of(&tags.of("workspace").arena);
        assert_eq!((report.copied_bytes, report.discarded_bytes, usage.backup_bytes), (0, 8 * MIB, 0));
        let report = tags.wake_up().expect("memory");
        assert_eq!(report.physical_bytes, 8 * MIB, "what was outgrown does not come back");
        assert!(!tags.holds(&scratch, 2));
        assert_eq!(scratch.address(), place);
        // It can be used again.
        drop(scratch);
        assert!(tags.holds(&tags.filled("workspace", 8 * MIB, 3), 3));
    });
}

/// Each call fails once, of several tags' in turn: all tags are as they were.
#[test]
fn a_fault_in_one_tag_leaves_all_tags_as_they_were() {
    use vrampool::host::Call;
    let calls = [
        Call::Allocate,
        Call::CreateStream,
        Call::Copy,
        Call::Upload,
        Call::Download,
        Call::Synchronize,
        Call::Record,
        Call::Wait,
        Call::CreatePhysical,
        Call::Map,
        Call::SetAccess,
        Call::Unmap,
    ];
    for (device, offload) in [(discrete(), Offload::Pinned), (integrated(), Offload::Pageable)] {
        let all = ["a", "b", "c"];
        let tags = Tags::with(device, &all, offload, |builder| builder.piece_bytes(2 * MIB));
        let blocks: Vec<_> = (0..9).map(|seed| tags.filled(all[seed % 3], 3 * MIB, seed as u64)).collect();
        let all_hold = || (0..).zip(&blocks).all(|(seed, block)| tags.holds(block, seed));
        let is = |state| tags.all.iter().all(|tag| tag.arena.state() == state);
        let awake = tags.free();
        let mut faults = 0;
        for call in calls {
            for n in 1.. {
                tags.device.faults().fail_nth(call, n);
                let outcome = tags.sleep(&all);
                tags.device.faults().clear();
                if outcome.is_ok() {
                    break;
                }
                faults += 1;
                tags.finish();
                assert!(is(SleepState::Awake) && all_hold(), "{call:?} {n}");
                assert_eq!(tags.free(), awake, "{call:?} {n}");
            }
            let asleep = tags.free();
            for n in 1.. {
                tags.device.faults().fail_nth(call, n);
                let outcome = tags.wake_up();
                tags.device.faults().clear();
                if outcome.is_ok() {
                    break;
                }
                faults += 1;
                assert!(is(SleepState::Asleep), "{call:?} {n}");
                let bytes: u64 = tags.all.iter().map(|tag| SleepUsage::of(&tag.arena).asleep_bytes).sum();
                assert_eq!((tags.free(), bytes), (asleep, 27 * MIB), "{call:?} {n}");
            }
            tags.finish();
            assert!(all_hold(), "{call:?}");
            assert_eq!(tags.free(), awake);
        }
        assert!(faults > 20, "{offload:?}: {faults} calls failed");
    }
}
