/**
 * @file
 * vrampool: a bounded caching buffer pool for device memory. The C interface.
 *
 * These rules hold for every function:
 *
 * - A function that can fail returns a vrampool_status. After a failure nothing has changed, every byte is accounted for, output
 *   arguments are as they were, and vrampool_last_error() of the same thread states the cause and the remedy.
 * - No function unwinds into its caller or aborts, except vrampool_torch_alloc(), which throws a C++ exception where PyTorch
 *   expects one. Null pointers, unknown handles, foreign addresses and second frees are errors with a code. Two things cannot be
 *   checked: a pointer to less memory than its type needs, and the handle of a CUDA stream that was destroyed.
 * - *Thread-safe* means that any number of threads may call the function at the same time, with the same arguments too, and need
 *   no lock. No other thread may change the memory behind a pointer during the call, unless the function states it.
 * - No function may be called in a signal handler: it may have interrupted another call on the same thread, whose lock the call
 *   would wait for forever.
 * - In a child that was forked from a process that had opened a device, each function with a status returns
 *   ::VRAMPOOL_ERROR_FORKED and the others return null; vrampool_stop_metrics() and vrampool_set_log_callback() work. Without an
 *   open device in the parent, the child starts without any state, if no other thread was in a call of vrampool at the fork.
 * - In a vrampool_copy_callback, functions that would wait for a sleep, a wake or a copy are ::VRAMPOOL_ERROR_BUSY, whichever pool
 *   they are for: that type lists them. All other callbacks may call every function, except that vrampool_set_log_callback() is
 *   ::VRAMPOOL_ERROR_BUSY in its own.
 * - Sizes are bytes. Text is UTF-8 and ends with a 0.
 * - A struct begins with `struct_size`, which the caller sets to `sizeof` of the struct before the call. The library reads and
 *   writes at most that many bytes, and sets `struct_size` to the number that it wrote. Later versions add fields at the end. Less than
 *   the first version's size is ::VRAMPOOL_ERROR_INVALID_ARGUMENT.
 */
#ifndef VRAMPOOL_H
#define VRAMPOOL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* -------------------------------------------------------------------------------------------------------- versions --- */

/** First part of the version of vrampool that this header is from. */
#define VRAMPOOL_VERSION_MAJOR 0
/** Second part of that version. */
#define VRAMPOOL_VERSION_MINOR 1
/** Third part of that version. */
#define VRAMPOOL_VERSION_PATCH 0

/**
 * Version of the binary interface: the same number here, in vrampool_abi_version(), and in the shared library's SONAME
 * (`libvrampool_c.so.1`).
 *
 * It changes only if a function, a field or a code is removed or gets another meaning. Additions do not change it:
 *
 * - An added function has the symbol version of the release that added it, for example `VRAMPOOL_0.1`. The dynamic linker
 *   refuses to start a program that needs a symbol version that the library lacks. A program that loads the library itself finds
 *   that the function is missing.
 * - An added field is at the end of its struct, and `struct_size` states whether the library has it.
 * - An added code is a failure that an older program does not know by name.
 *
 * So a program runs with each library of the same number that is as new as the header that it was compiled with.
 */
#define VRAMPOOL_ABI_VERSION 1

/** No cap, in limits and statistics. */
#define VRAMPOOL_UNLIMITED UINT64_MAX

/* ---------------------------------------------------------------------------------------------------------- errors --- */

/** Outcome of a function: ::VRAMPOOL_OK or the code of an error. */
typedef int32_t vrampool_status;

/** Codes of vrampool_status. */
enum {
    /** Success. */
    VRAMPOOL_OK = 0,
    /** An argument is null, out of range, not valid text, or an unknown name. */
    VRAMPOOL_ERROR_INVALID_ARGUMENT = 1,
    /** Unknown handle of a pool, a trace, a broker, a client or an array, or one that was destroyed. */
    VRAMPOOL_ERROR_INVALID_HANDLE = 2,
    /** No live block begins at the address: it is foreign, freed, or inside a block. */
    VRAMPOOL_ERROR_INVALID_POINTER = 3,
    /** Neither idle memory nor the device has enough, also after idle memory was released. */
    VRAMPOOL_ERROR_OUT_OF_MEMORY = 4,
    /** More than the device allocates in one piece. */
    VRAMPOOL_ERROR_TOO_LARGE = 5,
    /** The block or stream is of another pool, device or size than stated. */
    VRAMPOOL_ERROR_MISMATCH = 6,
    /** Forbidden while the stream is captured into a graph. */
    VRAMPOOL_ERROR_CAPTURE = 7,
    /** The memory is asleep. */
    VRAMPOOL_ERROR_ASLEEP = 8,
    /** An option or an environment variable has an invalid value. */
    VRAMPOOL_ERROR_CONFIGURATION = 9,
    /** The device is not available. */
    VRAMPOOL_ERROR_UNAVAILABLE = 10,
    /** The device, the pool's source, or this build lacks the operation. */
    VRAMPOOL_ERROR_UNSUPPORTED = 11,
    /** The device's driver failed. */
    VRAMPOOL_ERROR_DEVICE = 12,
    /** The device is lost. */
    VRAMPOOL_ERROR_DEVICE_LOST = 13,
    /** Another call on the same object is pending, or this call is no longer possible. */
    VRAMPOOL_ERROR_BUSY = 14,
    /** An internal fault, caught at the boundary. */
    VRAMPOOL_ERROR_INTERNAL = 15,
    /** The process was forked from one that had opened a device, whose state is not used here. */
    VRAMPOOL_ERROR_FORKED = 16
};

/**
 * Returns the text of this thread's last failure, "" without one. It is valid until this thread's next failure or its
 * vrampool_clear_error(). Never null.
 *
 * Thread-safe: each thread has its own text.
 */
const char *vrampool_last_error(void);

/**
 * Returns the code of this thread's last failure, ::VRAMPOOL_OK without one. A successful call leaves it unchanged.
 *
 * Thread-safe: each thread has its own code.
 */
vrampool_status vrampool_last_error_code(void);

/**
 * Forgets this thread's last failure.
 *
 * Thread-safe: each thread has its own failure.
 */
void vrampool_clear_error(void);

/**
 * Returns the name of a code, for example "OUT_OF_MEMORY", or "UNKNOWN". Never null.
 *
 * Thread-safe.
 */
const char *vrampool_status_name(vrampool_status status);

/**
 * Returns the version of vrampool, for example "0.1.0". Never null.
 *
 * Thread-safe.
 */
const char *vrampool_version(void);

/**
 * Returns #VRAMPOOL_ABI_VERSION of the loaded library.
 *
 * Thread-safe.
 */
uint32_t vrampool_abi_version(void);

/**
 * Frees text that another function returned. Null is accepted. Other pointers are ::VRAMPOOL_ERROR_INVALID_POINTER.
 *
 * Thread-safe: of several calls with one text, one frees it. No other thread may still read the text.
 */
vrampool_status vrampool_string_free(char *text);

/* --------------------------------------------------------------------------------------------------------- logging --- */

/**
 * Receives a line of vrampool's log: its `level`, which is 1 (error), 2 (warning), 3 (information), 4 (debug) or 5
 * (trace); the module that it is from; its text. Both texts are valid during the call.
 */
typedef void (*vrampool_log_callback)(void *user, int level, const char *target, const char *text);

/**
 * Passes all lines up to `level` to `callback`. A null callback, or level 0, turns this off, which is the default.
 *
 * A thread of vrampool makes the calls, one at a time and without a lock of vrampool, so a callback may call vrampool and
 * may wait for a thread that waits for vrampool. At most 1024 lines are queued; the number of further lines is logged. The
 * function returns once the previous callback has received its lines and is not called again. In a forked child, no
 * callback is set until this is called.
 *
 * ::VRAMPOOL_ERROR_BUSY inside a callback, and in a ::vrampool_copy_callback; ::VRAMPOOL_ERROR_UNSUPPORTED in a Rust
 * program that has a logger.
 *
 * Thread-safe: calls wait for each other.
 */
vrampool_status vrampool_set_log_callback(vrampool_log_callback callback, int level, void *user);

/* --------------------------------------------------------------------------------------------------------- devices --- */

/**
 * Returns the available devices, without opening any, and why each other backend is unavailable, as JSON for
 * vrampool_string_free():
 *
 *     {"devices":[{"name","backend","device","kind","total_bytes"}],"absent":[{"backend","reason"}]}
 *
 * Thread-safe.
 */
