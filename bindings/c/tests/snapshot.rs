//! A snapshot adds up: segments are what is reserved, and blocks cover them.

mod calls;

use calls::{Torch, allocate, free, ok, pool, stats};
use serde_json::Value;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use vrampool_c::boundary::Out;
use vrampool_c::boundary::{Text, Texts};
use vrampool_c::*;
use vrampool_trace::plot::Plot;

/// Text of the library's, which is freed.
fn read(text: *mut c_char) -> Value {
    // SAFETY: text that the library made, and that is freed after it is read here.
    let value = serde_json::from_slice(unsafe { CStr::from_ptr(text) }.to_bytes()).expect("JSON");
    ok(vrampool_string_free(text));
    value
}

fn snapshot(pool: u64) -> Value {
    let mut text = ptr::null_mut();
    ok(vrampool_snapshot(pool, Out::from(&mut text)));
    read(text)
}

fn number(value: &Value, key: &str) -> u64 {
    value[key].as_u64().unwrap_or_else(|| panic!("{key} of {value}"))
}

/// Bytes by state, of a snapshot whose blocks cover its segments.
fn by_state(snapshot: &Value) -> BTreeMap<String, u64> {
    let (mut states, mut end) = (BTreeMap::new(), 0);
    for segment in snapshot["segments"].as_array().expect("segments") {
        let (address, bytes) = (number(segment, "address"), number(segment, "bytes"));
        assert!(address >= end, "segments are in order and do not overlap");
        end = address;
        for block in segment["blocks"].as_array().expect("blocks") {
            assert_eq!(number(block, "address"), end, "no hole in {segment}");
            end += number(block, "bytes");
            assert!(number(block, "requested") <= number(block, "bytes"));
            *states.entry(block["state"].as_str().expect("a state").to_owned()).or_default() +=
                number(block, "bytes");
        }
        assert_eq!(end, address + bytes, "they cover {segment}");
    }
    states
}

#[test]
fn blocks_cover_what_is_reserved() {
    for source in ["virtual", "direct", "arena"] {
        let options =
            CString::new(format!("device=host; host_capacity=256MiB; limit=96MiB; source={source}"))
                .expect("no 0");
        let pool = pool(&options);
        let mut live = Vec::new();
        for round in 0..40u64 {
            let bytes = [3000, 5 << 20, 70_000, 1_500_000, 9 << 20][(round % 5) as usize];
            let mut address = ptr::null_mut();
            match vrampool_allocate(pool, bytes, ptr::null_mut(), Out::from(&mut address)) {
                Status::OK => live.push((address as u64, bytes)),
                status => assert_eq!(status, Status::OUT_OF_MEMORY),
            }
            if round % 3 == 2 {
                let (address, _) = live.swap_remove((round as usize * 7) % live.len());
                ok(vrampool_free(pool, address as *mut c_void, ptr::null_mut()));
            }
            let (snapshot, stats) = (snapshot(pool), stats(pool));
            let _page = Plot::snapshot(snapshot.to_string().as_bytes()).expect("what is written is read");
            let states = by_state(&snapshot);
            let of = |state: &str| states.get(state).copied().unwrap_or(0);
            // An arena's blocks are a multiple of its alignment.
            assert!(
                of("live") >= stats.live_bytes && of("live") <= stats.live_bytes + 4096 * live.len() as u64
            );
            match source {
                "direct" => assert_eq!(of("live"), stats.live_bytes),
                "virtual" => assert_eq!(states.values().sum::<u64>(), stats.reserved_bytes),
                _ => assert_eq!(states.values().sum::<u64>(), 96 << 20),
            }
        }
        live.iter().for_each(|&(address, _)| free(address as *mut c_void));
        assert!(!by_state(&snapshot(pool)).contains_key("live"));
        ok(vrampool_destroy(pool));
    }
}

#[test]
fn tags_have_their_own_segments_and_none_while_asleep() {
    let pool = pool(c"device=host; source=virtual; name=tagged");
    ok(vrampool_tag_begin(pool, c"weights".into()));
    let address = allocate(pool, 4 << 20, ptr::null_mut());
    ok(vrampool_tag_end(pool));
    let tags = |snapshot: &Value| -> Vec<String> {
        let segments = snapshot["segments"].as_array().expect("segments").iter();
        segments.map(|segment| segment["tag"].as_str().expect("a tag").to_owned()).collect()
    };
    assert_eq!(tags(&snapshot(pool)), ["weights"]);
    let mut text = ptr::null_mut();
    ok(vrampool_get_stats_json(pool, Out::from(&mut text)));
    let json = read(text);
    assert_eq!(number(&json["tags"]["weights"], "live_bytes"), 4 << 20);
    assert_eq!((number(&json["tags"]["default"], "live_bytes"), number(&json, "live_bytes")), (0, 4 << 20));
    let names = [Text::from(c"weights")];
    ok(vrampool_sleep_tags(pool, Texts::of(&names), 1, 0, None, ptr::null_mut(), Out::null()));
    assert!(tags(&snapshot(pool)).is_empty());
    free(address);
    ok(vrampool_destroy(pool));
}

