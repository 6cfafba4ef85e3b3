//! What a tag costs in host memory. A process of its own, because its memory is measured.

mod calls;

use calls::{allocate, free, ok, pool};
use std::ffi::CString;
use std::ptr;
use vrampool_c::boundary::Out;
use vrampool_c::{vrampool_destroy, vrampool_tag_begin, vrampool_tag_end, vrampool_trim};

const TAGS: u64 = 100;

fn kibibytes_of_process() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).expect("it is there");
    line.chars().filter(char::is_ascii_digit).collect::<String>().parse().expect("a number")
}

/// Memory that was used and released: no allocation of zeros is new from the system from then on, and so
/// none is free of cost.
fn use_the_heap() {
    drop(vec![1u8; 16 << 20]);
    let blocks: Vec<_> = (0..48).map(|_| vec![1u8; 1 << 20]).collect();
    drop(blocks);
}

#[test]
fn a_tag_costs_little() {
    let pool = pool(c"device=host; host_capacity=1GiB; source=virtual; limit=512MiB");
    use_the_heap();
    let before = kibibytes_of_process();
    for tag in 0..TAGS {
        let tag = CString::new(format!("tag {tag}")).expect("no 0");
        ok(vrampool_tag_begin(pool, tag.as_c_str().into()));
        free(allocate(pool, 1000, ptr::null_mut()));
        ok(vrampool_tag_end(pool));
    }
    ok(vrampool_trim(pool, 0, Out::null()));
    let more = kibibytes_of_process().saturating_sub(before);
    println!("{} KiB a tag", more / TAGS);
    assert!(more < 128 * TAGS, "{} KiB a tag", more / TAGS);
    ok(vrampool_destroy(pool));
}