vrampool_status vrampool_devices(char **json);

/* ----------------------------------------------------------------------------------------------------------- pools --- */

/** Number of a pool, which no other pool gets. 0 is no pool. */
typedef uint64_t vrampool_pool;

/**
 * A stream. On CUDA a `cudaStream_t` (`CUstream`) of any library; null is the default stream. On other devices a stream of
 * vrampool_stream_create(); null is one that every program has there.
 */
typedef void *vrampool_stream;

/**
 * Creates a pool. `options` is null or text: pairs of `key=value`, separated by semicolons or line ends. Spaces around a
 * key or a value are ignored. An amount is a number of bytes, or has a unit, as in 512MiB (512M and 512MB are 512,000,000), or
 * is a percentage of the device's memory, as in 25%, or `unlimited`. The last value of a repeated key counts. Text over 64 KiB is refused.
 *
 *     device          auto (default), cuda, cuda:1, cuda:GPU-<uuid>, opencl:0, wgpu:0, host
 *     file            a file of lines key = value, for settings that have neither a key here nor an environment variable
 *     host_capacity   with device=host: a separate host device with this capacity, for tests
 *     offload         pinned (default) or pageable: host memory that keeps contents during a sleep
 *
 * <!-- Generated from the table of figures by bindings/c/tests/figures.rs; do not edit. -->
 *     name                    The pool's name in metrics. Default: pool-0, pool-1 and so on.
 *     source                  What serves misses. Default: direct.
 *     limit                   Hard cap on bytes taken from the device. Default: unlimited.
 *     budget                  Soft cap on bytes taken from the device. Default: 85% of a discrete device, else
 *                             unlimited.
 *     max_cached_bytes        Cap on idle bytes. Default: 4GiB; 64MiB if the source is virtual.
 *     max_buffers_per_bucket  Cap on idle buffers in one size class. Default: 16; unlimited if the source is virtual.
 *     cached_class            Largest class that is kept idle. Default: unlimited; 512KiB if the source is virtual.
 *     size_classes            How requests round up: `fixed`, `power-of-two`, `geometric[:PER_DOUBLING[:FROM]]`,
 *                             `multiple:SIZE`, `exact[:SIZE]`, `tight`. Default: fixed; tight if the source is
 *                             virtual.
 *     borrow_classes          Number of next larger classes that an empty geometric class borrows from. Default: 2.
 *     magazine_bytes          Idle bytes that a thread keeps to itself; 0 turns magazines off. Default: 8MiB, at most
 *                             a 64th of max_cached_bytes and limit; an 8th if virtual.
 *     magazine_class          Largest class that magazines keep. Default: 1MiB.
 *     overlap                 Cap on memory, beyond the peak of live bytes, that is allocated instead of waiting for
 *                             another stream; a percentage is of the held bytes. Default: unlimited.
 *     initial                 Memory to map when the pool is made, if the source is virtual. Default: 0B.
 *     piece_bytes             Largest piece of memory to map, if the source is virtual. Default: a 16th of the mapped
 *                             bytes, up to 16MiB.
 *     memory                  Kind of memory: device, host (pinned), managed. Default: what the device prefers.
 * <!-- End of the generated lines. -->
 *
 * With size_classes, fitted:FILE names a file of fitted classes. By default the source is virtual where the device has virtual
 * memory, else direct. limit, budget and max_cached_bytes are of all tags (vrampool_tag_begin()) together, the others of each tag.
 *
 * An unset option is read from the environment, from the variable `VRAMPOOL_` and its name in capitals, when the pool is
 * made, for all of its tags; the device from `VRAMPOOL_BACKEND`. Then it has vrampool's default. Allocates no memory, except with
 * source=arena and for `initial`.
 *
 * Thread-safe.
 */
vrampool_status vrampool_create(const char *options, vrampool_pool *pool);

/**
 * Releases idle memory and ends the pool. Live blocks stay valid and are freed as before the call. A call of another thread
 * with this pool completes first. Private pools of it are released.
 *
 * Thread-safe: of several calls with one pool, one ends it.
 */
vrampool_status vrampool_destroy(vrampool_pool pool);

/**
 * Allocates a block of `bytes` bytes (0 is allowed) for work on `stream`. The address is the device's; on the host device
 * it is a host address. It is a multiple of 256 on CUDA, and of 64 on the host device. Contents are undefined. Within vrampool_tag_begin() the block has that tag.
 *
 * While memory is short, the pool releases idle memory and asks the device again; only then is this
 * ::VRAMPOOL_ERROR_OUT_OF_MEMORY. With source=virtual the last step may wait for device work that used free memory, and
 * for work of other devices of the process that can access it; no lock is held meanwhile. So where memory may run out, do
 * not call this from a host function that such work waits for. ::VRAMPOOL_ERROR_UNSUPPORTED on a device whose memory has
 * no addresses (OpenCL, wgpu).
 *
 * Thread-safe.
 */
vrampool_status vrampool_allocate(vrampool_pool pool, uint64_t bytes, vrampool_stream stream, void **address);

/**
 * Allocates as vrampool_allocate(), with this tag whatever the thread's scopes are: for programs whose tags do not follow
 * threads.
 *
 * Thread-safe.
 */
vrampool_status vrampool_allocate_tagged(vrampool_pool pool, const char *tag, uint64_t bytes, vrampool_stream stream,
                                         void **address);

/**
 * Frees a block, after the pending work on `stream` and on the stream it was allocated for. If they are the same, neither
 * host nor device wait. `pool` is the block's pool, or 0 for any; another pool is ::VRAMPOOL_ERROR_MISMATCH, and the block
 * stays live. A null address is accepted and does nothing.
 *
 * Thread-safe: of several calls with one block, one frees it; calls with one block wait for each other.
 */
vrampool_status vrampool_free(vrampool_pool pool, void *address, vrampool_stream stream);

/**
 * Frees as vrampool_free(), and states the number of requested bytes. Another number is ::VRAMPOOL_ERROR_MISMATCH, and the
 * block stays live.
 *
 * Thread-safe: of several calls with one block, one frees it; calls with one block wait for each other.
 */
vrampool_status vrampool_free_sized(vrampool_pool pool, void *address, uint64_t bytes, vrampool_stream stream);

/**
 * Frees the block whose address is at `*address`, and sets that to null in the same step. On a failure `*address` is
 * restored. `stream` points to a stream as of vrampool_free(); null is the stream that the block was allocated for, which
 * may have been retired since.
 *
 * Thread-safe: of several calls with the same `address`, one frees the block. The others
 * return ::VRAMPOOL_ERROR_INVALID_POINTER, as for a null `*address`.
 */
vrampool_status vrampool_free_at(void **address, const vrampool_stream *stream);

/**
 * Frees as vrampool_free_at() without a stream, for finalizers: a null `*address` is accepted. A failure is logged, leaves
 * vrampool_last_error() unchanged, and the block stays live. Does nothing in a forked child.
 *
 * Thread-safe: of several calls with the same `address`, one frees the block.
 */
void vrampool_drop_at(void **address);

/**
 * States that work on `stream` uses the block too: its next owner waits for the pending work on that stream. The stream
 * waits for the pending work on the stream that the block was allocated for, which vrampool_torch_record_stream() does not
 * do.
 *
 * Thread-safe: calls with one block wait for each other.
 */
vrampool_status vrampool_record_stream(void *address, vrampool_stream stream);

/** Properties of a live block. */
typedef struct vrampool_block {
    /** Size of this struct, set by the caller. */
    size_t struct_size;
    /** Address of the first byte. */
    uint64_t address;
    /** Requested bytes. */
    uint64_t requested;
    /** Bytes of its size class. */
    uint64_t bytes;
    /** Its pool, also if that is destroyed. */
    vrampool_pool pool;
    /** The stream it was allocated for, as passed by the caller. */
    vrampool_stream stream;
} vrampool_block;

/**
 * Returns the block that begins at `address`.
 *
 * Thread-safe: calls with one block wait for each other.
 */
vrampool_status vrampool_block_at(const void *address, vrampool_block *block);

/* ---------------------------------------------------------------------------------------------------------- streams --- */

/**
 * Creates a stream on the pool's device; on CUDA a `CUstream`, which other libraries may use too. Destroy or retire
 * streams before their pool. After the pool was destroyed, they can be destroyed, retired and waited for as long as a
 * block of it is live.
 *
 * Thread-safe.
 */
