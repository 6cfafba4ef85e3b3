/*
 * vrampool: a bounded caching buffer pool for device memory. The C ABI.
 *
 * What holds for all of it:
 *
 * - Every function that can fail answers a vrampool_status. On failure nothing has changed, every byte is accounted for,
 *   what is behind output pointers is as it was, and vrampool_last_error() of the same thread tells why and what to do.
 * - No function unwinds into its caller or aborts, whatever it is given, but for vrampool_torch_alloc, which throws a C++
 *   exception where PyTorch expects one. Null pointers, handles that are none or no longer, addresses that are nobody's and
 *   memory that is freed twice are errors with a code. What cannot be checked: a pointer to less than what its type is, and
 *   the handle of a CUDA stream that was destroyed.
 * - All functions may be called from all threads at the same time. Calls with one block wait for each other.
 * - A child that was forked from a process that had opened a device gets VRAMPOOL_ERROR_FORKED from every call with a status, and
 *   null from the others; vrampool_stop_metrics and vrampool_set_log_callback work. A child of a process that had not starts afresh.
 * - Sizes are bytes. Text is UTF-8 that ends with a 0.
 * - Structs begin with `struct_size`, which the caller sets to sizeof its own version: later versions add fields at the end,
 *   and older callers go on working.
 */
#ifndef VRAMPOOL_H
#define VRAMPOOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this header. Numbers grow when something is added; nothing is taken away within an ABI version. */
#define VRAMPOOL_ABI_VERSION 1

/* No cap, in limits and statistics. */
#define VRAMPOOL_UNLIMITED UINT64_MAX

/* ---------------------------------------------------------------------------------------------------------- errors --- */

typedef int32_t vrampool_status;

enum {
    VRAMPOOL_OK = 0,
    /* An argument is null, out of range, no text, or names nothing. */
    VRAMPOOL_ERROR_INVALID_ARGUMENT = 1,
    /* A pool's handle that is none, or of a pool that was destroyed; a trace's likewise. */
    VRAMPOOL_ERROR_INVALID_HANDLE = 2,
    /* An address where no live block begins: somebody else's, freed already, or inside a block. */
    VRAMPOOL_ERROR_INVALID_POINTER = 3,
    /* Neither idle memory nor the device has enough, also after idle memory was given back. */
    VRAMPOOL_ERROR_OUT_OF_MEMORY = 4,
    /* More than the device allocates in one piece. */
    VRAMPOOL_ERROR_TOO_LARGE = 5,
    /* A block or a stream of another pool, device or size than the one that was named. */
    VRAMPOOL_ERROR_MISMATCH = 6,
    /* It is forbidden while the stream is captured into a graph. */
    VRAMPOOL_ERROR_CAPTURE = 7,
    /* The memory is asleep. */
    VRAMPOOL_ERROR_ASLEEP = 8,
    /* An option or an environment variable that cannot be. */
    VRAMPOOL_ERROR_CONFIGURATION = 9,
    /* There is no such device here. */
    VRAMPOOL_ERROR_UNAVAILABLE = 10,
    /* The device, the pool's source, or this build cannot do it at all. */
    VRAMPOOL_ERROR_UNSUPPORTED = 11,
    /* The device's driver failed. */
    VRAMPOOL_ERROR_DEVICE = 12,
    /* The device is gone for good. */
    VRAMPOOL_ERROR_DEVICE_LOST = 13,
    /* Another call on the same thing is under way, or it is too late for this one. */
    VRAMPOOL_ERROR_BUSY = 14,
    /* A fault of vrampool's own, caught at the boundary. */
    VRAMPOOL_ERROR_INTERNAL = 15,
    /* The process was forked from one that had opened a device: nothing of the parent's is used here. */
    VRAMPOOL_ERROR_FORKED = 16
};

/* The text of this thread's last failure; "" when there was none. It stays until the next failure of this thread, or until
 * vrampool_clear_error. Never null. */
const char *vrampool_last_error(void);

/* Its code; VRAMPOOL_OK when there was none. A call that succeeds leaves it as it is. */
vrampool_status vrampool_last_error_code(void);

/* Forgets this thread's last failure. */
void vrampool_clear_error(void);

