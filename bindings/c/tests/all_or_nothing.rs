//! Calls over all tags of a pool: a call that fails leaves every tag as it was, and a call that succeeds reports what it did.

#[cfg(all(feature = "cuda", target_os = "linux"))]
mod cuda_driver;

use std::ffi::{CStr, c_void};
use std::ptr;
use vrampool_c::boundary::{Out, Text};
use vrampool_c::{
    Status, last_error_text, vrampool_allocate, vrampool_create, vrampool_decay, vrampool_destroy,
    vrampool_free, vrampool_get_limit, vrampool_set_limit, vrampool_tag_begin, vrampool_tag_end,
};

const MIB: u64 = 1 << 20;

fn allocate(pool: u64, tag: Option<&CStr>, bytes: u64) -> Result<*mut c_void, Status> {
    let mut address = ptr::null_mut();
    if let Some(tag) = tag {
        assert_eq!(vrampool_tag_begin(pool, tag.into()), Status::OK, "{}", last_error_text());
    }
    let allocated = vrampool_allocate(pool, bytes, ptr::null_mut(), Out::from(&mut address));
    if tag.is_some() {
        assert_eq!(vrampool_tag_end(pool), Status::OK, "{}", last_error_text());
    }
    if allocated == Status::OK { Ok(address) } else { Err(allocated) }
}

fn free(pool: u64, address: *mut c_void) {
    assert_eq!(vrampool_free(pool, address, ptr::null_mut()), Status::OK, "{}", last_error_text());
}

fn limit(pool: u64) -> u64 {
    let mut bytes = 0;
    assert_eq!(vrampool_get_limit(pool, Out::from(&mut bytes)), Status::OK);
    bytes
}

/// The last tag has more than the new limit; those before it have room for it.
#[test]
fn a_limit_that_one_tag_refuses_is_no_tags_limit() {
    let (mut pool, options) = (0, c"device=host; source=virtual; limit=64MiB");
    let created = vrampool_create(Text::from(options), Out::from(&mut pool));
    if created == Status::UNSUPPORTED {
        eprintln!("skipped: {}", last_error_text());
        return;
    }
    assert_eq!(created, Status::OK, "{}", last_error_text());
    free(pool, allocate(pool, Some(c"a"), 2 * MIB).expect("memory"));
    let live = allocate(pool, Some(c"z"), 16 * MIB).expect("memory");
    assert_ne!(vrampool_set_limit(pool, 8 * MIB), Status::OK);
    assert_eq!(limit(pool), 64 * MIB);
    for tag in [None, Some(c"a"), Some(c"z")] {
        let block = allocate(pool, tag, 40 * MIB);
        free(pool, block.unwrap_or_else(|_| panic!("under {tag:?}: {}", last_error_text())));
    }
    free(pool, live);
    assert_eq!(vrampool_set_limit(pool, 8 * MIB), Status::OK, "{}", last_error_text());
    assert_eq!(allocate(pool, None, 16 * MIB), Err(Status::OUT_OF_MEMORY));
    assert_eq!((limit(pool), vrampool_destroy(pool)), (8 * MIB, Status::OK));
}

fn decay(pool: u64) -> Result<u64, Status> {
    let mut bytes = 0;
    match vrampool_decay(pool, Out::from(&mut bytes)) {
        Status::OK => Ok(bytes),
        status => Err(status),
    }
}

/// A fault in one tag does not hide what the others gave back, and the next call gives back the rest: no more and no less.
#[cfg(all(feature = "cuda", target_os = "linux"))]
#[test]
fn a_decay_that_fails_for_one_tag_counts_the_others_and_is_made_up_for() {
    use vrampool_cuda_simulator_control::{Simulator, UNKNOWN};
    cuda_driver::on_cuda(c"device=cuda:0; source=virtual; cached_class=0", |_, pool| {
        let Some(simulator) = Simulator::loaded() else { return };
        for (faults, expected) in [(0, Ok(16 * MIB)), (1, Ok(8 * MIB)), (2, Err(Status::DEVICE))] {
            let blocks = [None, Some(c"z")].map(|tag| allocate(pool, tag, 8 * MIB).expect("memory"));
            assert_eq!(decay(pool), Ok(0));
            blocks.into_iter().for_each(|block| free(pool, block));
            assert_eq!(decay(pool), Ok(0), "needed since the last one");
            (0..faults).for_each(|nth| simulator.fail("cuMemUnmap", nth + 1, UNKNOWN).expect("a name"));
            let first = decay(pool);
            assert_eq!(first, expected, "{faults} faults");
            assert_eq!(decay(pool), Ok(16 * MIB - first.unwrap_or(0)), "{faults} faults");
        }
    });
}