vrampool_status vrampool_stream_create(vrampool_pool pool, vrampool_stream *stream);

/**
 * Waits for the pending work of a stream of vrampool_stream_create(), and destroys it.
 *
 * Thread-safe, but no other thread may use the stream during the call.
 */
vrampool_status vrampool_stream_destroy(vrampool_pool pool, vrampool_stream stream);

/**
 * Announces that other code destroys a stream that the pool knows: waits for its pending work, and the pool does not use it
 * again. CUDA's driver crashes on a destroyed stream.
 *
 * Thread-safe, but no other thread may use the stream during the call.
 */
vrampool_status vrampool_stream_retire(vrampool_pool pool, vrampool_stream stream);

/**
 * Waits on the host for all pending work of a stream.
 *
 * Thread-safe.
 */
vrampool_status vrampool_stream_synchronize(vrampool_pool pool, vrampool_stream stream);

/* ------------------------------------------------------------------------------------------------- figures and caps --- */

/**
 * Statistics of a pool, its tags, children and brokers together. Counts are since the pool was created. Peaks of several tags are added, and may be of
 * different times. Caps are each tag's, limit_bytes is that of all tags together. Free blocks beyond max_cached_bytes that wait for the
 * device (vrampool_torch_record_stream()) are idle.
 */
typedef struct vrampool_stats {
    /** Size of this struct, set by the caller. */
    size_t struct_size;
    /* Generated from the table of figures by bindings/c/tests/figures.rs; do not edit. */
    /** Live buffers. */
    uint64_t live_buffers;
    /** Requested bytes of live buffers, before rounding. */
    uint64_t requested_bytes;
    /** Bytes of live buffers, rounded to their classes. */
    uint64_t live_bytes;
    /** Bytes idle in buckets. */
    uint64_t idle_bytes;
    /** Live and idle bytes. */
    uint64_t held_bytes;
    /** Freed bytes that device work still uses, as far as markers show. Markers are recorded once two streams use the
     *  pool. Blocks in magazines are not included. */
    uint64_t in_flight_bytes;
    /** Live bytes and bytes in flight. */
    uint64_t needed_bytes;
    /** Bytes that the source took from the device: the whole region of an arena, the mapped bytes of a virtual source.
     *  */
    uint64_t reserved_bytes;
    /** Bytes reserved for pending requests to the source, and bytes being released to it. They count against the limit
     *  and the budget, together with held bytes. */
    uint64_t in_transit_bytes;
    /** Requests that wait for memory, by `allocate_timeout`. */
    uint64_t waiting_requests;
    /** Bytes of the waiting requests, rounded to their classes. Later requests get only what the limit leaves beside
     *  them, except in the turns of `allocate_timeout`. */
    uint64_t waiting_bytes;
    /** How long the first of the waiting requests has waited; 0 without any. */
    uint64_t oldest_wait_nanoseconds;
    /** Waits that the pool inserted between streams: for data that another stream writes or reads, and for memory that
     *  another stream used before. */
    uint64_t stream_waits;
    /** Waits that the pool inserted because it reused memory before another stream's work on it was complete. They
     *  delay work that shares no data, and are part of the stream waits. */
    uint64_t reuse_waits;
    /** Driver calls for memory: allocations, frees and mappings. */
    uint64_t memory_calls;
    /** Requests served by the source: those that no bucket served. */
    uint64_t source_allocations;
    /** Allocations released by the source. */
    uint64_t source_frees;
    /** Total bytes taken from the source, never reduced. */
    uint64_t source_allocated_bytes;
    /** Requests served from a bucket. */
    uint64_t served_by_bucket;
    /** Requests served by an arena from memory that it had reserved before, without a driver call. */
    uint64_t served_by_arena;
    /** Requests served with at least one driver call: an allocation, or memory mapped or unmapped. */
    uint64_t served_by_driver;
    /** Device calls to create, map, unmap and release virtual memory. */
    uint64_t mapping_calls;
    /** Time of the mapping calls. */
    uint64_t mapping_nanoseconds;
    /** Mappings of physical memory: each piece counts as often as it is mapped. At most 4 per page of the limit, plus
     *  1024. */
    uint64_t mappings;
    /** Stitched ranges, live or idle. */
    uint64_t stitched_ranges;
    /** Bytes that the arena reserved and that no live block has. */
    uint64_t arena_free_bytes;
    /** The largest request that these bytes serve; all of them in a virtual source, which joins them. */
    uint64_t arena_largest_free_bytes;
    /** Bytes of addresses reserved by an arena or a virtual source; at most 8 times the limit of a virtual source. */
    uint64_t address_bytes;
    /** The highest requested bytes of live buffers. */
    uint64_t peak_requested_bytes;
    /** The highest live bytes. */
    uint64_t peak_live_bytes;
    /** An upper bound of idle bytes: a block counts as idle if a magazine has a slot for it. */
    uint64_t peak_idle_bytes;
    /** The highest held bytes. */
    uint64_t peak_held_bytes;
    /** The highest reserved bytes, whatever made them grow: requests of this pool, the program's own requests to the
     *  arena, or a wake. */
    uint64_t peak_reserved_bytes;
    /** The highest needed bytes; at least the peak of live bytes. */
    uint64_t peak_needed_bytes;
    /** The smallest limit that the source would have needed: the highest end of a live block in an arena of fixed
     *  size, the peak of reserved bytes for other sources. */
    uint64_t peak_limit_bytes;
    /** The cap on idle bytes. #VRAMPOOL_UNLIMITED if unset. */
    uint64_t max_cached_bytes;
    /** The cap on idle buffers in one bucket. #VRAMPOOL_UNLIMITED if unset. */
    uint64_t max_buffers_per_bucket;
    /** The hard cap on the sum of held bytes and bytes in transit. #VRAMPOOL_UNLIMITED if unset. */
    uint64_t limit_bytes;
    /** The soft cap on the same sum. #VRAMPOOL_UNLIMITED if unset. */
    uint64_t budget_bytes;
    /** Freed buffers that were not kept because of the cap on idle bytes. */
    uint64_t released_by_byte_cap;
    /** Freed buffers that were not kept because of the cap on idle buffers in one bucket. */
    uint64_t released_by_bucket_cap;
    /** Idle buffers released to make room, or by trimming. */
    uint64_t released_evicted;
    /** Requests that failed because of the pool's limit. */
    uint64_t failed_by_limit;
    /** Requests that failed because the device was out of memory. */
    uint64_t failed_by_device;
    /** Requests that failed because the arena was full. */
    uint64_t failed_by_arena;
    /** Requests that failed although enough memory was free, because no free range was large enough. */
    uint64_t failed_by_fragmentation;
    /** Requests of more than the limit or the arena ever allows. */
    uint64_t failed_by_request;
    /** Requests that waited for memory until their deadline. */
    uint64_t failed_by_timeout;
    /** Requests that failed because of another error of the device, or of a call that a capture forbids. */
    uint64_t failed_by_backend;
    /** Requests of a closed pool. */
    uint64_t failed_closed;
    /** Invalid requests: no matching size class, or a stream of another device. */
    uint64_t failed_invalid;
    /** The time of the latest failure because of the pool's limit. */
    uint64_t last_failure_by_limit;
    /** The time of the latest failure because the device was out of memory. */
    uint64_t last_failure_by_device;
    /** The time of the latest failure because the arena was full. */
    uint64_t last_failure_by_arena;
    /** The time of the latest failure because of fragmentation. */
    uint64_t last_failure_by_fragmentation;
    /** The time of the latest request of more than is ever allowed. */
    uint64_t last_failure_by_request;
    /** The time of the latest request that waited until its deadline. */
    uint64_t last_failure_by_timeout;
    /** The time of the latest failure because of another error of the device, or of a call that a capture forbids. */
    uint64_t last_failure_by_backend;
    /** The time of the latest request of a closed pool. */
    uint64_t last_failure_closed;
    /** The time of the latest invalid request. */
    uint64_t last_failure_invalid;
    /** Errors of allocations and mappings. */
    uint64_t device_errors_allocate;
    /** Errors of events and waits, which order work of different streams. */
    uint64_t device_errors_order;
    /** Errors of copies and fills of buffers. */
    uint64_t device_errors_copy;
    /** Errors of queries of the device's free memory, which metrics make. */
    uint64_t device_errors_memory_info;
    /** Times that idle buffers were released to stay within the limit or the budget. */
    uint64_t rung_evict;
    /** Times that a thread waited for memory that another thread was releasing, or for its turn to ask a device that
     *  was out of memory. */
    uint64_t rung_wait;
    /** Times that idle memory was released because the device was out of memory, and the request was retried: the
     *  least recently requested classes, then all idle memory, then that of other pools. */
    uint64_t rung_trim;
    /** Times that holes of the arena were closed, and the request was retried. */
    uint64_t rung_compact;
    /** Times that all steps failed and an error was returned. */
    uint64_t rung_fail;
    /** Number of times of at most 10 µs. */
    uint64_t wait_within_10us;
    /** Number of longer times, of at most 100 µs. */
    uint64_t wait_within_100us;
    /** Number of longer times, of at most 1 ms. */
    uint64_t wait_within_1ms;
    /** Number of longer times, of at most 10 ms. */
    uint64_t wait_within_10ms;
    /** Number of longer times, of at most 100 ms. */
    uint64_t wait_within_100ms;
    /** Number of longer times, of at most 1 s. */
    uint64_t wait_within_1s;
    /** Number of longer times, of at most 10 s. */
    uint64_t wait_within_10s;
    /** Number of longer times, of at most 100 s. */
    uint64_t wait_within_100s;
    /** Number of times of more than 100 s. */
    uint64_t wait_longer;
    /** The sum of all times. */
    uint64_t wait_nanoseconds;
    /** Number of times of at most 10 µs. */
    uint64_t driver_within_10us;
    /** Number of longer times, of at most 100 µs. */
    uint64_t driver_within_100us;
    /** Number of longer times, of at most 1 ms. */
    uint64_t driver_within_1ms;
    /** Number of longer times, of at most 10 ms. */
    uint64_t driver_within_10ms;
    /** Number of longer times, of at most 100 ms. */
    uint64_t driver_within_100ms;
    /** Number of longer times, of at most 1 s. */
    uint64_t driver_within_1s;
    /** Number of longer times, of at most 10 s. */
    uint64_t driver_within_10s;
    /** Number of longer times, of at most 100 s. */
    uint64_t driver_within_100s;
    /** Number of times of more than 100 s. */
    uint64_t driver_longer;
    /** The sum of all times. */
    uint64_t driver_nanoseconds;
    /** Number of times of at most 10 µs. */
    uint64_t allocation_within_10us;
    /** Number of longer times, of at most 100 µs. */
    uint64_t allocation_within_100us;
    /** Number of longer times, of at most 1 ms. */
    uint64_t allocation_within_1ms;
    /** Number of longer times, of at most 10 ms. */
    uint64_t allocation_within_10ms;
    /** Number of longer times, of at most 100 ms. */
    uint64_t allocation_within_100ms;
    /** Number of longer times, of at most 1 s. */
    uint64_t allocation_within_1s;
    /** Number of longer times, of at most 10 s. */
    uint64_t allocation_within_10s;
    /** Number of longer times, of at most 100 s. */
    uint64_t allocation_within_100s;
    /** Number of times of more than 100 s. */
    uint64_t allocation_longer;
    /** The sum of all times. */
    uint64_t allocation_nanoseconds;
    /** Bytes in private pools of CUDA graphs, live or kept for their graphs, of virtual memory whole pages, and bytes
     *  of released private pools that wait for the device. */
    uint64_t private_bytes;
    /** Bytes of live blocks that are asleep. */
    uint64_t asleep_bytes;
    /** Bytes of host memory that keep contents of sleeping blocks. */
    uint64_t backup_bytes;
    /* End of the generated lines. */
} vrampool_stats;

