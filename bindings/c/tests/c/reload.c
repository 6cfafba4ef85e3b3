/* The library loaded at run time, used, and closed: its threads may run on. Compiled and run by tests/c_program.rs. */

#include <vrampool.h>

#include <dlfcn.h>
#include <pthread.h>

#define LAST_ERROR "unknown"
#include "check.h"

static void *library;

static void *find(const char *name) {
    void *found = dlsym(library, name);
    CHECK(found != NULL);
    return found;
}

/* As plugins do: by pointers, so that this program does not link the library. */
static void *use(void *pool_options) {
    vrampool_status (*create)(const char *, vrampool_pool *) = find("vrampool_create");
    vrampool_status (*allocate)(vrampool_pool, uint64_t, vrampool_stream, void **) = find("vrampool_allocate");
    vrampool_status (*release)(vrampool_pool, void *, vrampool_stream) = find("vrampool_free");
    vrampool_status (*create_stream)(vrampool_pool, vrampool_stream *) = find("vrampool_stream_create");
    vrampool_status (*destroy_stream)(vrampool_pool, vrampool_stream) = find("vrampool_stream_destroy");
    vrampool_status (*destroy)(vrampool_pool) = find("vrampool_destroy");
    vrampool_pool pool;
    vrampool_stream stream;
    void *address;
    CHECK(create(pool_options, &pool) == VRAMPOOL_OK && create_stream(pool, &stream) == VRAMPOOL_OK);
    for (int i = 0; i < 50; i++) {
        CHECK(allocate(pool, 1000 << (i % 10), stream, &address) == VRAMPOOL_OK);
        CHECK(release(pool, address, NULL) == VRAMPOOL_OK);
    }
    CHECK(destroy_stream(pool, stream) == VRAMPOOL_OK && destroy(pool) == VRAMPOOL_OK);
    return NULL;
}

int main(int count, char **arguments) {
    CHECK(count == 2);
    char *options[] = {"device=host;host_capacity=64MiB", "device=host;host_capacity=64MiB;source=direct"};
    for (int round = 0; round < 20; round++) {
        library = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
        CHECK(library != NULL);
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, use, options[round % 2]) == 0 && pthread_join(thread, NULL) == 0);
        CHECK(dlclose(library) == 0);
        /* It stays, for the threads of its own that are about to end. */
        library = dlopen(arguments[1], RTLD_NOW | RTLD_NOLOAD);
        CHECK(library != NULL && dlclose(library) == 0);
    }
    puts("all is well");
    return 0;
}