/* A code's name, as "OUT_OF_MEMORY"; "UNKNOWN" for what is none. Never null. */
const char *vrampool_status_name(vrampool_status status);

/* vrampool's version, as "0.1.0". Never null. */
const char *vrampool_version(void);

/* VRAMPOOL_ABI_VERSION of the library that is loaded. */
uint32_t vrampool_abi_version(void);

/* Frees text that a function here made. Null is fine. Other pointers are VRAMPOOL_ERROR_INVALID_POINTER. */
vrampool_status vrampool_string_free(char *text);

/* --------------------------------------------------------------------------------------------------------- logging --- */

/* Called with each line that vrampool logs: `level` 1 (error), 2 (warning), 3 (information), 4 (debug), 5 (trace); the part of
 * vrampool that it is from; its text. Both texts are valid during the call. */
typedef void (*vrampool_log_callback)(void *user, int level, const char *target, const char *text);

/* Calls `callback` with all lines up to `level` from now on; a null callback, or level 0, for none, which is the default. The calls
 * come from a thread of vrampool's own, one at a time and without any lock of vrampool's, so a callback may call vrampool and may
 * wait for what waits for vrampool. At most 1024 lines wait for it; the number of lines beyond that is logged. Returns when the callback
 * before has seen all its lines and is not called again. VRAMPOOL_ERROR_BUSY inside a callback; VRAMPOOL_ERROR_UNSUPPORTED in a program
 * in Rust that has a logger of its own. In a forked child nobody is called until this is. */
vrampool_status vrampool_set_log_callback(vrampool_log_callback callback, int level, void *user);

/* --------------------------------------------------------------------------------------------------------- devices --- */

/* What devices there are, without opening any, and why the rest is not, as JSON:
 * {"devices":[{"name","backend","device","kind","total_bytes"}],"absent":[{"backend","reason"}]}. For vrampool_string_free. */
vrampool_status vrampool_devices(char **json);

/* ----------------------------------------------------------------------------------------------------------- pools --- */

/* A pool by its number, which is never given to another one. 0 is none. */
typedef uint64_t vrampool_pool;

/* A stream: on CUDA a cudaStream_t (CUstream), of anybody's; null is the default stream. On other devices one of
 * vrampool_stream_create; null is a stream that every program has there. */
typedef void *vrampool_stream;

/* Makes a pool. `options` is null or text: pairs of `key=value` with semicolons or line ends between them, spaces around
 * either are ignored. Sizes are numbers of bytes, or with a unit as in 512MiB; `unlimited` where there may be no cap. Of a key that is
 * repeated only the last value is read. Text of more than 64 KiB is refused.
 *
 *   device          auto (default), cuda, cuda:1, cuda:GPU-<uuid>, opencl:0, wgpu:0, host
 *   host_capacity   a host device of its own of that many bytes, with `device=host`: for tests
 *   name            the pool's name in metrics
 *   source          virtual, direct, arena, driver; default: virtual where the device has virtual memory, else direct
 *   limit           hard cap on bytes taken from the device, all tags (vrampool_tag_begin) together
 *   budget          soft cap on the same, each tag's own
 *   max_cached      cap on idle bytes, each tag's own: all tags together may keep so many times that
 *   max_per_bucket  cap on idle buffers in one size class of one tag
 *   cached_class    the largest class that is kept idle
 *   size_classes    fixed, power-of-two, geometric[:N[:FROM]], multiple:UNIT, exact[:UNIT], tight, or fitted:FILE
 *   borrow_classes  from how many larger classes an empty geometric one borrows
 *   magazine_bytes  idle bytes that a thread keeps to itself; 0 turns that off
 *   magazine_class  the largest class kept so
 *   placement       device, host (pinned), managed; default: what the device prefers
 *   offload         pinned (default) or pageable: where a sleep keeps contents
 *
 * What is not given comes from the environment (VRAMPOOL_BACKEND, VRAMPOOL_MAX_CACHED_GB, VRAMPOOL_POOL_BUDGET_FRAC,
 * VRAMPOOL_POOL_LARGE_BUCKET_MB), then from vrampool's defaults. Takes no memory yet, but for source=arena. */
vrampool_status vrampool_create(const char *options, vrampool_pool *pool);

