//! Calls over all tags of a pool: a call that fails leaves every tag as it was, and a call that succeeds
//! reports what it did.

mod calls;
#[cfg(all(feature = "cuda", target_os = "linux"))]
mod cuda_driver;

use calls::ok;
use std::ffi::{CStr, c_void};
use std::ptr;
use std::sync::Mutex;
use vrampool_c::boundary::Out;
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

fn limit(pool: u64) -> u64 {
    let mut bytes = 0;
    ok(vrampool_get_limit(pool, Out::from(&mut bytes)));
    bytes
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
