// The kernels of `test_kernels.rs`.
//
// Regions of one arena are parts of one buffer, which a dispatch may either read or write: so everything is bound for writing,
// and each binding begins at an aligned offset at or before its region, whose first element has the number `*at`.
// No kernel writes but within the counts that it is given.

@group(0) @binding(1) var<storage, read_write> words: array<u32>;
@group(0) @binding(2) var<storage, read_write> wrong_bytes: array<atomic<u32>>;

const THREADS = 256u;

// 64 bits, the low half first.
alias Long = vec2<u32>;

fn plus(x: Long, y: Long) -> Long {
    let low = x.x + y.x;
    return Long(low, x.y + y.y + select(0u, 1u, low < x.x));
}

fn times(x: Long, y: Long) -> Long {
    let xs = Long(x.x & 0xFFFFu, x.x >> 16u);
    let ys = Long(y.x & 0xFFFFu, y.x >> 16u);
    let low = xs.x * ys.x;
    let one = xs.x * ys.y;
    let two = xs.y * ys.x;
    let middle = (low >> 16u) + (one & 0xFFFFu) + (two & 0xFFFFu);
    let high = xs.y * ys.y + (one >> 16u) + (two >> 16u) + (middle >> 16u);
    return Long((low & 0xFFFFu) | (middle << 16u), high + x.x * y.y + x.y * y.x);
}

// `seed` is the seed plus 0x9E3779B97F4A7C15 for each word of the region up to and with the first here; `mask` has the bytes
// of the last word that are the region's.
struct Pattern { seed: Long, at: u32, count: u32, mask: u32, wrong_at: u32 }
@group(0) @binding(0) var<uniform> pattern: Pattern;

// Four bytes that say which seed wrote them, and where.
fn word(index: u32) -> u32 {
    let x = plus(pattern.seed, times(Long(index, 0u), Long(0x7F4A7C15u, 0x9E3779B9u)));
    let y = times(Long(x.x ^ x.y, x.y), Long(0x6659FD93u, 0xD6E8FEB8u));
    return y.x ^ y.y;
}

fn mask_of(index: u32) -> u32 {
    return select(0xFFFFFFFFu, pattern.mask, index == pattern.count - 1u);
}

@compute @workgroup_size(256)
fn write_pattern(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let p = pattern;
    for (var i = id.x; i < p.count; i += groups.x * THREADS) {
        let mask = mask_of(i);
        words[p.at + i] = (words[p.at + i] & ~mask) | (word(i) & mask);
    }
}

// wrong_bytes, 64 bits, += how many of the bytes are not what `write_pattern` writes
@compute @workgroup_size(256)
fn count_mismatches(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let p = pattern;
    var wrong = 0u;
    for (var i = id.x; i < p.count; i += groups.x * THREADS) {
        var difference = (words[p.at + i] ^ word(i)) & mask_of(i);
        for (var n = 0u; n < 4u; n++) {
            wrong += select(0u, 1u, (difference & 0xFFu) != 0u);
            difference >>= 8u;
        }
    }
    if wrong != 0u {
        let before = atomicAdd(&wrong_bytes[p.wrong_at], wrong);
        if before + wrong < before { atomicAdd(&wrong_bytes[p.wrong_at + 1u], 1u); }
    }
}

struct Occupy { at: u32, count: u32, rounds: u32 }
@group(0) @binding(0) var<uniform> occupied: Occupy;

// Takes its time for each word, and writes it.
@compute @workgroup_size(256)
fn occupy(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let p = occupied;
    for (var i = id.x; i < p.count; i += groups.x * THREADS) {
        var x = words[p.at + i];
        for (var n = 0u; n < p.rounds; n++) { x = (x * 1664525u + 1013904223u) ^ (x >> 3u); }
        words[p.at + i] = x;
    }
}