/* Gives idle memory back and ends the pool. Blocks that are live stay valid and are freed as always; a free after this one is
 * fine. A thread that is in another call with this pool at the moment ends that call. Its private pools are released. */
vrampool_status vrampool_destroy(vrampool_pool pool);

/* A block of `bytes` bytes (0 is allowed) for work on `stream`. The address is the device's; on the host device it is the
 * host's own. Contents are undefined. Within vrampool_tag_begin it has that tag.
 *
 * While memory is short the pool climbs its own ladder first: idle memory is given back and the device is asked again; only
 * then this is VRAMPOOL_ERROR_OUT_OF_MEMORY. With source=virtual the last rung of the ladder may wait for work of the device that
 * used free memory, and for that of other devices of the process that can access it; it holds no lock meanwhile. So where memory
 * may run out, call this from no host function that such work waits for. VRAMPOOL_ERROR_UNSUPPORTED on a device whose memory has no addresses (OpenCL,
 * wgpu). */
vrampool_status vrampool_allocate(vrampool_pool pool, uint64_t bytes, vrampool_stream stream, void **address);

/* As vrampool_allocate, under this tag whatever the thread's scopes are: for programs whose tags do not follow threads. */
vrampool_status vrampool_allocate_tagged(vrampool_pool pool, const char *tag, uint64_t bytes, vrampool_stream stream,
                                         void **address);

/* Frees a block, behind the work so far on `stream` and on the stream it was allocated for. Neither host nor device wait when
 * they are the same. `pool` is the block's, or 0 for whichever it is of; another one is VRAMPOOL_ERROR_MISMATCH, and the block
 * stays live. A null address is fine and does nothing. */
vrampool_status vrampool_free(vrampool_pool pool, void *address, vrampool_stream stream);

/* As vrampool_free, and says how many bytes were asked for; another number is VRAMPOOL_ERROR_MISMATCH, and the block stays. */
vrampool_status vrampool_free_sized(vrampool_pool pool, void *address, uint64_t bytes, vrampool_stream stream);

/* Frees the block whose address is at `*address`, which becomes null in the same step. Of several calls with the same `address`, in
 * threads or signal handlers, one frees the block; the others return VRAMPOOL_ERROR_INVALID_POINTER, as for a null `*address`. On
 * other failures `*address` is restored. `stream` points to a stream as of vrampool_free; null is the stream that the block was
 * allocated for, which may have been retired since. */
vrampool_status vrampool_free_at(void **address, const vrampool_stream *stream);

/* As vrampool_free_at without a stream, for finalizers: a null `*address` is fine; failures are logged, leave vrampool_last_error
 * unchanged, and the block stays live. Does nothing in a forked child. */
void vrampool_drop_at(void **address);

/* Says that work on `stream` uses the block too: its next borrower waits for the work so far on that stream (and the stream
 * waits for that of the stream the block was allocated for, as it does not for vrampool_torch_record_stream). */
vrampool_status vrampool_record_stream(void *address, vrampool_stream stream);

/* What is known of a live block. */
typedef struct vrampool_block {
    size_t struct_size;
    uint64_t address;
    /* What was asked for, and what its size class has. */
    uint64_t requested;
    uint64_t bytes;
    /* Its pool, also when that is destroyed. */
    vrampool_pool pool;
    /* The stream it was allocated for, as it was given. */
    vrampool_stream stream;
} vrampool_block;

/* The block that begins at `address`. */
vrampool_status vrampool_block_at(const void *address, vrampool_block *block);

/* ---------------------------------------------------------------------------------------------------------- streams --- */

/* Streams of a destroyed pool can be destroyed, retired and waited for as long as a block of it is live; retire and destroy them before
 * the pool.
 *
 * A new stream on the pool's device; on CUDA a CUstream, for any other library too. */
vrampool_status vrampool_stream_create(vrampool_pool pool, vrampool_stream *stream);

/* Waits for its work and destroys a stream of vrampool_stream_create. */
vrampool_status vrampool_stream_destroy(vrampool_pool pool, vrampool_stream stream);

/* Says that other code is about to destroy a stream that the pool was given: waits for its work, and the pool never uses it
 * again. No other thread may use the stream at that time. (CUDA's driver crashes on a stream that is gone.) */