/**
 * Returns a pool's statistics. They are not one consistent snapshot while other threads use the pool.
 *
 * Thread-safe.
 */
vrampool_status vrampool_get_stats(vrampool_pool pool, vrampool_stats *stats);

/**
 * Returns the same numbers as JSON for vrampool_string_free(), with those of each size class and of each tag.
 *
 * Thread-safe.
 */
vrampool_status vrampool_get_stats_json(vrampool_pool pool, char **json);

/**
 * Sets the peaks to the present values.
 *
 * Thread-safe.
 */
vrampool_status vrampool_reset_peaks(vrampool_pool pool);

/**
 * Releases idle memory until at most `cached_bytes` are idle; 0 releases all of it. Idle memory that other threads keep to
 * themselves is released at their next call. `released` is the number of released bytes, and may be null.
 *
 * Thread-safe.
 */
vrampool_status vrampool_trim(vrampool_pool pool, uint64_t cached_bytes, uint64_t *released);

/**
 * Releases memory that a virtual pool did not need since the previous call: for periodic calls. An error means that
 * nothing was released; if the memory of one tag was released and that of another was not, this is logged. `released` is
 * the number of released bytes, and may be null.
 *
 * Thread-safe.
 */
vrampool_status vrampool_decay(vrampool_pool pool, uint64_t *released);

/**
 * Returns the hard cap on bytes taken from the device by all tags together, or #VRAMPOOL_UNLIMITED.
 *
 * Thread-safe.
 */
vrampool_status vrampool_get_limit(vrampool_pool pool, uint64_t *bytes);

/**
 * Changes that cap. If the pool holds more, idle memory is released; live blocks stay, and nothing more is taken until it
 * fits. With source=arena the arena keeps its size: a cap below that is ::VRAMPOOL_ERROR_INVALID_ARGUMENT, and one above it adds
 * no memory.
 *
 * Thread-safe.
 */
vrampool_status vrampool_set_limit(vrampool_pool pool, uint64_t bytes);

/**
 * Returns the device's free and total memory, as its driver reports them, bytes. Either pointer may be null.
 *
 * Thread-safe.
 */
vrampool_status vrampool_memory_info(vrampool_pool pool, uint64_t *free_bytes, uint64_t *total_bytes);

/**
 * Returns the backend of the pool's device, for example "cuda" or "host". The text stays valid. Works for a destroyed pool
 * while blocks of it are live.
 *
 * Thread-safe.
 */
vrampool_status vrampool_pool_backend(vrampool_pool pool, const char **name);

/**
 * Returns the number of the pool's CUDA device; 0 for other backends. Works for a destroyed pool while blocks of it are
 * live.
 *
 * Thread-safe.
 */
vrampool_status vrampool_pool_device(vrampool_pool pool, int *number);

/**
 * Returns a snapshot of the pool's memory, as JSON for vrampool_string_free():
 *
 *     {"version":1,"pool","device","backend","source","limit",
 *      "settings":{TAG:{NAME:{"value","origin":"argument|environment|file|parent|default"}}},
 *      "segments":[{"address","bytes","kind":"virtual|arena|direct|driver","tag",
 *        "blocks":[{"address","bytes","requested","stream","state":"live|private|idle|free","block"}],
 *        "pending":[{"address","bytes"}]}]}
 *
 * `settings` has each setting of each tag's pool, as the pool was built. Segments are ranges of addresses with memory behind
 * them, sorted by address; their blocks cover them without holes, sorted by address. Memory is in one segment: that of a
 * stitched block at the block's address. `stream` is the stream's handle as a number, 0 if unknown. `block`, of live and
 * private ones, is the address that vrampool_allocate() returned, which is `address`. The pool keeps `idle` memory (with
 * sources direct and driver it is in no segment: see idle_bytes); `free` memory belongs to the source, and device work still
 * uses the `pending` parts of it. `vrampool trace plot` draws it. It is not consistent while other threads use the pool.
 *
 * Thread-safe.
 */
vrampool_status vrampool_snapshot(vrampool_pool pool, char **json);

/* --------------------------------------------------------------------------------------------------- sleep and wake --- */

/* Memory sleeps by tag, in pools with source=virtual; for others these functions return VRAMPOOL_ERROR_UNSUPPORTED. During a sleep
 * the device has its physical memory back, and blocks keep their addresses and count against no limit; they must not be used, but
 * may be freed. A sleep or a wake applies to all tags that it names or to none. What is kept sleeps before what is discarded: a failed
 * sleep leaves contents to keep unchanged, and only a device failure while discarding may lose some contents to discard.
 * */

/**
 * Creates a tag for vrampool_allocate_tagged(), unless it exists.
 *
 * Thread-safe.
 */
vrampool_status vrampool_tag_create(vrampool_pool pool, const char *tag);

