/* Every function of the header, on the host device. Compiled and run by tests/c_program.rs. */

#include <vrampool.h>

#include <pthread.h>
#include <string.h>

#include "check.h"

#define FAILS(code, call)                                                                                           \
    do {                                                                                                            \
        vrampool_clear_error();                                                                                     \
        CHECK((call) == (code));                                                                                    \
        CHECK(vrampool_last_error_code() == (code));                                                                \
        CHECK(vrampool_last_error()[0] != 0);                                                                       \
    } while (0)

#define MIB ((uint64_t)1 << 20)

static vrampool_stats stats_of(vrampool_pool pool) {
    vrampool_stats stats;
    memset(&stats, 0xff, sizeof stats);
    stats.struct_size = sizeof stats;
    OK(vrampool_get_stats(pool, &stats));
    return stats;
}

static void *allocate(vrampool_pool pool, uint64_t bytes, vrampool_stream stream) {
    void *address = NULL;
    OK(vrampool_allocate(pool, bytes, stream, &address));
    CHECK(address != NULL);
    return address;
}

/* Fails on a thread, which begins without a failure. */
static void *fails_alone(void *unused) {
    (void)unused;
    CHECK(vrampool_last_error_code() == VRAMPOOL_OK && vrampool_last_error()[0] == 0);
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_devices(NULL));
    return NULL;
}

/* A thread's last error is not changed by another thread's. */
static void test_errors_by_thread(void) {
    char own[] = "not allocated here";
    FAILS(VRAMPOOL_ERROR_INVALID_POINTER, vrampool_string_free(own));
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, fails_alone, NULL) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(vrampool_last_error_code() == VRAMPOOL_ERROR_INVALID_POINTER && vrampool_last_error()[0] != 0);
    vrampool_clear_error();
}

static void test_texts(void) {
    CHECK(strlen(vrampool_version()) >= 5);
    CHECK(vrampool_abi_version() == VRAMPOOL_ABI_VERSION);
    CHECK(strcmp(vrampool_status_name(VRAMPOOL_OK), "OK") == 0);
    CHECK(strcmp(vrampool_status_name(VRAMPOOL_ERROR_OUT_OF_MEMORY), "OUT_OF_MEMORY") == 0);
    CHECK(strcmp(vrampool_status_name(VRAMPOOL_ERROR_INTERNAL), "INTERNAL") == 0);
    CHECK(strcmp(vrampool_status_name(12345), "UNKNOWN") == 0);
    vrampool_clear_error();
    CHECK(vrampool_last_error_code() == VRAMPOOL_OK && vrampool_last_error()[0] == 0);

    char *json = NULL;
    OK(vrampool_devices(&json));
    CHECK(strstr(json, "\"host\"") != NULL);
    OK(vrampool_string_free(json));
    FAILS(VRAMPOOL_ERROR_INVALID_POINTER, vrampool_string_free(json));
    char own[] = "not yours";
    FAILS(VRAMPOOL_ERROR_INVALID_POINTER, vrampool_string_free(own));
    OK(vrampool_string_free(NULL));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_devices(NULL));
}

static void test_creation(void) {
    vrampool_pool pool = 77;
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_create("device=host", NULL));
    FAILS(VRAMPOOL_ERROR_CONFIGURATION, vrampool_create("device=host;speed=11", &pool));
    CHECK(strstr(vrampool_last_error(), "speed") != NULL && strstr(vrampool_last_error(), "max_cached_bytes") != NULL);
    FAILS(VRAMPOOL_ERROR_CONFIGURATION, vrampool_create("device=host;limit=lots", &pool));
    FAILS(VRAMPOOL_ERROR_CONFIGURATION, vrampool_create("device=host;limit=4KiB;source=virtual", &pool));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_create("device=abacus", &pool));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_create("\xff\xfe", &pool));
    CHECK(pool == 77);

    const vrampool_pool garbage[] = {0, 1, 77, UINT64_MAX, (uint64_t)1 << 40};
    for (size_t i = 0; i < sizeof garbage / sizeof *garbage; i++) {
        void *address = &pool;
        uint64_t bytes = 5;
        char *json = NULL;
        vrampool_stats stats = {.struct_size = sizeof stats};
        FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_allocate(garbage[i], 1, NULL, &address));
        FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_destroy(garbage[i]));
        FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_get_stats(garbage[i], &stats));
        FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_get_stats_json(garbage[i], &json));
        FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_snapshot(garbage[i], &json));
        FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_trim(garbage[i], 0, &bytes));
        FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_decay(garbage[i], &bytes));
        FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_get_limit(garbage[i], &bytes));
        FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_set_limit(garbage[i], 5));
        FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_reset_peaks(garbage[i]));
        FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_memory_info(garbage[i], &bytes, NULL));
        FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_stream_create(garbage[i], &address));
        FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_tag_begin(garbage[i], "tag"));
        FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_tag_end(garbage[i]));
        FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_sleep(garbage[i], NULL, 0, NULL, NULL, NULL));
        FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_wake(garbage[i], NULL, 0, NULL, NULL, NULL));
        CHECK(address == &pool && bytes == 5 && json == NULL);
    }
}

