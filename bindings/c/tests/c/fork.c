/* Children of a process that uses the library, forked while its threads are inside: what they have ends with them, every call fails, none
 * waits, and no memory is shared. Compiled and run by tests/c_program.rs. */

#include <vrampool.h>

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

#define FORKED(call) CHECK((call) == VRAMPOOL_ERROR_FORKED)

#define THREADS 4
#define BYTES ((uint64_t)3 << 20)

static vrampool_pool pool;
static atomic_int goes_on = 1;
static atomic_int rounds;

static void on_line(void *user, int level, const char *target, const char *text) {
    (void)user, (void)level, (void)target, (void)text;
}

/* As the threads below, with the locks of metrics and of lines that are logged. */
static void *log_number(void *number) {
    (void)number;
    while (atomic_load(&goes_on)) {
        char *served;
        OK(vrampool_start_metrics_at("127.0.0.1:0", &served));
        OK(vrampool_string_free(served));
        for (int i = 0; i < 20; i++) {
            OK(vrampool_set_log_callback(on_line, 5, NULL));
            vrampool_pool other;
            OK(vrampool_create("device=host;host_capacity=1MiB", &other));
            OK(vrampool_destroy(other));
            /* It is logged. */
            void *foreign = &foreign;
            vrampool_drop_at(&foreign);
        }
        OK(vrampool_stop_metrics());
        OK(vrampool_set_log_callback(NULL, 0, NULL));
    }
    return NULL;
}

/* At any moment each lock of the library is held by a thread. */
static void *work(void *number) {
    vrampool_stream stream;
    OK(vrampool_stream_create(pool, &stream));
    for (uint64_t i = (uint64_t)(size_t)number; atomic_load(&goes_on); i++) {
        void *address = NULL;
        OK(vrampool_allocate(pool, (uint64_t)64 << (i % 15), i % 3 ? stream : NULL, &address));
        OK(vrampool_record_stream(address, stream));
        OK(vrampool_free(pool, address, NULL));
        if (i % 64 == 0) {
            uint64_t bytes;
            OK(vrampool_trim(pool, 0, &bytes));
        }
        atomic_fetch_add(&rounds, 1);
    }
    OK(vrampool_stream_destroy(pool, stream));
    return NULL;
}

static void child(void *block, vrampool_stream stream) {
    /* A process that waits is ended by this signal, which the parent reports. */
    alarm(60);
    void *address = NULL;
    uint64_t number;
    char *text;
    vrampool_pool other;
    vrampool_stats stats = {.struct_size = sizeof stats};
    vrampool_sleep_report report = {.struct_size = sizeof report};
    vrampool_trace trace;
    FORKED(vrampool_allocate(pool, 1000, stream, &address));
    FORKED(vrampool_free(pool, block, stream));
    void *place = block;
    FORKED(vrampool_free_at(&place, NULL));
    vrampool_drop_at(&place);
    CHECK(place == block);
    FORKED(vrampool_allocate_tagged(pool, "tag", 1000, stream, &address));
    FORKED(vrampool_tag_create(pool, "tag"));
    FORKED(vrampool_record_stream(block, stream));
    FORKED(vrampool_create("device=host;host_capacity=1MiB", &other));
    FORKED(vrampool_devices(&text));
    FORKED(vrampool_get_stats(pool, &stats));
    FORKED(vrampool_get_stats_json(pool, &text));
    FORKED(vrampool_snapshot(pool, &text));
    FORKED(vrampool_trim(pool, 0, &number));
    FORKED(vrampool_decay(pool, &number));
    FORKED(vrampool_set_limit(pool, 1));
    FORKED(vrampool_memory_info(pool, &number, &number));
    FORKED(vrampool_tag_begin(pool, "tag"));
    FORKED(vrampool_tag_end(pool));
    FORKED(vrampool_sleep(pool, NULL, 0, NULL, NULL, &report));
    FORKED(vrampool_wake(pool, NULL, 0, NULL, NULL, &report));
    FORKED(vrampool_stream_create(pool, &stream));
    FORKED(vrampool_stream_synchronize(pool, stream));
    FORKED(vrampool_stream_destroy(pool, stream));
    FORKED(vrampool_record_start(pool, 0));
    FORKED(vrampool_record_stop(pool, &trace, &number));
    FORKED(vrampool_start_metrics("127.0.0.1:0"));
    FORKED(vrampool_destroy(pool));
    vrampool_segment_free(block, BYTES, 0, NULL);
    OK(vrampool_stop_metrics());
    OK(vrampool_set_log_callback(on_line, 5, NULL));
    vrampool_torch_init(1);
    vrampool_segment_free(block, BYTES, 0, NULL);
    OK(vrampool_set_log_callback(NULL, 0, NULL));
    CHECK(vrampool_torch_alloc_or_null(100, 0, NULL) == NULL && vrampool_last_error_code() == VRAMPOOL_ERROR_FORKED);
    vrampool_torch_free(block, BYTES, 0, NULL);
    /* With the destructors of this thread's variables, and what runs at an exit. */
    exit(0);
}

/* The ways of `how` in which a child may end that touches the parent's memory: it cannot, or it has a copy. */
static void assert_not_shared(unsigned char *block) {
    memset(block, 1, BYTES);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(60);
        signal(SIGSEGV, SIG_DFL);
        memset(block, 2, BYTES);
        _exit(0);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 0) || (WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV));
    for (uint64_t i = 0; i < BYTES; i++) {
        CHECK(block[i] == 1);
    }
}

static void run(const char *options, int children) {
    OK(vrampool_create(options, &pool));
    vrampool_stream stream;
    void *block = NULL, *small = NULL;
    OK(vrampool_stream_create(pool, &stream));
    OK(vrampool_allocate(pool, BYTES, NULL, &block));
    /* This thread has idle memory of its own. */
    for (int i = 0; i < 100; i++) {
        OK(vrampool_allocate(pool, 1000, NULL, &small));
        OK(vrampool_free(pool, small, NULL));
    }
    assert_not_shared(block);
    pthread_t threads[THREADS], teller;
    atomic_store(&goes_on, 1);
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    }
    CHECK(pthread_create(&teller, NULL, log_number, NULL) == 0);
    for (int i = 0; i < children; i++) {
        /* Some thread is inside, wherever. */
        int before = atomic_load(&rounds);
        while (atomic_load(&rounds) < before + 5) {
        }
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            child(block, stream);
        }
        int status;
        CHECK(waitpid(pid, &status, 0) == pid);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    atomic_store(&goes_on, 0);
    for (size_t i = 0; i < THREADS; i++) {
        CHECK(pthread_join(threads[i], NULL) == 0);
    }
    CHECK(pthread_join(teller, NULL) == 0);
    for (uint64_t i = 0; i < BYTES; i++) {
        CHECK(((unsigned char *)block)[i] == 1);
    }
    OK(vrampool_free(pool, block, NULL));
    OK(vrampool_stream_destroy(pool, stream));
    OK(vrampool_destroy(pool));
    fprintf(stderr, "%d children, %d rounds beside them\n", children, atomic_load(&rounds));
}

/* The number of children of each source; 60 by default. */
int main(int count, char **arguments) {
    int children = count > 1 ? atoi(arguments[1]) : 60;
    run("device=host;host_capacity=256MiB;source=virtual", children);
    run("device=host;host_capacity=256MiB;source=arena;limit=64MiB", children);
    run("device=host;host_capacity=256MiB;source=direct", children);
    puts("all is well");
    return 0;
}