vrampool_status vrampool_stream_retire(vrampool_pool pool, vrampool_stream stream);

/* Waits on the host for all work on a stream. */
vrampool_status vrampool_stream_synchronize(vrampool_pool pool, vrampool_stream stream);

/* ------------------------------------------------------------------------------------------------- figures and caps --- */

/* A pool's statistics, all its tags together. Counts are since the pool was made. */
typedef struct vrampool_stats {
    size_t struct_size;
    /* Requests served from idle memory, and the others, failed ones included. */
    uint64_t hits;
    uint64_t misses;
    /* Bytes live as they were asked for, and rounded to classes. */
    uint64_t bytes_requested;
    uint64_t bytes_live;
    /* Bytes idle, with those of free blocks that wait for all of the device (vrampool_torch_record_stream) and are beyond
     * max_cached; bytes live and idle; and bytes that the source took from the device: of source=arena the whole arena. */
    uint64_t bytes_cached;
    uint64_t bytes_held;
    uint64_t bytes_reserved;
    /* Bytes taken from the source in all, never reduced. */
    uint64_t bytes_allocated;
    /* The most that each was, since the pool was made or vrampool_reset_peaks. With tags the sum of the tags' own peaks, which
     * need not have been at one time. */
    uint64_t peak_requested;
    uint64_t peak_live;
    uint64_t peak_cached;
    uint64_t peak_held;
    uint64_t peak_reserved;
    /* Caps; VRAMPOOL_UNLIMITED for none. `limit` is that of all tags together, the others are each tag's own. */
    uint64_t max_cached_bytes;
    uint64_t max_buffers_per_bucket;
    uint64_t limit;
    uint64_t budget;
    /* Blocks that are live. */
    uint64_t live_buffers;
    /* What the source allocated and got back, calls of the driver in all, and of those for mapping memory, with their time. */
    uint64_t source_allocations;
    uint64_t source_frees;
    uint64_t driver_calls;
    uint64_t mapping_calls;
    uint64_t mapping_nanoseconds;
    /* Blocks not kept idle for a cap's sake; given back to make room or by trimming; waits put between streams. */
    uint64_t drops_over_bytes;
    uint64_t drops_over_count;
    uint64_t evictions;
    uint64_t stream_waits;
    /* Requests that failed: by the limit, by the device's memory, by another failure, because they were wrong. */
    uint64_t failed_by_limit;
    uint64_t failed_by_device;
    uint64_t failed_by_backend;
    uint64_t failed_invalid;
    /* How often each rung of the ladder was climbed that leads to an out-of-memory. */
    uint64_t rung_evict;
    uint64_t rung_wait;
    uint64_t rung_trim;
    uint64_t rung_compact;
    uint64_t rung_fail;
    /* Bytes in private pools (vrampool_torch_begin_allocate_to_pool), live and kept for their graphs, and those of released ones that
     * wait for all of the device; also in bytes_live. */
    uint64_t bytes_private;
    /* Bytes of live blocks that are asleep, and of host memory that holds contents of theirs. */
    uint64_t bytes_asleep;
    uint64_t bytes_backup;
} vrampool_stats;

/* Sets stats->struct_size bytes of it. */
vrampool_status vrampool_get_stats(vrampool_pool pool, vrampool_stats *stats);

/* The same numbers as JSON, with those of each size class and of each tag. For vrampool_string_free. */
vrampool_status vrampool_get_stats_json(vrampool_pool pool, char **json);

/* Starts the peaks anew from what is there now. */
vrampool_status vrampool_reset_peaks(vrampool_pool pool);

/* Gives idle memory back until at most `cached_bytes` are idle; 0 for all of it, which is what empty_cache is elsewhere. What
 * other threads keep to themselves they give back at their next call. `given_back` may be null. */
vrampool_status vrampool_trim(vrampool_pool pool, uint64_t cached_bytes, uint64_t *given_back);

/* Gives back what a virtual pool did not need since the last call of this; for calling once in a while. An error means that nothing
 * was given back; where one tag's memory was and another's was not, that is logged. `given_back` may be null. */
vrampool_status vrampool_decay(vrampool_pool pool, uint64_t *given_back);