static void test_blocks(void) {
    vrampool_pool pool, other;
    OK(vrampool_create("device=host; host_capacity=1GiB; source=direct; size_classes=fixed; magazine_bytes=0", &pool));
    OK(vrampool_create("device=host\nsource=direct", &other));
    CHECK(pool != other && pool != 0);

    char *first = allocate(pool, 1000, NULL);
    memset(first, 7, 1000);
    vrampool_block block = {.struct_size = sizeof block};
    OK(vrampool_block_at(first, &block));
    CHECK(block.address == (uint64_t)(uintptr_t)first && block.requested == 1000 && block.bytes == 1024);
    CHECK(block.pool == pool && block.stream == NULL && block.struct_size == sizeof block);
    block.struct_size = 3;
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_block_at(first, &block));
    block.struct_size = 4096;
    OK(vrampool_block_at(first, &block));
    CHECK(block.struct_size == sizeof block);

    /* What is wrong leaves the block live. */
    FAILS(VRAMPOOL_ERROR_MISMATCH, vrampool_free(other, first, NULL));
    FAILS(VRAMPOOL_ERROR_MISMATCH, vrampool_free_sized(pool, first, 999, NULL));
    FAILS(VRAMPOOL_ERROR_INVALID_POINTER, vrampool_free(pool, first + 1, NULL));
    FAILS(VRAMPOOL_ERROR_INVALID_POINTER, vrampool_free(pool, &block, NULL));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_free(pool, first, &block));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_allocate(pool, 1, &block, (void **)&first));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_allocate(pool, 1, NULL, NULL));
    CHECK(stats_of(pool).live_buffers == 1 && first[999] == 7);

    OK(vrampool_free_sized(pool, first, 1000, NULL));
    FAILS(VRAMPOOL_ERROR_INVALID_POINTER, vrampool_free(pool, first, NULL));
    FAILS(VRAMPOOL_ERROR_INVALID_POINTER, vrampool_record_stream(first, NULL));
    FAILS(VRAMPOOL_ERROR_INVALID_POINTER, vrampool_block_at(first, &block));
    OK(vrampool_free(pool, NULL, NULL));

    void *again = allocate(pool, 1024, NULL);
    CHECK(again == first);
    vrampool_stats stats = stats_of(pool);
    CHECK(stats.served_by_bucket == 1 && stats.live_bytes == 1024 && stats.requested_bytes == 1024);
    void *nothing = allocate(pool, 0, NULL);
    CHECK(nothing != again);
    OK(vrampool_free(0, nothing, NULL));
    FAILS(VRAMPOOL_ERROR_TOO_LARGE, vrampool_allocate(pool, UINT64_MAX - 5, NULL, &nothing));

    uint64_t released = 0, limit = 0, free_bytes = 0, total_bytes = 0;
    OK(vrampool_trim(pool, 0, &released));
    CHECK(released == 1024 && stats_of(pool).idle_bytes == 0);
    OK(vrampool_trim(pool, 0, NULL));
    OK(vrampool_decay(pool, NULL));
    OK(vrampool_reset_peaks(pool));
    OK(vrampool_get_limit(pool, &limit));
    CHECK(limit == VRAMPOOL_UNLIMITED);
    OK(vrampool_set_limit(pool, 4 * MIB));
    FAILS(VRAMPOOL_ERROR_OUT_OF_MEMORY, vrampool_allocate(pool, 6 * MIB, NULL, &nothing));
    CHECK(strstr(vrampool_last_error(), "out of memory") != NULL);
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_get_limit(pool, NULL));
    OK(vrampool_memory_info(pool, &free_bytes, &total_bytes));
    CHECK(free_bytes > 0 && free_bytes <= total_bytes);
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_get_stats(pool, NULL));
    stats.struct_size = 0;
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_get_stats(pool, &stats));

    char *json = NULL;
    OK(vrampool_get_stats_json(pool, &json));
    CHECK(strstr(json, "\"live_bytes\":1024") != NULL && strstr(json, "\"buckets\"") != NULL);
    OK(vrampool_string_free(json));
    OK(vrampool_snapshot(pool, &json));
    CHECK(strstr(json, "\"state\":\"live\"") != NULL && strstr(json, "\"source\":\"direct\"") != NULL);
    OK(vrampool_string_free(json));

    /* Sleep takes virtual memory. */
    FAILS(VRAMPOOL_ERROR_UNSUPPORTED, vrampool_tag_begin(pool, "weights"));
    FAILS(VRAMPOOL_ERROR_UNSUPPORTED, vrampool_sleep(pool, NULL, 0, NULL, NULL, NULL));

    /* A free after the pool was destroyed. */
    OK(vrampool_destroy(pool));
    FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_destroy(pool));
    FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_allocate(pool, 1, NULL, &nothing));
    memset(again, 1, 1024);
    OK(vrampool_free(pool, again, NULL));
    FAILS(VRAMPOOL_ERROR_INVALID_POINTER, vrampool_free(pool, again, NULL));
    OK(vrampool_destroy(other));
}

