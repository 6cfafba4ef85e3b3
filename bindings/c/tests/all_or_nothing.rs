//! Calls over all tags of a pool: a call that fails leaves every tag as it was, and a call that succeeds
//! reports what it did.

mod calls;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod cuda_driver;

use calls::{free, ok, stats};
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Mutex;
use vrampool_c::boundary::{Out, Text};
use vrampool_c::*;

const MIB: u64 = 1 << 20;

/// For tests on the host device, one at a time: a request that is refused trims the other pools of its device.
static HOST: Mutex<()> = Mutex::new(());

fn allocate(pool: u64, tag: Option<&CStr>, bytes: u64) -> Result<*mut c_void, Status> {
    let mut address = ptr::null_mut();
    if let Some(tag) = tag {
        ok(vrampool_tag_begin(pool, tag.into()));
    }
    let allocated = vrampool_allocate(pool, bytes, ptr::null_mut(), Out::from(&mut address));
    if tag.is_some() {
        ok(vrampool_tag_end(pool));
    }
    if allocated == Status::OK { Ok(address) } else { Err(allocated) }
}

/// A pool, where the device has virtual memory.
fn virtual_pool(options: &CStr) -> Option<u64> {
    let mut pool = 0;
    match vrampool_create(Text::from(options), Out::from(&mut pool)) {
        Status::UNSUPPORTED => {
            vrampool_test_support::skipped(format_args!("{}", last_error_text()));
            return None;
        }
        created => ok(created),
    }
    Some(pool)
}

fn limit(pool: u64) -> u64 {
    let mut bytes = 0;
    ok(vrampool_get_limit(pool, Out::from(&mut bytes)));
    bytes
}

/// Also where one tag has more than that, and where it is raised.
#[test]
fn a_changed_limit_is_that_of_all_tags() {
    let _alone = HOST.lock();
    let Some(pool) = virtual_pool(c"device=host; source=virtual; limit=64MiB") else { return };
    let tags = [None, Some(c"a"), Some(c"z")];
    let serves = |bytes: u64| tags.map(|tag| allocate(pool, tag, bytes).map(free).is_ok());
    assert_eq!(serves(40 * MIB), [true; 3]);
    let live = allocate(pool, Some(c"z"), 16 * MIB).expect("memory");
    ok(vrampool_set_limit(pool, 8 * MIB));
    assert_eq!((limit(pool), serves(4 * MIB)), (8 * MIB, [false; 3]), "what is live stays");
    free(live);
    assert_eq!((serves(4 * MIB), serves(16 * MIB)), ([true; 3], [false; 3]));
    ok(vrampool_set_limit(pool, 128 * MIB));
    assert_eq!((limit(pool), serves(100 * MIB)), (128 * MIB, [true; 3]));
    ok(vrampool_destroy(pool));
}

/// What is idle under five tags is no more than what one may have.
#[test]
fn the_cap_on_idle_bytes_is_that_of_all_tags() {
    let _alone = HOST.lock();
    let options =
        c"device=host; source=virtual; max_cached_bytes=64KiB; magazine_bytes=0; size_classes=fixed";
    let Some(pool) = virtual_pool(options) else { return };
    let tags = [None, Some(c"a"), Some(c"b"), Some(c"c"), Some(c"d")];
    let idle = || stats(pool).idle_bytes;
    for tag in tags.into_iter().cycle().take(25) {
        let blocks = [(); 3].map(|()| allocate(pool, tag, 16 << 10).expect("memory"));
        blocks.into_iter().for_each(free);
        assert!(idle() <= 64 << 10, "{} idle bytes", idle());
    }
    assert_eq!(idle(), 64 << 10);
    ok(vrampool_destroy(pool));
}

#[cfg(all(feature = "cuda", target_os = "linux"))]
mod faults {
    use super::cuda_driver::on_cuda;
    use super::{MIB, allocate};
    use crate::calls::free;
    use vrampool_c::boundary::Out;
    use vrampool_c::{Status, vrampool_decay};
    use vrampool_cuda_simulator_control::{Simulator, UNKNOWN};

    fn decay(pool: u64) -> Result<u64, Status> {
        let mut bytes = 0;
        match vrampool_decay(pool, Out::from(&mut bytes)) {
            Status::OK => Ok(bytes),
            status => Err(status),
        }
    }

    /// A fault in one tag does not hide what the others released, and the next call releases the rest: no
    /// more and no less.
    #[test]
    fn a_decay_that_fails_for_one_tag_counts_the_others_and_is_made_up_for() {
        on_cuda(c"device=cuda:0; source=virtual; cached_class=0", |_, pool| {
            let Some(simulator) = Simulator::loaded() else { return };
            for (faults, expected) in [(0, Ok(16 * MIB)), (1, Ok(8 * MIB)), (2, Err(Status::DEVICE))] {
                let blocks = [None, Some(c"z")].map(|tag| allocate(pool, tag, 8 * MIB).expect("memory"));
                assert_eq!(decay(pool), Ok(0));
                blocks.into_iter().for_each(free);
                assert_eq!(decay(pool), Ok(0), "needed since the last one");
                (0..faults).for_each(|nth| simulator.fail("cuMemUnmap", nth + 1, UNKNOWN).expect("a name"));
                let first = decay(pool);
                assert_eq!(first, expected, "{faults} faults");
                assert_eq!(decay(pool), Ok(16 * MIB - first.unwrap_or(0)), "{faults} faults");
            }
        });
    }
}

#[test]
fn a_limit_below_an_arena_of_fixed_size_is_an_invalid_argument() {
    let _alone = HOST.lock();
    let pool = calls::pool(c"device=host; source=arena; limit=16MiB");
    assert_eq!(vrampool_set_limit(pool, 8 * MIB), Status::INVALID_ARGUMENT);
    assert!(last_error_text().contains("16777216 are taken"), "{}", last_error_text());
    assert_eq!((limit(pool), vrampool_set_limit(pool, 64 * MIB)), (16 * MIB, Status::OK));
    assert_eq!(allocate(pool, None, 32 * MIB), Err(Status::OUT_OF_MEMORY));
    assert!(last_error_text().contains("takes a new limit only when it is built"), "{}", last_error_text());
    ok(vrampool_destroy(pool));
}
