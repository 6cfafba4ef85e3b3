//! Kernels of tests: patterns, mismatches, delays, and stray writes.

use super::kernel::{Kernel, load, number, reads, store, writes};
use std::time::Duration;

/// As the modules of the crate and of its tests have them.
pub(super) const KERNELS: [Kernel; 4] = [
    Kernel {
        name: "write_pattern",
        touches: |a| vec![writes(number(a, 0), number(a, 1))],
        run: |a| {
            let (start, bytes, seed) = (number(a, 0), number(a, 1), number(a, 2));
            for index in 0..bytes / 4 {
                store(start, index, word(seed, index));
            }
            for index in bytes / 4 * 4..bytes {
                store(start, index, tail(seed, bytes, index));
            }
        },
    },
    Kernel {
        name: "count_mismatches",
        touches: |a| vec![reads(number(a, 0), number(a, 1)), writes(number(a, 3), 8)],
        run: |a| {
            let (start, bytes, seed, count) = (number(a, 0), number(a, 1), number(a, 2), number(a, 3));
            let mut wrong = 0u64;
            for index in 0..bytes / 4 {
                let difference = load::<u32>(start, index) ^ word(seed, index);
                if difference != 0 {
                    wrong += difference.to_le_bytes().iter().filter(|byte| **byte != 0).count() as u64;
                }
            }
            for index in bytes / 4 * 4..bytes {
                wrong += u64::from(load::<u8>(start, index) != tail(seed, bytes, index));
            }
            store(count, 0, load::<u64>(count, 0) + wrong);
        },
    },
    Kernel {
        name: "delay",
        touches: |_| Vec::new(),
        run: |a| std::thread::sleep(Duration::from_nanos(number(a, 0))),
    },
    Kernel {
        name: "write_to",
        touches: |a| vec![writes(number(a, 0), 4)],
        run: |a| store(number(a, 0), 0, 7u32),
    },
];

/// Four bytes that say which seed wrote them, and where.
fn word(seed: u64, index: u64) -> u32 {
    let x = seed.wrapping_add((index + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let x = (x ^ (x >> 32)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    (x ^ (x >> 32)) as u32
}

/// One of the last bytes, behind the whole words.
fn tail(seed: u64, bytes: u64, index: u64) -> u8 {
    (word(seed, bytes / 4) >> (index % 4 * 8)) as u8
}
