// The kernels of `test_kernels.rs`. `test_kernels.ptx` is made from this file, so that a machine needs neither a toolkit nor NVRTC:
// by NVRTC 12.1 with `--gpu-architecture=compute_60`; comments and unused symbols are left out, and `.version` is set to 7.0,
// whose instructions are all it has.
//
// No kernel reads or writes but within the counts that it is given.

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define ROLLED _Pragma("unroll 1")

__device__ u64 first() { return blockIdx.x * (u64)blockDim.x + threadIdx.x; }
__device__ u64 stride() { return gridDim.x * (u64)blockDim.x; }

// Four bytes that say which seed wrote them, and where.
__device__ u32 word(u64 seed, u64 index) {
    u64 x = seed + (index + 1) * 0x9E3779B97F4A7C15ull;
    x = (x ^ x >> 32) * 0xD6E8FEB86659FD93ull;
    return (u32)(x ^ x >> 32);
}

// `start` is aligned to 4 bytes.
extern "C" __global__ void write_pattern(u8 *start, u64 bytes, u64 seed) {
    u32 *words = (u32 *)start;
    u64 whole = bytes / 4;
    ROLLED
    for (u64 i = first(); i < whole; i += stride()) words[i] = word(seed, i);
    if (first() == 0)
        ROLLED
        for (u64 i = whole * 4; i < bytes; i++) start[i] = (u8)(word(seed, whole) >> i % 4 * 8);
}

// *count += how many of the bytes are not what `write_pattern` writes
extern "C" __global__ void count_mismatches(const u8 *start, u64 bytes, u64 seed, u64 *count) {
    const u32 *words = (const u32 *)start;
    u64 whole = bytes / 4, wrong = 0;
    ROLLED
    for (u64 i = first(); i < whole; i += stride()) {
        u32 difference = words[i] ^ word(seed, i);
        ROLLED
        for (; difference; difference >>= 8) wrong += (difference & 0xFF) != 0;
    }
    if (first() == 0)
        ROLLED
        for (u64 i = whole * 4; i < bytes; i++) wrong += start[i] != (u8)(word(seed, whole) >> i % 4 * 8);
    if (wrong) atomicAdd(count, wrong);
}

// Keeps its stream busy.
extern "C" __global__ void delay(u64 nanoseconds) {
    u64 began, now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(began));
    do asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    while (now - began < nanoseconds);
}