/**
 * Begins a scope: until the matching vrampool_tag_end(), allocations of this thread from `pool` have this tag. Scopes
 * nest, and the inner one counts. Outside of scopes the tag is "default".
 *
 * `limit`, `budget` and `max_cached_bytes` are those of all tags together: before a request is refused, idle memory of other tags is
 * released. Idle memory is each tag's own; max_buffers_per_bucket, magazine_bytes and overlap hold for each tag. vrampool_trim() counts
 * all tags together.
 *
 * Thread-safe: a scope is of the calling thread.
 */
vrampool_status vrampool_tag_begin(vrampool_pool pool, const char *tag);

/**
 * Ends this thread's innermost scope of `pool`; ::VRAMPOOL_ERROR_INVALID_ARGUMENT without one.
 *
 * Thread-safe: a scope is of the calling thread.
 */
vrampool_status vrampool_tag_end(vrampool_pool pool);

/** Result of a sleep or a wake, bytes. */
typedef struct vrampool_sleep_report {
    /** Size of this struct, set by the caller. */
    size_t struct_size;
    /* Generated from the table of figures by bindings/c/tests/figures.rs; do not edit. */
    /** Bytes of physical memory that a sleep released to the device, or a wake took from it. */
    uint64_t physical_bytes;
    /** Bytes of blocks that a sleep copied to the host, or a wake copied back. */
    uint64_t copied_bytes;
    /** Bytes of blocks whose contents a sleep discarded. */
    uint64_t discarded_bytes;
    /** Whether nothing was done, because all of the memory was asleep, or awake, already. Backups are unchanged. */
    uint64_t no_op;
    /** Time of the call, the wait for work included. */
    uint64_t nanoseconds;
    /* End of the generated lines. */
} vrampool_sleep_report;

/**
 * Called after each piece that a call copies, on its thread: copied bytes, and bytes in all. It must not wait for another thread
 * that calls vrampool, which may wait for the call.
 *
 * Within it these functions are ::VRAMPOOL_ERROR_BUSY: vrampool_sleep(), vrampool_sleep_tags(), vrampool_wake(),
 * vrampool_set_limit(), vrampool_torch_memory_fraction(), vrampool_destroy(), vrampool_torch_shutdown(),
 * vrampool_set_log_callback(), and those of segments other than vrampool_segment_callbacks(), vrampool_segment_alloc(),
 * vrampool_segment_free() and vrampool_segment_is_asleep(). Other functions may be called; memory of the call is asleep.
 */
typedef void (*vrampool_copy_callback)(void *user, uint64_t copied_bytes, uint64_t total_bytes);

/**
 * Puts all tags to sleep. Contents of the `count` tags in `keep`, which may be null if that is 0, are copied to the host,
 * pipelined over two streams; other contents are discarded. Waits on the host for work that uses the memory. `on_progress`
 * and `report` may be null.
 *
 * Fails with VRAMPOOL_ERROR_INVALID_ARGUMENT, as do the functions below, for a tag that does not exist: the pool was never
 * given it, and it is not customary ("default", and the tags of vLLM's levels). Nothing is done then.
 *
 * Thread-safe.
 */
vrampool_status vrampool_sleep(vrampool_pool pool, const char *const *keep, size_t count, vrampool_copy_callback on_progress,
                               void *user, vrampool_sleep_report *report);

/**
 * Puts only these tags to sleep. Their contents are discarded if `keep_contents` is 0. `on_progress` and `report` may be null.
 *
 * Thread-safe.
 */
vrampool_status vrampool_sleep_tags(vrampool_pool pool, const char *const *tags, size_t count, int keep_contents,
                                    vrampool_copy_callback on_progress, void *user, vrampool_sleep_report *report);

/**
 * Wakes these tags, and all tags other than "weights" and "kv_cache" (vLLM's rule: a program's internal memory wakes with
 * any part of it); null wakes all. Kept contents are restored, others are undefined. `on_progress` and `report` may be null.
 *
 * Thread-safe.
 */
vrampool_status vrampool_wake(vrampool_pool pool, const char *const *tags, size_t count, vrampool_copy_callback on_progress,
                              void *user, vrampool_sleep_report *report);

/**
 * Returns 1 if a tag is asleep, 0 if it is awake.
 *
 * Thread-safe.
 */
vrampool_status vrampool_is_asleep(vrampool_pool pool, const char *tag, int *is_asleep);

/* --------------------------------------------------------------------------------------------------------- brokers --- */

/* A broker shares a device between clients, and cuts a batch into chunks that fit. Clients queue arrays, a group commits, and a run
 * calls the program with each chunk: copies to the device come before the call, copies from it after. For devices whose memory has
 * addresses (CUDA, host). */

/** Number of a broker. 0 is no broker. */
typedef uint64_t vrampool_broker;
/** Number of a broker's client. 0 is no client. */
typedef uint64_t vrampool_client;
/** Number of an array that a client queued. 0 is no array. */
typedef uint64_t vrampool_array;

/** Roles of arrays in a run. */
enum vrampool_array_role {
    /** Copied to the device before a chunk is computed. */
    VRAMPOOL_ARRAY_INPUT = 0,
    /** Copied to the host afterwards. */
    VRAMPOOL_ARRAY_OUTPUT = 1,
    /** Both. */
    VRAMPOOL_ARRAY_IN_OUT = 2,
    /** On the device only; its contents are undefined when a chunk begins. */
    VRAMPOOL_ARRAY_SCRATCH = 3
};

/**
 * Creates a broker on a pool. Its memory is a child of the pool: within the pool's limit, and in its statistics and metrics. Destroy
 * it before the pool, which resolves the handles of its streams. `options` is null or text, as of vrampool_create():
 *
 *     name             the broker's name in metrics, and that of the child
 *     reserve          bytes of the device that are left to other processes; default: 0
 *     budget           cap on bytes of all clients together: the child's limit; default: the limit of the pool
 *     staging_block    bytes of one pinned block for copies, and
 *     staging          of all of them; set both or none
 *     pinned_max       cap on pinned bytes; default: as many as the device has; at most 0.8 of the host's memory
 *     spill_threshold  host arrays that would exceed this together are in files; default: 0.8 of the host's memory
 *     spill_directory  the directory of these files
 *
 * Thread-safe.
 */
vrampool_status vrampool_broker_create(vrampool_pool pool, const char *options, vrampool_broker *broker);

/**
 * Ends a broker and its clients. A run of another thread completes first. Arrays stay until vrampool_array_free().
 *
 * Thread-safe: of several calls with one broker, one ends it.
 */
vrampool_status vrampool_broker_destroy(vrampool_broker broker);

/**
 * Returns a broker's statistics as JSON for vrampool_string_free(): its figures, the counts and bytes of each client in `by_client`, and those of its
 * memory in `pool`. A cap that is not set is UINT64_MAX.
 *
 * Thread-safe.
 */
vrampool_status vrampool_broker_get_stats_json(vrampool_broker broker, char **json);

/**
 * Registers a client. A null `group` is the default group. `share` is the part of the device that it may hold: `auto` (also null),
 * a percentage as in 25%, or a size.
 *
 * Thread-safe.
 */
vrampool_status vrampool_broker_register(vrampool_broker broker, const char *name, const char *group, const char *share,
                                         vrampool_client *client);

/**
 * Ends a client, with its memory on the device and its share. Its arrays stay until vrampool_array_free().
 *
 * Thread-safe: of several calls with one client, one ends it.
 */
vrampool_status vrampool_client_destroy(vrampool_client client);

/**
 * Queues a request for an array of this ::vrampool_array_role, which replaces an earlier one with the same label, and allocates
 * host memory for it: pinned if possible, else pageable, else in a file. The contents of that are undefined. `shape` has
 * `dimensions` numbers, at most 32; elements are dense and row-major. `chunk_axis` is the axis of runs, along which it may be cut;
 * -1 is none: each chunk has all of it.
 *
 * Thread-safe.
 */
vrampool_status vrampool_client_queue(vrampool_client client, int32_t role, const char *label, const uint64_t *shape,
                                      size_t dimensions, uint64_t element_bytes, int32_t chunk_axis, vrampool_array *array);

/** A group's batch, as a commit divided it. A run may use finer chunks. */
typedef struct vrampool_plan {
    /** Size of this struct, set by the caller. */
    size_t struct_size;
    /** Runs of the batch. */
    uint64_t runs;
    /** Runs of a chunk; the last one may have fewer. */
    uint64_t chunk_runs;
    /** Chunks. */
    uint64_t chunks;
    /** Chunks that are on the device at a time, each on its own stream. */
    uint64_t streams;
} vrampool_plan;

