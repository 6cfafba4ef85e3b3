/* Where a pool may live: static variables, variables of threads and their destructors, and functions that run at an exit. Compiled and
 * run by tests/c_program.rs. */

#include <vrampool.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define OK(call)                                                                                                    \
    do {                                                                                                            \
        if ((call) != VRAMPOOL_OK) {                                                                                \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, vrampool_last_error());                   \
            _Exit(1);                                                                                               \
        }                                                                                                           \
    } while (0)

static vrampool_pool pool;
static _Thread_local vrampool_pool own;
static pthread_key_t key;

static void use(vrampool_pool of) {
    void *address;
    OK(vrampool_allocate(of, 5000, NULL, &address));
    OK(vrampool_free(of, address, NULL));
}

static vrampool_pool make(void) {
    vrampool_pool made;
    OK(vrampool_create("device=host;host_capacity=64MiB", &made));
    return made;
}

/* After the variables of the thread that languages destroy. */
static void on_thread_end(void *block) {
    use(pool);
    OK(vrampool_free(pool, block, NULL));
    OK(vrampool_destroy(own));
}

/* It ends within scopes of a pool of its own, which is destroyed before and after the end of its variables. */
static void *work(void *destroys) {
    void *block;
    own = make();
    OK(vrampool_tag_begin(own, "tag"));
    use(own);
    OK(vrampool_allocate(pool, 5000, NULL, &block));
    if (pthread_setspecific(key, block) != 0) {
        _Exit(1);
    }
    if (destroys) {
        OK(vrampool_destroy(own));
        own = make();
    }
    return NULL;
}

static void at_exit(void) {
    use(pool);
    OK(vrampool_destroy(pool));
    puts("all is well");
}

int main(void) {
    if (atexit(at_exit) != 0 || pthread_key_create(&key, on_thread_end) != 0) {
        return 1;
    }
    pool = make();
    for (int i = 0; i < 20; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, work, i % 2 ? &pool : NULL) != 0 || pthread_join(thread, NULL) != 0) {
            return 1;
        }
        use(pool);
    }
    return 0;
}