/* The hard cap on bytes taken from the device, all tags together; VRAMPOOL_UNLIMITED for none. */
vrampool_status vrampool_get_limit(vrampool_pool pool, uint64_t *bytes);

/* Changes it. Below what the pool has now idle memory is given back; what is live stays, and nothing more is taken until it
 * fits. */
vrampool_status vrampool_set_limit(vrampool_pool pool, uint64_t bytes);

/* The device's memory, free and in all, as its driver tells. Either may be null. */
vrampool_status vrampool_memory_info(vrampool_pool pool, uint64_t *free_bytes, uint64_t *total_bytes);

/* The backend of the pool's device, as "cuda" or "host": text that stays valid. Of a destroyed pool too, while blocks of it live. */
vrampool_status vrampool_pool_backend(vrampool_pool pool, const char **name);

/* The number of the pool's CUDA device; 0 of other backends. Of a destroyed pool too, while blocks of it live. */
vrampool_status vrampool_pool_device(vrampool_pool pool, int *number);

/* A snapshot of the pool's memory, as JSON, for vrampool_string_free:
 * {"version":1,"pool","device","backend","source","limit",
 *  "segments":[{"address","bytes","kind":"virtual|arena|direct|driver","tag",
 *    "blocks":[{"address","bytes","requested","stream","state":"live|private|idle|free","block"}]}]}
 * Segments are runs of addresses with memory behind them, by address; their blocks cover them without holes, by address.
 * `stream` is the stream's handle as a number, 0 where it is not known. `block`, of those that are live or private, is the address
 * that vrampool_allocate gave: the same, except of a stitched block, which is listed at each piece of its memory. `idle` is kept by the pool (of sources direct and
 * driver it is in no segment: see bytes_cached), `free` nobody's. Not of one moment: other threads go on. */
vrampool_status vrampool_snapshot(vrampool_pool pool, char **json);

/* --------------------------------------------------------------------------------------------------- sleep and wake --- */

/* Memory sleeps by tag, in pools with source=virtual; others answer VRAMPOOL_ERROR_UNSUPPORTED. Asleep, the device has its
 * physical memory back and blocks keep their addresses; they must not be used, but may be freed. A sleep or a wake is for all
 * tags that it names or for none. What is kept sleeps before what is discarded: a sleep that fails leaves contents that were to
 * be kept as they are, and only one whose device fails at discarding may lose some of those that were to be gone. */

/* Makes a tag if there is none, for vrampool_allocate_tagged. */
vrampool_status vrampool_tag_create(vrampool_pool pool, const char *tag);

/* Until the matching vrampool_tag_end, what this thread allocates from `pool` has this tag. Scopes nest, the inner one
 * counts. What is allocated outside has the tag "default".
 *
 * The limit is that of all tags together: before a request is refused for it, what other tags keep idle is given back. Idle memory is
 * each tag's own, and so are the caps on it and the budget: max_cached, max_per_bucket, magazine_bytes and budget hold for each tag by
 * itself, so that five tags may keep five times max_cached. vrampool_trim counts all tags together. */
vrampool_status vrampool_tag_begin(vrampool_pool pool, const char *tag);

/* Ends this thread's innermost scope of `pool`; VRAMPOOL_ERROR_INVALID_ARGUMENT when there is none. */
vrampool_status vrampool_tag_end(vrampool_pool pool);

/* What a sleep or a wake did, bytes. */
typedef struct vrampool_sleep_report {
    size_t struct_size;
    /* Given back to the device, or taken from it. */
    uint64_t physical;
    /* Of blocks copied to the host, or back. */
    uint64_t contents;
    /* Of blocks whose contents are gone. */
    uint64_t discarded;
    /* 1 when there was nothing to do, because it was so already. */
    uint64_t was_so;
} vrampool_sleep_report;

/* Puts all tags to sleep: contents of those in `keep` (of `count` names; may be null when that is 0) are copied to the host,
 * the others' are gone. Waits on the host for work that uses the memory. `report` may be null. */
vrampool_status vrampool_sleep(vrampool_pool pool, const char *const *keep, size_t count, vrampool_sleep_report *report);

/* Puts these tags alone to sleep; with `keep_contents` 0 their contents are gone. */
vrampool_status vrampool_sleep_tags(vrampool_pool pool, const char *const *tags, size_t count, int keep_contents,
                                    vrampool_sleep_report *report);