static void test_streams(void) {
    vrampool_pool pool, elsewhere;
    OK(vrampool_create("device=host;source=direct;magazine_bytes=0", &pool));
    OK(vrampool_create("device=host;host_capacity=64MiB;source=direct", &elsewhere));
    vrampool_stream one, other, foreign;
    OK(vrampool_stream_create(pool, &one));
    OK(vrampool_stream_create(pool, &other));
    OK(vrampool_stream_create(elsewhere, &foreign));
    CHECK(one != other && one != NULL);
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_stream_create(pool, NULL));

    void *address = allocate(pool, 4096, one);
    vrampool_block block = {.struct_size = sizeof block};
    OK(vrampool_block_at(address, &block));
    CHECK(block.stream == one);
    OK(vrampool_record_stream(address, one));
    OK(vrampool_record_stream(address, other));
    FAILS(VRAMPOOL_ERROR_MISMATCH, vrampool_record_stream(address, foreign));
    FAILS(VRAMPOOL_ERROR_MISMATCH, vrampool_allocate(pool, 1, foreign, &address));
    OK(vrampool_free(pool, address, other));
    OK(vrampool_stream_synchronize(pool, one));
    OK(vrampool_stream_synchronize(pool, NULL));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_stream_synchronize(pool, &block));
    OK(vrampool_stream_retire(pool, other));
    FAILS(VRAMPOOL_ERROR_MISMATCH, vrampool_stream_destroy(pool, foreign));
    OK(vrampool_stream_destroy(pool, one));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_stream_destroy(pool, one));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_allocate(pool, 1, one, &address));
    OK(vrampool_stream_destroy(pool, other));
    OK(vrampool_stream_destroy(elsewhere, foreign));
    OK(vrampool_destroy(elsewhere));
    OK(vrampool_destroy(pool));
}

static void test_sleep(void) {
    vrampool_pool pool;
    OK(vrampool_create("device=host; host_capacity=64MiB; source=virtual; offload=pageable", &pool));
    OK(vrampool_tag_begin(pool, "weights"));
    unsigned char *weights = allocate(pool, 4 * MIB, NULL);
    OK(vrampool_tag_begin(pool, "kv_cache"));
    void *cache = allocate(pool, 8 * MIB, NULL), *none = NULL;
    OK(vrampool_tag_end(pool));
    OK(vrampool_tag_end(pool));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_tag_end(pool));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_tag_begin(pool, NULL));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_tag_begin(pool, ""));
    memset(weights, 1, 4 * MIB);

    const char *keep[] = {"weights", "default"};
    vrampool_sleep_report report = {.struct_size = sizeof report};
    OK(vrampool_sleep(pool, keep, 2, NULL, NULL, &report));
    CHECK(report.physical_bytes >= 12 * MIB && report.copied_bytes == 4 * MIB && report.discarded_bytes == 8 * MIB && !report.no_op);
    CHECK(stats_of(pool).asleep_bytes == 12 * MIB && stats_of(pool).backup_bytes == 4 * MIB);
    int is_asleep = 0;
    OK(vrampool_is_asleep(pool, "weights", &is_asleep));
    CHECK(is_asleep == 1);
    /* A tag that does not exist. */
    const char *none_such[] = {"weights", "wieghts"};
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_is_asleep(pool, none_such[1], &is_asleep));
    CHECK(strstr(vrampool_last_error(), "default, kv_cache") != NULL && strstr(vrampool_last_error(), "`wieghts`") != NULL);
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_sleep(pool, none_such, 2, NULL, NULL, NULL));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_sleep_tags(pool, none_such, 2, 0, NULL, NULL, NULL));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_wake(pool, none_such, 2, NULL, NULL, NULL));
    FAILS(VRAMPOOL_ERROR_ASLEEP, vrampool_allocate(pool, 1, NULL, &none));
    report.struct_size = 1;
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_wake(pool, NULL, 0, NULL, NULL, &report));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_sleep(pool, NULL, 2, NULL, NULL, NULL));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_is_asleep(pool, NULL, &is_asleep));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_is_asleep(pool, "weights", NULL));
    OK(vrampool_free(pool, cache, NULL));
    OK(vrampool_wake(pool, keep, 1, NULL, NULL, NULL));
    for (size_t i = 0; i < 4 * MIB; i++) CHECK(weights[i] == 1);
    report.struct_size = sizeof report;
    OK(vrampool_sleep_tags(pool, keep, 1, 0, NULL, NULL, &report));
    CHECK(report.copied_bytes == 0 && report.discarded_bytes == 4 * MIB);
    OK(vrampool_wake(pool, NULL, 0, NULL, NULL, NULL));
    OK(vrampool_free(pool, weights, NULL));
    OK(vrampool_destroy(pool));
}