/**
 * Allocates memory for all that the clients of a group have queued, or for as many runs at a time as fit. `streams` is the most streams, and `chunk_runs` the most runs of a chunk, from now on; 0 leaves them as they are
 * (1 stream, and as many runs as fit). ::VRAMPOOL_ERROR_OUT_OF_MEMORY if the batch does not fit, however it is cut;
 * ::VRAMPOOL_ERROR_BUSY while the group runs.
 *
 * Thread-safe.
 */
vrampool_status vrampool_broker_commit(vrampool_broker broker, const char *group, uint64_t streams, uint64_t chunk_runs,
                                       vrampool_plan *plan);

/** A chunk of a run, for the call that it is passed to. */
typedef struct vrampool_chunk {
    /** Size of this struct, set by the library. */
    size_t struct_size;
    /** Its number, from 0. */
    uint64_t index;
    /** Its first run. */
    uint64_t first_run;
    /** Number of its runs. */
    uint64_t runs;
    /** Number of its stream in the run, from 0. */
    uint64_t stream_index;
    /** The stream that orders its copies and its work. Valid until the broker ends; it is not destroyed or retired by the caller. */
    vrampool_stream stream;
    /** Number of arrays: those of the plan that were not freed. */
    uint64_t arrays;
    /** Their numbers. */
    const vrampool_array *array;
    /** Addresses on the device of their parts: dense, with `runs` elements along the chunk axis. */
    const uint64_t *address;
    /** Bytes of these parts. */
    const uint64_t *bytes;
} vrampool_chunk;

/**
 * Enqueues the work of a chunk on its stream. On the host device, work that the callback does itself comes after
 * vrampool_stream_synchronize() of that stream. Any status but ::VRAMPOOL_OK ends the run.
 *
 * Called without a lock, from several threads at a time if the plan has several streams. It may call vrampool.
 */
typedef vrampool_status (*vrampool_chunk_callback)(void *user, const vrampool_chunk *chunk);

/** Receives the progress of a run: completed chunks, completed runs, and runs of the batch. Called as vrampool_chunk_callback. */
typedef void (*vrampool_progress_callback)(void *user, uint64_t chunks_done, uint64_t runs_done, uint64_t runs);

/** The report of a run. */
typedef struct vrampool_run_report {
    /** Size of this struct, set by the caller. */
    size_t struct_size;
    /** Chunks. */
    uint64_t chunks;
    /** Runs of the batch. */
    uint64_t runs;
    /** Runs of a chunk at the end. */
    uint64_t chunk_runs;
    /** Streams that ran chunks. */
    uint64_t streams;
    /** Number of times that chunks became finer because others needed memory. */
    uint64_t shrinks;
    /** Bytes copied to and from the device. */
    uint64_t copied_bytes;
    /** Duration, ns. */
    uint64_t nanoseconds;
} vrampool_run_report;

/**
 * Runs a group's batch, committed if that was not done: copies the host memory of its inputs to the device, calls `on_chunk` with each chunk, and copies
 * the outputs back. Returns when all is complete. `on_progress` and `report` may be null. After a failure earlier chunks are
 * complete, and later ones undefined; if a callback ended the run, its status is returned. ::VRAMPOOL_ERROR_BUSY while the
 * group runs, or a call uses one of its arrays.
 *
 * Thread-safe.
 */
vrampool_status vrampool_broker_run(vrampool_broker broker, const char *group, vrampool_chunk_callback on_chunk,
                                    vrampool_progress_callback on_progress, void *user, vrampool_run_report *report);

/**
 * Returns the address of an array's host memory, and its bytes; `bytes` may be null. The address stays valid until
 * vrampool_array_free(). The caller writes inputs there before a run, and reads results from it after a run, without a copy; during
 * a run, or while another call uses the array, this is ::VRAMPOOL_ERROR_BUSY, and the memory must not be used.
 * ::VRAMPOOL_ERROR_UNSUPPORTED for scratch, and for an array in a file.
 *
 * Thread-safe.
 */
vrampool_status vrampool_array_data(vrampool_array array, void **address, uint64_t *bytes);

/**
 * Copies `count` bytes of an array's host memory from `offset` on to `bytes`, also from a file. ::VRAMPOOL_ERROR_BUSY as
 * vrampool_array_data().
 *
 * Thread-safe.
 */
vrampool_status vrampool_array_read(vrampool_array array, uint64_t offset, void *bytes, size_t count);

/**
 * Copies `count` bytes to an array's host memory from `offset` on, also to a file. ::VRAMPOOL_ERROR_BUSY as vrampool_array_data().
 *
 * Thread-safe.
 */
vrampool_status vrampool_array_write(vrampool_array array, uint64_t offset, const void *bytes, size_t count);

/**
 * Frees an array's host memory, after a run that uses it. A batch with this array does not run any more, unless it is scratch; queueing its label again
 * replaces it.
 *
 * Thread-safe: of several calls with one array, one frees it. No other thread may still use the memory.
 */
vrampool_status vrampool_array_free(vrampool_array array);

/* ----------------------------------------------------------------------------------------------------------- files --- */

/**
 * Replaces the file at `path` by `count` bytes, completely or not at all, as vrampool writes its own files. The previous
 * file stays unchanged if this fails or the process is killed. ::VRAMPOOL_ERROR_INVALID_ARGUMENT with the cause.
 *
 * Thread-safe.
 */
vrampool_status vrampool_file_write(const char *path, const void *bytes, size_t count);

/* ---------------------------------------------------------------------------------------------------------- traces --- */

/**
 * Number of a trace: allocations and frees in their order, recorded from a pool or loaded from a file. 0 is no trace.
 * Valid until vrampool_trace_free().
 */
typedef uint64_t vrampool_trace;

/**
 * Records the requests that the pool serves, of all tags, and their frees: up to `events`, 16 bytes each; 0 is 1,048,576.
 * More than 2^32 are ::VRAMPOOL_ERROR_INVALID_ARGUMENT. Allocations that find no room are left out, with their frees. A
 * free has the stream of its allocation. ::VRAMPOOL_ERROR_BUSY during a recording.
 *
 * Thread-safe.
 */
vrampool_status vrampool_record_start(vrampool_pool pool, uint64_t events);

/**
 * Returns the events recorded so far, without ending the recording, and the number of allocations that were left out;
 * `dropped` may be null. ::VRAMPOOL_ERROR_INVALID_ARGUMENT without a recording.
 *
 * Thread-safe.
 */
vrampool_status vrampool_record_look(vrampool_pool pool, vrampool_trace *trace, uint64_t *dropped);

/**
 * Returns the events as vrampool_record_look(), and ends the recording; after a failure it continues. A null `trace`
 * discards the events. Live blocks stay live.
 *
 * Thread-safe.
 */
vrampool_status vrampool_record_stop(vrampool_pool pool, vrampool_trace *trace, uint64_t *dropped);

/**
 * Reads a trace. `format` is csv (vrampool's own), rmm (RMM's log) or pytorch (a memory snapshot of PyTorch, of which no
 * code is run); null detects it. The file may be gzip-compressed. `device` chooses one of a snapshot; -1 is the first that
 * has a history. A fault in the file is ::VRAMPOOL_ERROR_INVALID_ARGUMENT, with the place and the remedy.
 *
 * Thread-safe.
 */
vrampool_status vrampool_trace_load(const char *path, const char *format, int device, vrampool_trace *trace);

/**
 * Writes a trace in place of the previous file, which stays unchanged if this fails; gzip-compressed if the name ends with
 * .gz. A null `format` is pytorch if the name ends with .pickle or .pkl before that, else csv.
 *
 * Thread-safe.
 */
vrampool_status vrampool_trace_save(vrampool_trace trace, const char *path, const char *format);

/**
 * Reads the file `source` as vrampool_trace_load(), and writes the file `target` as vrampool_trace_save(). `target` is
 * checked before `source` is read; if both are one file, this is ::VRAMPOOL_ERROR_INVALID_ARGUMENT. The written file is
 * read back before it replaces the previous one. `not_kept` becomes a JSON array of texts for vrampool_string_free(), one
 * for each property of the trace that the format does not keep. `trace` and `not_kept` may be null.
 *
 * Thread-safe.
 */
vrampool_status vrampool_trace_convert(const char *source, const char *from_format, int device, const char *target, const char *to_format,
                                       vrampool_trace *trace, char **not_kept);

