//! Tags: what is freed.

use crate::MIB;
use crate::setup::on_each;
use vrampool_sleep::SleepUsage;

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
