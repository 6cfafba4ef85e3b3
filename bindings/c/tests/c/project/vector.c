#include "vector.h"

vrampool_status vector_create(vrampool_pool pool, uint64_t count, vector *vector) {
    void *address;
    vrampool_status status = vrampool_allocate(pool, count * sizeof(double), NULL, &address);
    if (status == VRAMPOOL_OK) {
        vector->numbers = address;
        vector->count = count;
    }
    return status;
}

vrampool_status vector_destroy(vector *vector) {
    vector->count = 0;
    return vrampool_free(0, vector->numbers, NULL);
}