/**
 * Draws a trace as a pool of the host with the settings of `pool`, and as much memory as its device, serves it; `pool` itself
 * is not used, and its tags are drawn together. `picture` is page (HTML that works offline), or bytes or addresses (SVG); null
 * is bytes if the name ends with .svg, else page. The previous file stays unchanged if this fails.
 *
 * With 0 as the trace it draws the memory of `pool` at this moment, as vrampool_snapshot() returns it.
 *
 * Thread-safe.
 */
vrampool_status vrampool_trace_plot(vrampool_trace trace, vrampool_pool pool, const char *path, const char *picture);

/**
 * Returns a summary of a trace, as JSON for vrampool_string_free():
 *
 *     {"trace","events","allocations","frees","never_freed","dropped","streams","distinct_sizes","requested","peak_requested","largest",
 *      "duration_us","warnings":[text],"sizes":[{"from","to","allocations","bytes","share"}]}
 *
 * The warnings are contradictions within its file, one text for each kind.
 *
 * Thread-safe.
 */
vrampool_status vrampool_trace_show(vrampool_trace trace, char **json);

/**
 * Frees a trace.
 *
 * Thread-safe: of several calls with one trace, one frees it.
 */
vrampool_status vrampool_trace_free(vrampool_trace trace);

/* --------------------------------------------------------------------------------------------------------- metrics --- */

/**
 * Serves the metrics of all pools, including later ones, to Prometheus at `http://ADDRESS/metrics`. Null is
 * "127.0.0.1:9184". ::VRAMPOOL_ERROR_BUSY while metrics are served.
 *
 * Thread-safe.
 */
vrampool_status vrampool_start_metrics(const char *address);

/**
 * Serves metrics as vrampool_start_metrics(), also at "127.0.0.1:0": the system chooses a free port. `served_at` is the
 * address with the port, for example "127.0.0.1:41234", for vrampool_string_free().
 *
 * Thread-safe.
 */
vrampool_status vrampool_start_metrics_at(const char *address, char **served_at);

/**
 * Stops serving metrics. Succeeds if they are not served, and in a forked child.
 *
 * Thread-safe.
 */
vrampool_status vrampool_stop_metrics(void);

/* --------------------------------------------------------------------------------------------------------- PyTorch --- */

/* The symbols of PyTorch's CUDAPluggableAllocator, tested with 2.11:
 *
 *   allocator = torch.cuda.memory.CUDAPluggableAllocator("libvrampool_c.so", "vrampool_torch_alloc", "vrampool_torch_free")
 *   hooks = allocator.allocator()      # set_*_fn take the address of a function below, as an integer
 *   torch.cuda.memory.change_current_allocator(allocator)
 *
 * Each device has a pool, created at its first allocation. `stream` is a cudaStream_t, `device` CUDA's number. */

/**
 * Sets the options of PyTorch's pools, as of vrampool_create(); `device` is a pattern in which {} is the number, "cuda:{}"
 * by default. Null sets the defaults. They apply to pools that are created later. ::VRAMPOOL_ERROR_BUSY once a pool
 * exists; ::VRAMPOOL_ERROR_CONFIGURATION for an invalid value.
 *
 * Thread-safe.
 */
vrampool_status vrampool_torch_configure(const char *options);

/**
 * Returns the pool of a device, created if necessary: for statistics, snapshots, tags, sleep and wake.
 *
 * Thread-safe.
 */
vrampool_status vrampool_torch_pool(int device, vrampool_pool *pool);

/**
 * Returns the devices that have a pool, as JSON for vrampool_string_free(): `[{"device","pool"}]`, the lowest number
 * first. Creates no pool.
 *
 * Thread-safe.
 */
vrampool_status vrampool_torch_pools(char **json);

/**
 * Destroys all of PyTorch's pools, so that they can be configured again: for tests, when none of their memory is used.
 *
 * Thread-safe.
 */
vrampool_status vrampool_torch_shutdown(void);

/**
 * Allocates `size` bytes; returns null for 0 bytes, as PyTorch's own allocator.
 *
 * If vrampool_torch_throws() is 1, any failure is thrown as a C++ exception with the text of vrampool_last_error():
 * c10::OutOfMemoryError (in Python torch.OutOfMemoryError) if memory ran out after the pool released all idle memory and
 * asked again, else c10::Error (RuntimeError). If it is 0, the function returns null for a failure. PyTorch does not check
 * for null, and its kernels would write to address 0, so check vrampool_torch_throws() before this is installed, as
 * vrampool.torch.install() does.
 *
 * Thread-safe.
 */
void *vrampool_torch_alloc(size_t size, int device, void *stream);

/**
 * Allocates as vrampool_torch_alloc(), but returns null for any failure, and vrampool_last_error() states the cause: for a
 * torch.cuda.MemPool, below PyTorch's own allocator, which frees its idle memory and asks again after null.
 *
 * Thread-safe.
 */
void *vrampool_torch_alloc_or_null(size_t size, int device, void *stream);

/**
 * Frees a block. Never throws: vrampool_last_error() states a failure, and it is logged. If size or device are not those
 * of the block, that is an error, and the block is freed anyway, because PyTorch forgets it in any case.
 *
 * Thread-safe: of several calls with one block, one frees it; calls with one block wait for each other.
 */
void vrampool_torch_free(void *address, size_t size, int device, void *stream);

/**
 * Returns whether a failure is thrown: 1 if PyTorch's libraries were found in this process. 0 for a PyTorch that was built
 * with the C++ ABI from before GCC 5, as PyPI's wheels of 2.5 and some of 2.6: its exceptions cannot be made.
 *
 * Thread-safe.
 */
int vrampool_torch_throws(void);

/**
 * set_init_fn: stores the number of devices.
 *
 * Thread-safe.
 */
void vrampool_torch_init(int device_count);

/**
 * set_reset_fn (torch.cuda.empty_cache): releases idle memory of all devices.
 *
 * Thread-safe.
 */
void vrampool_torch_reset(void);

/**
 * set_memory_fraction_fn (torch.cuda.set_per_process_memory_fraction): sets a limit, as a share of the device's memory
 * from 0 to 1.
 *
 * Thread-safe.
 */
void vrampool_torch_memory_fraction(double fraction, int device);

/**
 * set_base_alloc_fn: returns the beginning of the block that contains `address`, and its bytes. For a foreign address it
 * returns `address` itself, and 0 bytes.
 *
 * Thread-safe.
 */
void *vrampool_torch_base_alloc(void *address, size_t *size);

/**
 * set_record_stream_fn (Tensor.record_stream): states that work on `stream` uses the block, in an order that the program
 * ensures. Its next owner waits for the pending work on that stream, and nothing else waits. After a failure, the block is
 * reused only after a wait for the whole device.
 *
 * Thread-safe: calls with one block wait for each other.
 */
void vrampool_torch_record_stream(void *address, void *stream);

/** PyTorch's MempoolId_t, a `std::pair<unsigned long long, unsigned long long>`. On Linux both are passed in the same way. */
typedef struct vrampool_mempool_id {
    /** First number of the pair. */
    uint64_t first;
    /** Second number of the pair. */
    uint64_t second;
} vrampool_mempool_id;

/**
 * set_begin_allocate_to_pool: until the matching end, allocations on `device` whose stream `filter` accepts come from the
 * private pool of that id, which is created if necessary. `filter` points to libstdc++'s
 * `std::function<bool(cudaStream_t)>`, as C++ passes one by value; null accepts every stream.
 *
 * A private pool keeps its memory for the graph that it is captured into, at the same addresses, until it is released:
 * memory that is freed there is reused only there. Over virtual memory each private pool has a separate range of addresses, at which
 * free blocks are cut and joined, so that graphs of many shapes need little more than the largest; with other sources blocks
 * keep their sizes. During a capture, a request that needs a call which the capture forbids is served on a stream of
 * vrampool's own, which is waited for, as in PyTorch. If free memory was used by the captured stream and by others, the host
 * waits for the others, and the captured stream gets it. Memory used by several captures at once is refused
 * (::VRAMPOOL_ERROR_CAPTURE), because none can wait for another. Blocks that another stream used (record_stream) are reused
 * once its work is complete, not within its capture.
 *
 * Graphs may share a private pool: each begin counts one use of it, and each release ends one.
 *
 * Thread-safe: applies to allocations of all threads.
 */