/* Blocks that are freed by the place of their address: once, whichever other thread tries. */
static void test_places(void) {
    vrampool_pool pool = 0;
    OK(vrampool_create("device=host; host_capacity=8MiB", &pool));
    vrampool_stream wrong = &pool, none = NULL;
    void *place = allocate(pool, 1000, NULL), *before = place;
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_free_at(&place, &wrong));
    CHECK(place == before && stats_of(pool).live_buffers == 1);
    OK(vrampool_free_at(&place, &none));
    CHECK(place == NULL && stats_of(pool).live_buffers == 0);
    FAILS(VRAMPOOL_ERROR_INVALID_POINTER, vrampool_free_at(&place, NULL));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_free_at(NULL, NULL));

    place = allocate(pool, 1000, NULL);
    vrampool_clear_error();
    vrampool_drop_at(&place);
    vrampool_drop_at(&place);
    CHECK(place == NULL && stats_of(pool).live_buffers == 0 && vrampool_last_error_code() == VRAMPOOL_OK);
    vrampool_drop_at(NULL);
    place = &place;
    vrampool_drop_at(&place);
    CHECK(place == &place && vrampool_last_error_code() == VRAMPOOL_OK);

    int number = -1;
    OK(vrampool_pool_device(pool, &number));
    CHECK(number == 0);
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_pool_device(pool, NULL));
    OK(vrampool_destroy(pool));
    FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_pool_device(pool, &number));
}

/* Tags as arguments, whatever the thread's scopes are. */
static void test_tags_as_arguments(void) {
    vrampool_pool pool = 0;
    OK(vrampool_create("device=host; host_capacity=64MiB; source=virtual", &pool));
    OK(vrampool_tag_create(pool, "weights"));
    OK(vrampool_tag_begin(pool, "kv_cache"));
    void *address = NULL;
    OK(vrampool_allocate_tagged(pool, "weights", 1000, NULL, &address));
    OK(vrampool_tag_end(pool));
    vrampool_sleep_report report = {.struct_size = sizeof report};
    const char *tag = "weights";
    OK(vrampool_sleep_tags(pool, &tag, 1, 0, NULL, NULL, &report));
    CHECK(report.discarded_bytes >= 1000);
    void *none = NULL;
    FAILS(VRAMPOOL_ERROR_ASLEEP, vrampool_allocate_tagged(pool, "weights", 1000, NULL, &none));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_allocate_tagged(pool, NULL, 1000, NULL, &none));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_allocate_tagged(pool, "", 1000, NULL, &none));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_allocate_tagged(pool, "weights", 1000, NULL, NULL));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_tag_create(pool, ""));
    CHECK(none == NULL);
    OK(vrampool_free(pool, address, NULL));
    OK(vrampool_destroy(pool));
    FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_tag_create(pool, "weights"));
}

static void test_metrics(void) {
    vrampool_pool pool;
    OK(vrampool_create("device=host;host_capacity=1GiB;name=seen", &pool));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_start_metrics("nowhere"));
    char *address = NULL;
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_start_metrics_at("127.0.0.1:0", NULL));
    OK(vrampool_start_metrics_at("127.0.0.1:0", &address));
    CHECK(address && strncmp(address, "127.0.0.1:", 10) == 0 && atoi(address + 10) > 0);
    FAILS(VRAMPOOL_ERROR_BUSY, vrampool_start_metrics(NULL));
    OK(vrampool_stop_metrics());
    OK(vrampool_stop_metrics());
    OK(vrampool_start_metrics(address));
    OK(vrampool_stop_metrics());
    OK(vrampool_string_free(address));
    const char *backend = NULL;
    OK(vrampool_pool_backend(pool, &backend));
    CHECK(backend && strcmp(backend, "host") == 0);
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_pool_backend(pool, NULL));
    OK(vrampool_destroy(pool));
}

struct lines {
    int errors, others;
    vrampool_status inside;
};

static void on_line(void *user, int level, const char *target, const char *text) {
    struct lines *lines = user;
    CHECK(target[0] != 0 && text[0] != 0);
    if (level == 1) lines->errors++;
    else lines->others++;
    lines->inside = vrampool_set_log_callback(NULL, 0, NULL);
}

static void test_log(void) {
    struct lines lines = {0, 0, VRAMPOOL_OK};
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_set_log_callback(on_line, 6, &lines));
    OK(vrampool_set_log_callback(on_line, 1, &lines));
    /* Failures without a callback for them. */
    for (int i = 0; i < 10; i++) vrampool_torch_free((void *)(uintptr_t)(4096 + i), 1, 0, NULL);
    /* What was logged before this was delivered when it returns. */
    OK(vrampool_set_log_callback(NULL, 0, NULL));
    CHECK(lines.errors == 10 && lines.others == 0);
    CHECK(lines.inside == VRAMPOOL_ERROR_BUSY);
    vrampool_torch_free((void *)4096, 1, 0, NULL);
    OK(vrampool_set_log_callback(NULL, 0, NULL));
    CHECK(lines.errors == 10);
    vrampool_clear_error();
    CHECK(vrampool_torch_alloc_or_null(0, 0, NULL) == NULL && vrampool_last_error_code() == VRAMPOOL_OK);
}

/* Whether a trace's figures have this text in them. */
static int shows(vrampool_trace trace, const char *text) {
    char *json = NULL;
    OK(vrampool_trace_show(trace, &json));
    int found = strstr(json, text) != NULL;
    OK(vrampool_string_free(json));
    return found;
}