/* Wakes these tags, and all that are neither "weights" nor "kv_cache" (vLLM's rule: what is internal to a program wakes with
 * whatever of it does); null for all. What was kept is as it was, the rest undefined. */
vrampool_status vrampool_wake(vrampool_pool pool, const char *const *tags, size_t count, vrampool_sleep_report *report);

/* Whether a tag is asleep (1) or not (0; also when nothing has it). */
vrampool_status vrampool_is_asleep(vrampool_pool pool, const char *tag, int *is_asleep);

/* ----------------------------------------------------------------------------------------------------------- files --- */

/* Replaces the file at `path` by `count` bytes, as vrampool writes its own files: completely, or not at all. The previous file stays
 * as it was if this fails, or if the process is killed. VRAMPOOL_ERROR_INVALID_ARGUMENT says why. */
vrampool_status vrampool_file_write(const char *path, const void *bytes, size_t count);

/* ---------------------------------------------------------------------------------------------------------- traces --- */

/* A trace by its number: allocations and frees in their order, recorded from a pool or loaded from a file. 0 is none. Until
 * vrampool_trace_free. A library built without traces answers VRAMPOOL_ERROR_UNSUPPORTED. */
typedef uint64_t vrampool_trace;

/* Records from now on what the pool serves, all its tags, and which of that comes back: up to `events` of them, 16 bytes each;
 * 0 is 1,048,576. More than 2^32 are VRAMPOOL_ERROR_INVALID_ARGUMENT. Allocations that find no room are left out, with their frees. A free has the stream that its
 * allocation was for. VRAMPOOL_ERROR_BUSY while it is recorded already. */
vrampool_status vrampool_record_start(vrampool_pool pool, uint64_t events);

/* What was recorded so far, while that goes on, and how many allocations were left out; `dropped` may be null.
 * VRAMPOOL_ERROR_INVALID_ARGUMENT while the pool is not recorded. */
vrampool_status vrampool_record_look(vrampool_pool pool, vrampool_trace *trace, uint64_t *dropped);

/* As vrampool_record_look, and ends it; where that fails, recording goes on. With `trace` null what was recorded is forgotten. What is live goes on living. */
vrampool_status vrampool_record_stop(vrampool_pool pool, vrampool_trace *trace, uint64_t *dropped);

/* Reads a trace: `format` is csv (vrampool's own), rmm (RMM's log) or pytorch (a memory snapshot of PyTorch's, of which nothing
 * is run); null for whichever its content is, gzip-compressed or not. `device` is which one of a snapshot, -1 the first that has
 * a history. What is wrong with it is VRAMPOOL_ERROR_INVALID_ARGUMENT, with the place and the remedy. */
vrampool_status vrampool_trace_load(const char *path, const char *format, int device, vrampool_trace *trace);

/* Writes it in place of the file that is there, which stays as it was if this fails. Gzip-compressed where the name ends with .gz. A null `format` is pytorch where the name ends with .pickle or .pkl
 * before that, else csv. */
vrampool_status vrampool_trace_save(vrampool_trace trace, const char *path, const char *format);

/* Reads the file `source` as vrampool_trace_load does and writes the file `target` as vrampool_trace_save does. `target` is checked before
 * `source` is read; one that is also the source is VRAMPOOL_ERROR_INVALID_ARGUMENT. The written file is read back before it replaces the previous one.
 * `not_kept` becomes a JSON array of texts, for vrampool_string_free: one for each property of the trace that the format does not keep, [] if it
 * keeps all. `trace` and `not_kept` may be null. */
vrampool_status vrampool_trace_convert(const char *source, const char *from_format, int device, const char *target, const char *to_format,
                                       vrampool_trace *trace, char **not_kept);

/* What is in it, as JSON, for vrampool_string_free: {"trace","events","allocations","frees","never_freed","streams",
 * "distinct_sizes","requested","peak_requested","largest","duration_us","warnings":[text],"sizes":[{"from","to","allocations","bytes","share"}]}
 * The warnings are what in its file contradicts itself, a text for each kind. */
vrampool_status vrampool_trace_show(vrampool_trace trace, char **json);

/* Forgets it. */
vrampool_status vrampool_trace_free(vrampool_trace trace);

