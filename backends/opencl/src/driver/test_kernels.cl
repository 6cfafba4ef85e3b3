// The kernels of `test_kernels.rs`, which defines THREADS. A region is a buffer and the offset of the region in it, bytes.
//
// No kernel reads or writes but within the counts that it is given.

#define REGION(name) __global uchar *name##_buffer, ulong name##_offset
#define AT(type, name) __global type *name = (__global type *)(name##_buffer + name##_offset)
#define EACH(i, count) for (ulong i = get_global_id(0); i < count; i += get_global_size(0))
#define OF(x, y) __attribute__((reqd_work_group_size(x, y, 1)))

// Four bytes that say which seed wrote them, and where.
uint word(ulong seed, ulong index) {
    ulong x = seed + (index + 1) * 0x9E3779B97F4A7C15ul;
    x = (x ^ x >> 32) * 0xD6E8FEB86659FD93ul;
    return (uint)(x ^ x >> 32);
}

// The region begins at a multiple of 4 bytes.
__kernel void write_pattern(REGION(bytes), ulong count, ulong seed) {
    AT(uchar, bytes);
    __global uint *words = (__global uint *)bytes;
    ulong whole = count / 4;
    EACH(i, whole) words[i] = word(seed, i);
    if (get_global_id(0) == 0)
        for (ulong i = whole * 4; i < count; i++) bytes[i] = (uchar)(word(seed, whole) >> i % 4 * 8);
}

// *count += how many of the bytes are not what `write_pattern` writes. Groups of THREADS. By two additions of 32 bits, each
// of which answers what was there before, so that every carry is seen once: additions of 64 bits are an extension.
__kernel OF(THREADS, 1) void count_mismatches(REGION(bytes), ulong count, ulong seed, REGION(wrong)) {
    AT(const uchar, bytes);
    __global const uint *words = (__global const uint *)bytes;
    AT(volatile uint, wrong);
    __local uint found[THREADS];
    ulong whole = count / 4;
    uint mine = 0;
    EACH(i, whole) {
        uint difference = words[i] ^ word(seed, i);
        for (; difference; difference >>= 8) mine += (difference & 0xFF) != 0;
    }
    if (get_global_id(0) == 0)
        for (ulong i = whole * 4; i < count; i++) mine += bytes[i] != (uchar)(word(seed, whole) >> i % 4 * 8);
    found[get_local_id(0)] = mine;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (get_local_id(0) == 0) {
        ulong sum = 0;
        for (uint i = 0; i < THREADS; i++) sum += found[i];
        if (sum) {
            uint before = atomic_add(wrong, (uint)sum);
            uint carry = (uint)(sum >> 32) + (before + (uint)sum < before);
            if (carry) atomic_add(wrong + 1, carry);
        }
    }
}
