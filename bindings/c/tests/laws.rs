//! The C ABI against a naive twin.

mod calls;

use calls::{ok, stats};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::ptr;
use vrampool_c::boundary::Out;
use vrampool_c::*;

fn allocate(pool: u64, bytes: u64, stream: usize) -> Result<u64, Status> {
    let mut address = ptr::null_mut();
    match vrampool_allocate(pool, bytes, stream as *mut c_void, Out::from(&mut address)) {
        Status::OK => Ok(address as u64),
        status => {
            assert!(address.is_null(), "what failed answered nothing");
            Err(status)
        }
    }
}

fn free(pool: u64, address: u64, stream: usize) -> Status {
    vrampool_free(pool, address as *mut c_void, stream as *mut c_void)
}

#[derive(Debug, Clone)]
enum Step {
    Allocate { bytes: u64, stream: usize },
    Free { which: usize, stream: usize },
    FreeWrongly { which: usize, how: u8 },
    Record { which: usize, stream: usize },
    Trim,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let bytes = prop_oneof![0..4096u64, 0..1_000_000u64, 1_000_000..9_000_000u64];
    let step = prop_oneof![
        6 => (bytes, 0..3usize).prop_map(|(bytes, stream)| Step::Allocate { bytes, stream }),
        4 => (any::<usize>(), 0..3usize).prop_map(|(which, stream)| Step::Free { which, stream }),
        1 => (any::<usize>(), 0..5u8).prop_map(|(which, how)| Step::FreeWrongly { which, how }),
        1 => (any::<usize>(), 0..3usize).prop_map(|(which, stream)| Step::Record { which, stream }),
        1 => Just(Step::Trim),
    ];
    prop::collection::vec(step, 1..60)
}

const LIMIT: u64 = 48 << 20;

/// What is live: by address, bytes.
fn obeys(options: &CStr, steps: &[Step]) {
    let pool = calls::pool(options);
    let other = calls::pool(c"device=host; source=direct");
    let streams: Vec<usize> = (0..3)
        .map(|number| {
            let mut stream = ptr::null_mut();
            if number > 0 {
                ok(vrampool_stream_create(pool, Out::from(&mut stream)));
            }
            stream as usize
        })
        .collect();
    let mut twin: BTreeMap<u64, u64> = BTreeMap::new();
    let pick = |twin: &BTreeMap<u64, u64>, which: usize| {
        (!twin.is_empty())
            .then(|| twin.iter().nth(which % twin.len()).map(|(&at, &bytes)| (at, bytes)))
            .flatten()
    };
    for step in steps {
        match *step {
            Step::Allocate { bytes, stream } => match allocate(pool, bytes, streams[stream]) {
                Ok(address) => {
                    let before = twin.range(..=address).next_back();
                    assert!(
                        before.is_none_or(|(&at, &len)| at + len.max(1) <= address),
                        "it overlaps one before"
                    );
                    let after = twin.range(address..).next();
                    assert!(
                        after.is_none_or(|(&at, _)| address + bytes.max(1) <= at),
                        "it overlaps one behind"
                    );
                    twin.insert(address, bytes);
                }
                Err(status) => assert_eq!(status, Status::OUT_OF_MEMORY, "{}", last_error_text()),
            },
            Step::Free { which, stream } => {
                let Some((address, bytes)) = pick(&twin, which) else { continue };
                let freed =
                    vrampool_free_sized(0, address as *mut c_void, bytes, streams[stream] as *mut c_void);
                ok(freed);
                twin.remove(&address);
                assert_eq!(free(pool, address, streams[stream]), Status::INVALID_POINTER, "a second time");
            }
            Step::FreeWrongly { which, how } => {
                let Some((address, bytes)) = pick(&twin, which) else { continue };
                let (status, expected) = match how {
                    0 => (free(other, address, 0), Status::MISMATCH),
                    1 => (free(u64::MAX, address, 0), Status::MISMATCH),
                    2 => (free(pool, address, 12_345_678), Status::INVALID_ARGUMENT),
                    3 => (
                        vrampool_free_sized(pool, address as *mut c_void, bytes + 1, ptr::null_mut()),
                        Status::MISMATCH,
                    ),
                    _ => (free(pool, address + 1, 0), Status::INVALID_POINTER),
                };
                assert_eq!(
                    (status, vrampool_last_error_code()),
                    (expected, expected),
                    "{}",
                    last_error_text()
                );
            }
            Step::Record { which, stream } => {
                let Some((address, _)) = pick(&twin, which) else { continue };
                let stream = streams[stream] as *mut c_void;
                ok(vrampool_record_stream(address as *mut c_void, stream));
            }
            Step::Trim => {
                ok(vrampool_trim(pool, 0, Out::null()));
                assert_eq!(stats(pool).idle_bytes, 0);
            }
        }
        let stats = stats(pool);
        assert_eq!(stats.live_buffers, twin.len() as u64);
        assert_eq!(stats.requested_bytes, twin.values().sum::<u64>());
        assert!(stats.live_bytes >= stats.requested_bytes && stats.held_bytes >= stats.live_bytes);
        assert!(stats.reserved_bytes <= LIMIT && stats.held_bytes <= LIMIT, "{stats:?}");
    }
    // Half of what is left is freed after the pool was destroyed.
    let half = twin.len() / 2;
    for (number, (&address, _)) in twin.iter().enumerate() {
        if number == half {
            ok(vrampool_destroy(pool));
        }
        ok(free(pool, address, streams[0]));
    }
    if twin.is_empty() {
        ok(vrampool_destroy(pool));
    }
    for stream in &streams[1..] {
        ok(vrampool_stream_destroy(other, *stream as *mut c_void));
    }
    ok(vrampool_destroy(other));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn it_is_a_map_of_addresses_over_virtual_memory(steps in steps()) {
        obeys(c"device=host; source=virtual; limit=48MiB", &steps);
    }

    #[test]
    fn it_is_a_map_of_addresses_over_allocations(steps in steps()) {
        obeys(c"device=host; source=direct; limit=48MiB; size_classes=geometric", &steps);
    }
}

#[test]
fn blocks_of_an_arena_stay_where_they_are() {
    const BLOCK: usize = 4 << 20;
    let pool = calls::pool(
        c"device=host; source=arena; limit=16MiB; max_cached_bytes=0; size_classes=exact:4KiB; magazine_bytes=0",
    );
    let blocks: Vec<_> = (0..4).map(|_| allocate(pool, BLOCK as u64, 0).expect("memory")).collect();
    for (&block, byte) in blocks.iter().zip(1..) {
        // SAFETY: a live block of so many bytes on the host.
        unsafe { ptr::write_bytes(block as *mut u8, byte, BLOCK) };
    }
    ok(free(pool, blocks[0], 0));
    ok(free(pool, blocks[2], 0));
    // Both holes together would do, if what is between them were moved: but C would not know.
    assert_eq!(allocate(pool, 2 * BLOCK as u64, 0), Err(Status::OUT_OF_MEMORY));
    for (&block, byte) in blocks.iter().zip(1..).skip(1).step_by(2) {
        // SAFETY: as above.
        let contents = unsafe { std::slice::from_raw_parts(block as *const u8, BLOCK) };
        assert!(contents.iter().all(|&found| found == byte), "block {byte}");
        ok(free(pool, block, 0));
    }
    // Nothing was lost by that.
    let all = allocate(pool, 4 * BLOCK as u64, 0).expect("memory");
    ok(free(pool, all, 0));
    ok(vrampool_destroy(pool));
}
