#ifndef VECTOR_H
#define VECTOR_H

#include <vrampool.h>

typedef struct vector {
    double *numbers;
    uint64_t count;
} vector;

/* Numbers in memory of a pool on the host device. */
vrampool_status vector_create(vrampool_pool pool, uint64_t count, vector *vector);
vrampool_status vector_destroy(vector *vector);

#endif