/// The addresses of live blocks, with their bytes and requested bytes.
fn live(snapshot: &Value) -> BTreeMap<u64, (u64, u64)> {
    let segments = snapshot["segments"].as_array().expect("segments").iter();
    let blocks = segments.flat_map(|segment| segment["blocks"].as_array().expect("blocks"));
    let live: Vec<_> = blocks.filter(|block| block["state"] == "live").collect();
    let listed =
        |block: &&Value| (number(block, "address"), (number(block, "bytes"), number(block, "requested")));
    let by_address: BTreeMap<_, _> = live.iter().map(listed).collect();
    assert_eq!(by_address.len(), live.len(), "each once: {snapshot}");
    by_address
}

/// A stitched block has other addresses than the pieces of its memory. It is listed once, at its address.
#[test]
fn each_live_block_is_listed_once_by_its_address() {
    const PART: u64 = 4 << 20;
    let pool = pool(c"device=host; host_capacity=256MiB; source=virtual; limit=64MiB; magazine_bytes=0");
    let allocate = |bytes| allocate(pool, bytes, ptr::null_mut()) as u64;
    let free = |address: u64| free(address as *mut c_void);
    // All that there may be, and every second part of it free: only a stitched block is larger than one.
    let parts: Vec<_> = (0..16).map(|_| allocate(PART)).collect();
    parts.iter().step_by(2).for_each(|&part| free(part));
    let stitched = allocate(6 * PART);
    let (snapshot, stats) = (snapshot(pool), stats(pool));
    assert_eq!((stats.live_bytes, stats.reserved_bytes), (14 * PART, 16 * PART));
    let states = by_state(&snapshot);
    assert_eq!(states.get("live"), Some(&stats.live_bytes), "{snapshot}");
    assert_eq!(states.values().sum::<u64>(), stats.reserved_bytes);
    let expected = parts.iter().skip(1).step_by(2).map(|&part| (part, (PART, PART)));
    assert_eq!(live(&snapshot), expected.chain([(stitched, (6 * PART, 6 * PART))]).collect(), "{snapshot}");
    // Asleep it is listed nowhere, and awake as before.
    let sleep = |wakes| {
        let names = [Text::from(c"default")];
        ok(match wakes {
            true => vrampool_wake(pool, Texts::of(&names), 1, None, ptr::null_mut(), Out::null()),
            false => vrampool_sleep_tags(pool, Texts::of(&names), 1, 0, None, ptr::null_mut(), Out::null()),
        });
    };
    sleep(false);
    assert!(live(&self::snapshot(pool)).is_empty());
    sleep(true);
    assert_eq!(live(&self::snapshot(pool)), live(&snapshot));
    [stitched].into_iter().chain(parts.into_iter().skip(1).step_by(2)).for_each(free);
    assert!(!by_state(&self::snapshot(pool)).contains_key("live"));
    ok(vrampool_destroy(pool));
}

/// Over an arena of fixed size they are in its segment, and over virtual memory in segments of their own.
#[test]
fn blocks_of_private_pools_are_listed_once() {
    let (null, id) = (ptr::null_mut(), MempoolId { first: 0, second: 7 });
    for source in ["arena", "virtual"] {
        let options = CString::new(format!("device=host; limit=16MiB; source={source}")).expect("no 0");
        let torch = Torch::new(&options);
        let pool = torch.pool;
        vrampool_torch_begin_allocate_to_pool(0, id, CppFunction::null());
        let blocks = [0; 3].map(|_| vrampool_torch_alloc(1 << 20, 0, null));
        vrampool_torch_end_allocate_to_pool(0, id);
        vrampool_torch_free(blocks[1], 1 << 20, 0, null);
        for is_released in [false, true] {
            if is_released {
                vrampool_torch_release_pool(0, id);
            }
            let snapshot = snapshot(pool);
            let states = by_state(&snapshot);
            let bytes = if source == "arena" { 16 << 20 } else { stats(pool).reserved_bytes };
            assert_eq!(states.values().sum::<u64>(), bytes, "{snapshot}");
            assert_eq!(states["private"], 2 << 20, "{snapshot}");
            let kinds: Vec<_> = snapshot["segments"].as_array().expect("segments").iter().collect();
            assert!(kinds.iter().all(|segment| segment["kind"] == source), "{snapshot}");
        }
        vrampool_torch_free(blocks[0], 1 << 20, 0, null);
        vrampool_torch_free(blocks[2], 1 << 20, 0, null);
    }
}