static void test_conversions(void) {
    FILE *file = fopen("ids.csv", "w");
    CHECK(file != NULL && fputs("op,id,size,stream,t_us\na,7,8,5,100\nf,7,8,5,190\n", file) >= 0 && fclose(file) == 0);
    vrampool_trace trace = 77;
    char *not_kept = NULL;
    OK(vrampool_trace_convert("ids.csv", NULL, -1, "ids.pickle", NULL, &trace, &not_kept));
    CHECK(shows(trace, "\"events\":2") && strstr(not_kept, "not kept: 2 events with their ids") != NULL);
    OK(vrampool_string_free(not_kept));
    OK(vrampool_trace_free(trace));
    OK(vrampool_trace_convert("ids.pickle", "pytorch", 0, "ids.log", "rmm", NULL, NULL));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_trace_convert("ids.csv", NULL, -1, "new.csv", "xml", &trace, &not_kept));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_trace_convert(NULL, NULL, -1, "new.csv", NULL, &trace, &not_kept));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_trace_convert("ids.csv", NULL, -1, NULL, NULL, &trace, &not_kept));
}

static void test_traces(void) {
    vrampool_pool pool;
    vrampool_trace trace = 77, loaded = 77;
    uint64_t dropped = 5;
    OK(vrampool_create("device=host;host_capacity=4MiB;name=traced", &pool));
    FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_record_start(pool + 1, 0));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_record_start(pool, 1000000000000));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_record_start(pool, UINT64_MAX));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_record_look(pool, &trace, NULL));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_record_stop(pool, &trace, NULL));
    CHECK(trace == 77);

    void *before = allocate(pool, 100, NULL);
    OK(vrampool_record_start(pool, 1000));
    FAILS(VRAMPOOL_ERROR_BUSY, vrampool_record_start(pool, 1000));
    OK(vrampool_free(pool, before, NULL));
    OK(vrampool_free(0, allocate(pool, 1000, NULL), NULL));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_record_look(pool, NULL, NULL));
    OK(vrampool_record_look(pool, &trace, &dropped));
    CHECK(dropped == 0 && shows(trace, "\"trace\":\"traced\"") && shows(trace, "\"events\":2"));
    OK(vrampool_trace_free(trace));
    FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_trace_free(trace));
    FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_trace_save(trace, "trace.csv", NULL));
    OK(vrampool_record_stop(pool, &trace, NULL));

    /* To files and back. */
    const char *formats[] = {NULL, "csv", "rmm", "pytorch"};
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++) {
        OK(vrampool_trace_save(trace, "trace.csv.gz", formats[i]));
        OK(vrampool_trace_load("trace.csv.gz", formats[i], -1, &loaded));
        CHECK(shows(loaded, "\"events\":2") && shows(loaded, "\"peak_requested\":1000"));
        OK(vrampool_trace_free(loaded));
    }
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_trace_load("trace.csv.gz", "csv", -1, &loaded));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_trace_load("trace.csv.gz", NULL, -2, &loaded));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_trace_load("nowhere.csv", NULL, -1, &loaded));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_trace_load(NULL, NULL, -1, &loaded));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_trace_save(trace, "no/where.csv", NULL));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_trace_save(trace, "trace.csv", "xml"));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_trace_show(trace, NULL));
    OK(vrampool_trace_plot(trace, pool, "trace.svg", "addresses"));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_trace_plot(trace, pool, "trace.svg", "moon"));
    FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_trace_plot(trace, 0, "trace.svg", NULL));
    OK(vrampool_trace_plot(0, pool, "moment.html", NULL));
    FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_trace_plot(0, 0, "moment.html", NULL));
    OK(vrampool_trace_free(trace));
    test_conversions();

    OK(vrampool_record_start(pool, 0));
    OK(vrampool_record_stop(pool, NULL, NULL));
    OK(vrampool_record_start(pool, 0));
    OK(vrampool_destroy(pool));
    FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_record_stop(pool, &trace, NULL));
}