/* --------------------------------------------------------------------------------------------------------- metrics --- */

/* Serves all pools, those made later too, to Prometheus at http://ADDRESS/metrics, as "127.0.0.1:9184"; null for that
 * address. VRAMPOOL_ERROR_BUSY when it serves already. */
vrampool_status vrampool_start_metrics(const char *address);

/* As vrampool_start_metrics, for "127.0.0.1:0" too: the system chooses a free port. `served_at` is where it serves, as
 * "127.0.0.1:41234", for vrampool_string_free. */
vrampool_status vrampool_start_metrics_at(const char *address, char **served_at);

/* Stops serving. Fine when it does not, and in a forked child. */
vrampool_status vrampool_stop_metrics(void);

/* --------------------------------------------------------------------------------------------------------- PyTorch --- */

/* The symbols that PyTorch's CUDAPluggableAllocator takes, tried with 2.11:
 *
 *   allocator = torch.cuda.memory.CUDAPluggableAllocator("libvrampool_c.so", "vrampool_torch_alloc", "vrampool_torch_free")
 *   hooks = allocator.allocator()      # set_*_fn take the address of a function below, as an integer
 *   torch.cuda.memory.change_current_allocator(allocator)
 *
 * One pool for each device, made at its first allocation. `stream` is a cudaStream_t, `device` CUDA's number. */

/* Options of the pools that PyTorch gets, as of vrampool_create; `device` is a pattern in which {} is the number, "cuda:{}"
 * by default. VRAMPOOL_ERROR_BUSY once a pool was made, and VRAMPOOL_ERROR_CONFIGURATION for what cannot be. Options are
 * taken over by the pools that are made later. Null for the defaults. */
vrampool_status vrampool_torch_configure(const char *options);

/* The pool of a device, made if there is none: for statistics, snapshots, tags, sleep and wake. */
vrampool_status vrampool_torch_pool(int device, vrampool_pool *pool);

/* The devices that have a pool, as JSON, for vrampool_string_free: [{"device","pool"}], the lowest number first. Makes none. */
vrampool_status vrampool_torch_pools(char **json);

/* Destroys all of PyTorch's pools, so that they can be configured anew: for tests, when none of their memory is used. */
vrampool_status vrampool_torch_shutdown(void);

/* `size` bytes; null for 0 bytes, as PyTorch's own allocator. Where vrampool_torch_throws is 1, any failure is thrown as a C++
 * exception: c10::OutOfMemoryError (in Python torch.OutOfMemoryError) when memory ran out, after the pool gave all idle memory
 * back and asked again; else c10::Error (RuntimeError). Its text is vrampool_last_error's. Where it is 0, a failure is null, which
 * PyTorch does not check: its kernels would write to address 0. So check vrampool_torch_throws before this is installed, as
 * vrampool.torch.install() does. */
void *vrampool_torch_alloc(size_t size, int device, void *stream);

/* The same, but null for any failure, which vrampool_last_error explains: for a torch.cuda.MemPool, below PyTorch's own allocator,
 * which frees what it keeps idle and asks again where it gets null. */
void *vrampool_torch_alloc_or_null(size_t size, int device, void *stream);

/* Frees. Never throws; failures are told by vrampool_last_error and logged. Where size or device are not the block's own, that
 * is an error, and the block is freed all the same: PyTorch forgets it in any case. */
void vrampool_torch_free(void *address, size_t size, int device, void *stream);

/* Whether a failure would be thrown: 1 where PyTorch's libraries were found in this process. 0 for a PyTorch that was built with the
 * C++ ABI of before GCC 5, such as PyPI's wheels of 2.5 and some of 2.6: its exceptions cannot be made. */
int vrampool_torch_throws(void);

/* set_init_fn: remembers how many devices there are. */
void vrampool_torch_init(int device_count);

/* set_reset_fn (torch.cuda.empty_cache): gives idle memory of all devices back. */
void vrampool_torch_reset(void);

/* set_memory_fraction_fn (torch.cuda.set_per_process_memory_fraction): a limit of this share of the device's memory, 0 to 1. */
void vrampool_torch_memory_fraction(double fraction, int device);