void vrampool_torch_begin_allocate_to_pool(int device, vrampool_mempool_id id, void *filter);

/**
 * set_end_allocate_to_pool_fn: ends that.
 *
 * Thread-safe: applies to allocations of all threads.
 */
void vrampool_torch_end_allocate_to_pool(int device, vrampool_mempool_id id);

/**
 * set_release_pool: ends one use of a private pool. With the last use (as many as begins), its idle memory is released,
 * its live memory when it is freed.
 *
 * Thread-safe.
 */
void vrampool_torch_release_pool(int device, vrampool_mempool_id id);

/**
 * Creates a private pool without routing requests to it, or counts one more use of it, which vrampool_torch_release_pool() ends.
 *
 * Thread-safe.
 */
vrampool_status vrampool_torch_pool_create(int device, vrampool_mempool_id id);

/**
 * Returns the number of uses of a private pool; 0 where there is none.
 *
 * Thread-safe.
 */
vrampool_status vrampool_torch_pool_uses(int device, vrampool_mempool_id id, uint64_t *uses);

/**
 * Sets whether idle memory of a private pool serves other requests where all other memory is used. Not by default.
 *
 * Thread-safe.
 */
vrampool_status vrampool_torch_pool_use_on_oom(int device, vrampool_mempool_id id, int is_used);

/**
 * Restores an earlier state of a private pool: frees its live blocks, and makes `count` blocks live that it had at these addresses,
 * with their requested bytes and streams.
 *
 * ::VRAMPOOL_ERROR_INVALID_POINTER for an address where the pool has no free memory; blocks before it are live then.
 * ::VRAMPOOL_ERROR_OUT_OF_MEMORY if a limit has no room for these blocks in place of the live ones: nothing is freed then.
 *
 * Thread-safe, but no other thread may use blocks of the pool meanwhile.
 */
vrampool_status vrampool_torch_pool_restore(int device, vrampool_mempool_id id, const uint64_t *addresses, const uint64_t *requested,
                                            const uint64_t *streams, size_t count);

/** A part of a segment, which is a range of addresses with memory: a live block, or memory that is not live. */
typedef struct vrampool_torch_span {
    /** Where its segment begins. */
    uint64_t segment;
    /** Bytes of its segment. */
    uint64_t segment_bytes;
    /** Where it begins. */
    uint64_t address;
    /** Its bytes. */
    uint64_t bytes;
    /** Requested bytes; 0 where it is not live. */
    uint64_t requested;
    /** The stream that it was allocated for. */
    uint64_t stream;
    /** The private pool that has it; both numbers are 0 without one. */
    vrampool_mempool_id pool;
    /** 1 for a live block. */
    uint64_t is_live;
    /** 1 where the memory of its segment is virtual. */
    uint64_t is_virtual;
} vrampool_torch_span;

/** Called with a span, which is valid during the call. It may throw. */
typedef void (*vrampool_torch_visitor)(void *user, const vrampool_torch_span *span);

/**
 * Calls `visitor` for each span of a device's pool, in the order of addresses; with `is_live_only` for the live blocks alone, in no
 * order and each as a segment of its own, which takes less time. Does nothing for a device that has no pool yet. No lock is held
 * during the calls.
 *
 * Thread-safe.
 */
vrampool_status vrampool_torch_visit(int device, int is_live_only, vrampool_torch_visitor visitor, void *user);

/* ------------------------------------------------------------------------------------ segments in the shape of vLLM --- */

/* The functions of vLLM's cumem_allocator: memory whose physical side a caller releases and restores itself, at one address. For
 * PyTorch's MemPool, with vrampool_segment_alloc and vrampool_segment_free as its functions. On a device with virtual memory
 * only.
 *
 * The options of vrampool_torch_configure() apply: the device, `limit` (or VRAMPOOL_LIMIT), to which mapped segments of a
 * device are charged, and `offload`. Metrics by tag are served by vrampool_start_metrics(). */

/**
 * Called with a segment: device, bytes, address, and a number that identifies it. Returns ::VRAMPOOL_OK, or the status with which
 * the call that it is part of fails.
 */
typedef vrampool_status (*vrampool_segment_callback)(void *user, int device, uint64_t bytes, uint64_t address, uint64_t handle);

/**
 * Sets the callbacks; nulls remove them. They are called without any lock, and may call vrampool.
 *
 * on_malloc: called before a segment is mapped. If it fails, nothing is allocated.
 * on_free: called before a segment is freed, and after on_malloc if the segment could not be mapped. The segment is freed even if
 *     it fails.
 *
 * Thread-safe; the callbacks are called by the threads that allocate and free.
 */
vrampool_status vrampool_segment_callbacks(vrampool_segment_callback on_malloc, vrampool_segment_callback on_free, void *user);

/**
 * Allocates a segment of at least `size` bytes, mapped, which reserves as many addresses. Returns null for 0 bytes, and
 * for any failure, whose cause vrampool_last_error() states. The device is named by the pattern of
 * vrampool_torch_configure().
 *
 * Thread-safe.
 */
void *vrampool_segment_alloc(size_t size, int device, void *stream);

/**
 * Frees a segment, mapped or not, after the work that uses it. Never throws. While `stream`, the stream of its allocation, or
 * one of vrampool_stream_create() is captured, it is freed by the first of these functions after the capture, because a wait
 * for the device would invalidate the capture.
 *
 * Thread-safe: of several calls with one segment, one frees it.
 */
void vrampool_segment_free(void *address, size_t size, int device, void *stream);

/**
 * Releases the physical memory of a segment; its address stays. `bytes`, `address` and `handle` are those of the callback:
 * others are ::VRAMPOOL_ERROR_MISMATCH. Waits for the work that uses it. A segment that is released already is
 * ::VRAMPOOL_ERROR_ASLEEP. During a capture, as above, nothing is done, and the status is ::VRAMPOOL_ERROR_CAPTURE.
 *
 * Thread-safe.
 */
vrampool_status vrampool_segment_unmap_and_release(int device, uint64_t bytes, uint64_t address, uint64_t handle);

/**
 * Restores the physical memory of a segment at its address, with undefined contents. A segment that is mapped is
 * ::VRAMPOOL_ERROR_INVALID_ARGUMENT.
 *
 * Thread-safe.
 */
vrampool_status vrampool_segment_create_and_map(int device, uint64_t bytes, uint64_t address, uint64_t handle);

/**
 * Sets the tag of a segment, the label of its metrics; "default" before.
 *
 * Thread-safe.
 */
vrampool_status vrampool_segment_tag(uint64_t handle, const char *tag);

/**
 * Sets `*is_asleep` to 1 for a segment that was unmapped and whose memory or saved contents are not back, 0 for any other, and -1
 * for one that does not exist.
 *
 * Thread-safe. Waits for no copy.
 */
vrampool_status vrampool_segment_is_asleep(uint64_t handle, int *is_asleep);

/**
 * Copies the contents of `count` mapped segments to host memory, after all work of their devices, pipelined over two streams.
 * All of them or none. Segments that do not exist any more are left out. `on_progress` may be null. A segment that is freed
 * meanwhile is released after the call. During a capture, as above, nothing is done.
 *
 * Thread-safe.
 */
vrampool_status vrampool_segments_save(const uint64_t *handles, size_t count, vrampool_copy_callback on_progress, void *user);

/**
 * Copies contents that vrampool_segments_save() copied back to segments, which are mapped. Contents stay on the host until
 * vrampool_segments_forget(). Segments without such contents, and those that were restored since they were unmapped, are left
 * out. If it fails, contents of the segments are undefined, and a later call can succeed.
 *
 * Thread-safe.
 */
vrampool_status vrampool_segments_restore(const uint64_t *handles, size_t count, vrampool_copy_callback on_progress, void *user);

/**
 * Forgets contents on the host. With `keep_memory`, their host memory stays for the next vrampool_segments_save(), which then
 * takes less time; otherwise it is released, as it is with the segment.
 *
 * Thread-safe.
 */
vrampool_status vrampool_segments_forget(const uint64_t *handles, size_t count, int keep_memory);

/**
 * Returns where the contents of a segment are on the host, and their bytes, as long as nothing forgets them; null and 0 if
 * there are none. `bytes` may be null.
 *
 * Thread-safe.
 */
vrampool_status vrampool_segment_saved(uint64_t handle, void **address, uint64_t *bytes);

#ifdef __cplusplus
}
#endif

#endif