static void test_torch(void) {
    FAILS(VRAMPOOL_ERROR_CONFIGURATION, vrampool_torch_configure("limit=?"));
    OK(vrampool_torch_configure("device=host;host_capacity=1GiB;limit=64MiB;name=torch-{}"));
    CHECK(vrampool_torch_throws() == 0);
    vrampool_torch_init(2);
    void *address = vrampool_torch_alloc(1000, 0, NULL);
    CHECK(address != NULL && vrampool_torch_alloc(0, 0, NULL) == NULL);
    FAILS(VRAMPOOL_ERROR_BUSY, vrampool_torch_configure(NULL));
    memset(address, 9, 1000);
    vrampool_pool pool = 0, second = 0;
    OK(vrampool_torch_pool(0, &pool));
    OK(vrampool_torch_pool(1, &second));
    CHECK(pool != second && stats_of(pool).live_buffers == 1);
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_torch_pool(-1, &pool));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_torch_pool(0, NULL));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_torch_pool(100000, &pool));

    size_t size = 0;
    CHECK(vrampool_torch_base_alloc((char *)address + 500, &size) == address && size >= 1000);
    CHECK(vrampool_torch_base_alloc(&pool, &size) == (void *)&pool && size == 0);
    CHECK(vrampool_torch_base_alloc(address, NULL) == address);

    vrampool_stream side;
    OK(vrampool_stream_create(pool, &side));
    vrampool_clear_error();
    vrampool_torch_record_stream(address, side);
    CHECK(vrampool_last_error_code() == VRAMPOOL_OK);
    vrampool_torch_record_stream(&pool, side);
    CHECK(vrampool_last_error_code() == VRAMPOOL_ERROR_INVALID_POINTER);

    /* Out of memory is null where there is no PyTorch. */
    vrampool_clear_error();
    CHECK(vrampool_torch_alloc(80 * MIB, 0, NULL) == NULL);
    CHECK(vrampool_last_error_code() == VRAMPOOL_ERROR_OUT_OF_MEMORY);
    CHECK(strstr(vrampool_last_error(), "CUDA out of memory. Tried to allocate 80.00 MiB") != NULL);

    /* Freed wrongly it is freed, and an error. */
    vrampool_clear_error();
    vrampool_torch_free(address, 5, 1, NULL);
    CHECK(vrampool_last_error_code() == VRAMPOOL_ERROR_MISMATCH && stats_of(pool).live_buffers == 0);
    vrampool_torch_free(address, 1000, 0, NULL);
    CHECK(vrampool_last_error_code() == VRAMPOOL_ERROR_INVALID_POINTER);
    vrampool_torch_free(NULL, 0, 0, NULL);

    vrampool_torch_reset();
    CHECK(stats_of(pool).reserved_bytes == 0);

    char *pools = NULL, expected[64];
    snprintf(expected, sizeof expected, "[{\"device\":0,\"pool\":%llu}", (unsigned long long)pool);
    OK(vrampool_torch_pools(&pools));
    CHECK(strstr(pools, expected) == pools);
    OK(vrampool_string_free(pools));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_torch_pools(NULL));

    uint64_t total = 0, limit = 0;
    OK(vrampool_memory_info(pool, NULL, &total));
    vrampool_torch_memory_fraction(0.5, 0);
    OK(vrampool_get_limit(pool, &limit));
    CHECK(limit == total / 2 || limit == (uint64_t)((double)total * 0.5));
    vrampool_torch_memory_fraction(1.5, 0);
    CHECK(vrampool_last_error_code() == VRAMPOOL_ERROR_INVALID_ARGUMENT);

    /* A private pool keeps what it got. */
    vrampool_mempool_id id = {0, 7}, wrong = {3, 4};
    vrampool_torch_begin_allocate_to_pool(0, id, NULL);
    void *captured = vrampool_torch_alloc(1 * MIB, 0, side);
    vrampool_torch_end_allocate_to_pool(0, id);
    vrampool_torch_free(captured, 1 * MIB, 0, side);
    CHECK(stats_of(pool).private_bytes >= 1 * MIB);
    vrampool_clear_error();
    vrampool_torch_release_pool(0, id);
    CHECK(vrampool_last_error_code() == VRAMPOOL_OK);
    OK(vrampool_trim(pool, 0, NULL));
    CHECK(stats_of(pool).private_bytes == 0 && stats_of(pool).live_buffers == 0);
    vrampool_torch_end_allocate_to_pool(0, wrong);
    CHECK(vrampool_last_error_code() == VRAMPOOL_ERROR_INVALID_ARGUMENT);
    vrampool_clear_error();
    vrampool_torch_release_pool(0, wrong);
    CHECK(vrampool_last_error_code() == VRAMPOOL_ERROR_INVALID_ARGUMENT);
    OK(vrampool_stream_destroy(pool, side));
    OK(vrampool_torch_shutdown());
    FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_destroy(pool));
    OK(vrampool_torch_configure(NULL));
}

struct seen {
    uint64_t address, bytes, handle;
    int device, mallocs, frees;
};

static vrampool_status on_malloc(void *user, int device, uint64_t bytes, uint64_t address, uint64_t handle) {
    struct seen *seen = user;
    *seen = (struct seen){address, bytes, handle, device, seen->mallocs + 1, seen->frees};
    return VRAMPOOL_OK;
}

static vrampool_status on_free(void *user, int device, uint64_t bytes, uint64_t address, uint64_t handle) {
    struct seen *seen = user;
    CHECK(seen->address == address && seen->bytes == bytes && seen->handle == handle && seen->device == device);
    seen->frees++;
    return VRAMPOOL_OK;
}

static vrampool_status refuse(void *user, int device, uint64_t bytes, uint64_t address, uint64_t handle) {
    (void)device, (void)bytes, (void)address, (void)handle;
    ++*(int *)user;
    return VRAMPOOL_ERROR_BUSY;
}

