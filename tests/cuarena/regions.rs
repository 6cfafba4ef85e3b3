//! cuArena's tests of its stable region, merging and compaction.

use super::{MB, Setup, contents, holds, setup, setup_with_stable};
use vrampool::Error;
use vrampool::arena::{ArenaBuffer, ArenaError, Zone};

type Buffer = ArenaBuffer<vrampool::host::HostDevice>;

fn stable(setup: &Setup, bytes: u64) -> Result<Buffer, Error> {
    setup.arena.allocate_in(bytes, Zone::Stable, &setup.stream)
}

fn offset(buffer: &Buffer) -> u64 {
    buffer.offset().expect("live")
}

#[test]
fn out_of_memory_throws() {
    let setup = setup_with_stable(64 * MB, 4 * MB);
    let error = stable(&setup, 8 * MB).expect_err("more than the region");
    assert!(matches!(error.arena(), Some(ArenaError::NoSpace { zone: Zone::Stable, .. })), "{error}");
    assert!(error.is_out_of_memory() && error.to_string().contains("stable zone"), "{error}");
    assert_eq!(setup.arena.available(Zone::Dynamic), 60 * MB, "it does not fall back");
}

/// cuArena refuses every resize there. Here one grows in the region, and what the region has no room for
/// is refused.
#[test]
fn resize_on_stable_throws() {
    let setup = setup_with_stable(64 * MB, 4 * MB);
    let mut buffer = stable(&setup, MB).expect("memory");
    let _behind = stable(&setup, MB).expect("memory");
    buffer.write(&[9; 64], &setup.stream).expect("no fault");
    let error = buffer.resize(8 * MB, &setup.stream).expect_err("more than the region");
    assert!(matches!(error.arena(), Some(ArenaError::NoSpace { zone: Zone::Stable, .. })), "{error}");
    assert_eq!((buffer.len(), offset(&buffer)), (MB, 0));
    buffer.resize(2 * MB, &setup.stream).expect("memory");
    assert_eq!(setup.arena.used_in(Zone::Stable), 3 * MB);
    assert_eq!(contents(&buffer, &setup.stream)[..64], [9; 64]);
}

/// cuArena returns a movable block instead (W11). Here a request for an absent region is an error.
#[test]
fn fallback_to_dynamic_when_no_stable_region() {
    let setup = setup(64 * MB);
    let error = stable(&setup, MB).expect_err("no such region");
    assert!(matches!(error.arena(), Some(ArenaError::NoStableZone)), "{error}");
    assert!(error.to_string().contains("ask for dynamic memory"), "{error}");
    assert_eq!((setup.arena.capacity_of(Zone::Stable), setup.arena.used()), (0, 0));
}

#[test]
fn stable_survives_compact() {
    let setup = setup_with_stable(64 * MB, 16 * MB);
    let hole = stable(&setup, MB).expect("memory");
    let mut kept = stable(&setup, MB).expect("memory");
    kept.write(&[5; 4096], &setup.stream).expect("no fault");
    let dynamic_hole = setup.allocate(8 * MB);
    let moving = setup.filled(8 * MB, 6);
    drop((hole, dynamic_hole));
    let report = setup.arena.compact(u64::MAX, &setup.stream, |_| ()).expect("no fault");
    assert_eq!(report.moved_blocks, 1);
    assert_eq!((offset(&kept), offset(&moving)), (MB, 16 * MB));
    assert_eq!(contents(&kept, &setup.stream)[..4096], [5; 4096]);
    assert!(holds(&moving, &setup.stream, 6));
}