/* set_base_alloc_fn: where the block begins that `address` is in, and its bytes. `address` itself, and 0, when it is not ours. */
void *vrampool_torch_base_alloc(void *address, size_t *size);

/* set_record_stream_fn (Tensor.record_stream): says that work on `stream` uses the block, in an order that the program sees to. Its
 * next borrower waits for the work so far on that stream, and nobody else waits for anything. Where that fails the block, once it
 * is freed, is used again only after a wait for all of the device. */
void vrampool_torch_record_stream(void *address, void *stream);

/* PyTorch's MempoolId_t, a std::pair<unsigned long long, unsigned long long>. On Linux both are passed in the same way. */
typedef struct vrampool_mempool_id {
    uint64_t first;
    uint64_t second;
} vrampool_mempool_id;

/* set_begin_allocate_to_pool: until the matching end, allocations on `device` whose stream `filter` accepts come from the
 * private pool of that id, made here if there is none. `filter` points to libstdc++'s std::function<bool(cudaStream_t)>, as C++
 * passes one by value; null accepts every stream.
 *
 * A private pool keeps its memory for the graph that it is captured into, at the same addresses, until it is released: memory
 * that is freed there is used again there and by nobody else. While its stream is captured, what would take a call that the
 * capture forbids is allocated on a stream of vrampool's own, which is waited for: as PyTorch does it. Where what is free was
 * used by the captured stream and by others, the host waits for those others, and the captured stream gets it. Refused
 * (VRAMPOOL_ERROR_CAPTURE) stays what several captures at once used: none can wait for another. Blocks that another stream used
 * (record_stream) are not used again before the release. Graphs may share a private pool: each begin counts one use of it, and
 * each release ends one. What C cannot carry: PyTorch's checkpoints of pools (graph trees of torch.compile). */
void vrampool_torch_begin_allocate_to_pool(int device, vrampool_mempool_id id, void *filter);

/* set_end_allocate_to_pool_fn: allocations no longer go there. */
void vrampool_torch_end_allocate_to_pool(int device, vrampool_mempool_id id);

/* set_release_pool: a graph is gone. With the last that uses the private pool (as often as it was begun) its idle memory goes
 * back to the device's pool, live memory when it is freed. */
void vrampool_torch_release_pool(int device, vrampool_mempool_id id);

/* ------------------------------------------------------------------------------------ segments in the shape of vLLM --- */

/* What vLLM's cumem_allocator does: memory whose physical side a caller takes away and gives back by itself, at one address.
 * For PyTorch's MemPool on top, with vrampool_segment_alloc and vrampool_segment_free as its functions. On a device with virtual
 * memory only. Contents are not kept: copy them before. */

/* Told of each segment once it is mapped: device, its bytes, its address, and a number that names it. */
typedef void (*vrampool_segment_malloc_callback)(void *user, int device, uint64_t bytes, uint64_t address, uint64_t handle);
/* Told of each segment before it goes. */
typedef void (*vrampool_segment_free_callback)(void *user, uint64_t address);

/* Who is told; nulls for nobody. They are called without any lock, and may call vrampool. */
vrampool_status vrampool_segment_callbacks(vrampool_segment_malloc_callback on_malloc,
                                           vrampool_segment_free_callback on_free, void *user);

/* A segment of at least `size` bytes, mapped, which reserves as many addresses; null for 0 bytes, and for any failure, which
 * vrampool_last_error explains. The device is the one that vrampool_torch_configure's pattern names. */
void *vrampool_segment_alloc(size_t size, int device, void *stream);

/* Frees a segment, mapped or not, after the work that uses it. Never throws. */
void vrampool_segment_free(void *address, size_t size, int device, void *stream);

/* Takes the physical memory of a segment away; its address stays. `bytes`, `address` and `handle` as the callback had them:
 * others are VRAMPOOL_ERROR_MISMATCH. Waits for the work that uses it. Fine when it is so already. */
vrampool_status vrampool_segment_unmap_and_release(int device, uint64_t bytes, uint64_t address, uint64_t handle);

/* Gives it physical memory again at its address, with undefined contents. Fine when it has some. */
vrampool_status vrampool_segment_create_and_map(int device, uint64_t bytes, uint64_t address, uint64_t handle);

#ifdef __cplusplus
}
#endif

#endif