static void test_segments(void) {
    OK(vrampool_torch_configure("device=host;host_capacity=1GiB"));
    struct seen seen = {0};
    OK(vrampool_segment_callbacks(on_malloc, on_free, &seen));
    unsigned char *segment = vrampool_segment_alloc(3 * MIB, 1, NULL);
    CHECK(segment != NULL && seen.mallocs == 1 && seen.address == (uint64_t)(uintptr_t)segment);
    CHECK(seen.bytes >= 3 * MIB && seen.device == 1);
    memset(segment, 3, 3 * MIB);
    FAILS(VRAMPOOL_ERROR_MISMATCH, vrampool_segment_unmap_and_release(1, seen.bytes + 1, seen.address, seen.handle));
    FAILS(VRAMPOOL_ERROR_MISMATCH, vrampool_segment_unmap_and_release(0, seen.bytes, seen.address, seen.handle));
    FAILS(VRAMPOOL_ERROR_MISMATCH, vrampool_segment_create_and_map(1, seen.bytes, seen.address, seen.handle + 1));
    FAILS(VRAMPOOL_ERROR_INVALID_POINTER,
          vrampool_segment_unmap_and_release(1, seen.bytes, seen.address + 4096, seen.handle));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_segment_create_and_map(1, seen.bytes, seen.address, seen.handle));
    OK(vrampool_segment_unmap_and_release(1, seen.bytes, seen.address, seen.handle));
    FAILS(VRAMPOOL_ERROR_ASLEEP, vrampool_segment_unmap_and_release(1, seen.bytes, seen.address, seen.handle));
    OK(vrampool_segment_create_and_map(1, seen.bytes, seen.address, seen.handle));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_segment_create_and_map(1, seen.bytes, seen.address, seen.handle));
    memset(segment, 4, seen.bytes);
    void *saved = NULL;
    uint64_t handle = seen.handle, saved_bytes = 1;
    OK(vrampool_segment_tag(handle, "weights"));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_segment_tag(handle + 1000, "weights"));
    OK(vrampool_segment_saved(handle, &saved, &saved_bytes));
    CHECK(saved == NULL && saved_bytes == 0);
    OK(vrampool_segments_save(&handle, 1, NULL, NULL));
    OK(vrampool_segment_saved(handle, &saved, &saved_bytes));
    CHECK(saved_bytes == seen.bytes && ((unsigned char *)saved)[saved_bytes - 1] == 4);
    int is_asleep = 7;
    OK(vrampool_segment_is_asleep(handle + 1000, &is_asleep));
    CHECK(is_asleep == -1);
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_segment_is_asleep(handle, NULL));
    OK(vrampool_segment_unmap_and_release(1, seen.bytes, seen.address, handle));
    FAILS(VRAMPOOL_ERROR_ASLEEP, vrampool_segments_restore(&handle, 1, NULL, NULL));
    OK(vrampool_segment_create_and_map(1, seen.bytes, seen.address, handle));
    memset(segment, 5, seen.bytes);
    /* Mapped, but without its contents. */
    OK(vrampool_segment_is_asleep(handle, &is_asleep));
    CHECK(is_asleep == 1);
    OK(vrampool_segments_restore(&handle, 1, NULL, NULL));
    OK(vrampool_segment_is_asleep(handle, &is_asleep));
    CHECK(is_asleep == 0 && segment[0] == 4 && segment[seen.bytes - 1] == 4);
    /* Once. */
    memset(segment, 6, 1);
    OK(vrampool_segments_restore(&handle, 1, NULL, NULL));
    CHECK(segment[0] == 6);
    OK(vrampool_segments_forget(&handle, 1, 1));
    OK(vrampool_segments_forget(&handle, 1, 0));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_segments_save(NULL, 1, NULL, NULL));
    vrampool_segment_free(segment, 3 * MIB, 1, NULL);
    CHECK(seen.frees == 1);
    vrampool_clear_error();
    vrampool_segment_free(segment, 3 * MIB, 1, NULL);
    CHECK(seen.frees == 1 && vrampool_last_error_code() == VRAMPOOL_ERROR_INVALID_POINTER);
    /* Freed while it has no memory. */
    segment = vrampool_segment_alloc(1, 0, NULL);
    OK(vrampool_segment_unmap_and_release(0, seen.bytes, seen.address, seen.handle));
    vrampool_segment_free(segment, 1, 0, NULL);
    CHECK(seen.frees == 2 && vrampool_segment_alloc(0, 0, NULL) == NULL);
    vrampool_segment_free(NULL, 0, 0, NULL);
    OK(vrampool_segment_callbacks(NULL, NULL, NULL));
    segment = vrampool_segment_alloc(1, 0, NULL);
    vrampool_segment_free(segment, 1, 0, NULL);
    CHECK(seen.mallocs == 2 && seen.frees == 2);
    /* Refused by the callbacks: nothing is allocated, and what is freed is freed. */
    int refusals = 0;
    OK(vrampool_segment_callbacks(refuse, refuse, &refusals));
    CHECK(vrampool_segment_alloc(1, 0, NULL) == NULL && vrampool_last_error_code() == VRAMPOOL_ERROR_BUSY && refusals == 1);
    OK(vrampool_segment_callbacks(NULL, refuse, &refusals));
    segment = vrampool_segment_alloc(1, 0, NULL);
    vrampool_segment_free(segment, 1, 0, NULL);
    CHECK(vrampool_last_error_code() == VRAMPOOL_ERROR_BUSY && refusals == 2);
    vrampool_segment_free(segment, 1, 0, NULL);
    CHECK(vrampool_last_error_code() == VRAMPOOL_ERROR_INVALID_POINTER && refusals == 2);
    OK(vrampool_segment_callbacks(NULL, NULL, NULL));
    vrampool_clear_error();
    OK(vrampool_torch_shutdown());
}

