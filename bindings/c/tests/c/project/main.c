#include "vector.h"
#include <stdio.h>

#define CHECK(call)                                                                                                                \
    if ((call) != VRAMPOOL_OK) {                                                                                                   \
        fprintf(stderr, "%s: %s\n", #call, vrampool_last_error());                                                                 \
        return 1;                                                                                                                  \
    }

int main(void) {
    if (vrampool_abi_version() != VRAMPOOL_ABI_VERSION) {
        fprintf(stderr, "the library has ABI %u, the header %d\n", vrampool_abi_version(), VRAMPOOL_ABI_VERSION);
        return 1;
    }
    vrampool_pool pool;
    CHECK(vrampool_create("device=host; host_capacity=64MiB; limit=32MiB", &pool));
    for (int step = 0; step < 3; step++) {
        vector vector;
        CHECK(vector_create(pool, 1000, &vector));
        for (uint64_t index = 0; index < vector.count; index++)
            vector.numbers[index] = (double)index;
        CHECK(vector_destroy(&vector));
    }
    vrampool_stats stats = {.struct_size = sizeof stats};
    CHECK(vrampool_get_stats(pool, &stats));
    CHECK(vrampool_destroy(pool));
    printf("%s: %u hits\n", vrampool_version(), (unsigned)stats.served_by_bucket);
    return stats.served_by_bucket != 2;
}