struct batch {
    vrampool_pool pool;
    vrampool_array numbers, squares;
    uint64_t chunks, runs;
};

static vrampool_status square(void *user, const vrampool_chunk *chunk) {
    struct batch *batch = user;
    const float *from = NULL;
    float *to = NULL;
    CHECK(chunk->struct_size == sizeof *chunk && chunk->arrays == 2 && chunk->first_run == batch->runs);
    OK(vrampool_stream_synchronize(batch->pool, chunk->stream));
    for (uint64_t i = 0; i < chunk->arrays; i++) {
        CHECK(chunk->bytes[i] == chunk->runs * sizeof(float));
        if (chunk->array[i] == batch->numbers) {
            from = (const float *)(uintptr_t)chunk->address[i];
        } else if (chunk->array[i] == batch->squares) {
            to = (float *)(uintptr_t)chunk->address[i];
        }
    }
    CHECK(from != NULL && to != NULL && chunk->index == batch->chunks && chunk->stream_index == 0);
    for (uint64_t run = 0; run < chunk->runs; run++) {
        to[run] = from[run] * from[run];
    }
    batch->chunks++;
    batch->runs += chunk->runs;
    return VRAMPOOL_OK;
}

static void on_progress(void *user, uint64_t chunks_done, uint64_t runs_done, uint64_t runs) {
    struct batch *batch = user;
    CHECK(chunks_done == batch->chunks && runs_done == batch->runs && runs == 1000);
}

static void test_brokers(void) {
    struct batch batch = {0, 0, 0, 0, 0};
    vrampool_broker broker;
    vrampool_client client;
    vrampool_plan plan = {sizeof plan, 0, 0, 0, 0};
    vrampool_run_report report;
    uint64_t shape[1] = {1000}, bytes = 0;
    float *numbers = NULL, *squares = NULL, one = 0;
    memset(&report, 0, sizeof report);
    report.struct_size = sizeof report;
    OK(vrampool_create("device=host; host_capacity=1MiB", &batch.pool));
    OK(vrampool_broker_create(batch.pool, "pinned_max=0; name=c", &broker));
    OK(vrampool_broker_register(broker, "squarer", NULL, "50%", &client));
    OK(vrampool_client_queue(client, VRAMPOOL_ARRAY_INPUT, "numbers", shape, 1, sizeof(float), 0, &batch.numbers));
    OK(vrampool_client_queue(client, VRAMPOOL_ARRAY_OUTPUT, "squares", shape, 1, sizeof(float), 0, &batch.squares));
    OK(vrampool_broker_commit(broker, NULL, 1, 300, &plan));
    CHECK(plan.runs == 1000 && plan.chunk_runs == 300 && plan.chunks == 4 && plan.streams == 1);
    OK(vrampool_array_data(batch.numbers, (void **)&numbers, &bytes));
    CHECK(bytes == sizeof(float) * 1000);
    for (int run = 0; run < 1000; run++) {
        numbers[run] = (float)run;
    }
    OK(vrampool_broker_run(broker, NULL, square, on_progress, &batch, &report));
    CHECK(batch.chunks == 4 && report.chunks == 4 && report.runs == 1000 && report.copied_bytes == 2 * bytes);
    /* The results, without a copy. */
    OK(vrampool_array_data(batch.squares, (void **)&squares, NULL));
    for (int run = 0; run < 1000; run++) {
        CHECK(squares[run] == (float)run * (float)run);
    }
    OK(vrampool_array_read(batch.squares, 7 * sizeof one, &one, sizeof one));
    CHECK(one == 49);
    OK(vrampool_array_write(batch.numbers, 0, &one, sizeof one));
    CHECK(numbers[0] == 49);
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_array_read(batch.squares, bytes, &one, sizeof one));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_array_read(batch.squares, 0, NULL, sizeof one));
    FAILS(VRAMPOOL_ERROR_INVALID_ARGUMENT, vrampool_broker_run(broker, NULL, NULL, NULL, NULL, NULL));
    OK(vrampool_client_destroy(client));
    FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_client_destroy(client));
    OK(vrampool_broker_destroy(broker));
    FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_broker_destroy(broker));
    CHECK(squares[9] == 81);
    OK(vrampool_array_free(batch.numbers));
    OK(vrampool_array_free(batch.squares));
    FAILS(VRAMPOOL_ERROR_INVALID_HANDLE, vrampool_array_free(batch.squares));
    OK(vrampool_destroy(batch.pool));
}

static void *all(void *unused) {
    (void)unused;
    test_texts();
    test_errors_by_thread();
    test_creation();
    test_blocks();
    test_streams();
    test_sleep();
    test_places();
    test_tags_as_arguments();
    test_metrics();
    test_log();
    test_traces();
    test_torch();
    test_segments();
    test_brokers();
    return NULL;
}

/* Each call with 128 KiB of stack at most, which is what a thread has where the C library is musl. */
int main(void) {
    pthread_attr_t small;
    pthread_t thread;
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 128 << 10) == 0);
    CHECK(pthread_create(&thread, &small, all, NULL) == 0 && pthread_join(thread, NULL) == 0);
    puts("all is well");
    return 0;
}
