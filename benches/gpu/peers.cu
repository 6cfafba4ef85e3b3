// vrampool beside the allocators that its users have today, in one process: PyTorch's, RMM's pool, arena and binning, cuArena (where CUARENA
// is defined), cudaMallocAsync, and cudaMalloc itself.
//
//     peers TRACE.csv...
//
// prints one JSON object a row: `case`, `peer`, and `ns` for an allocation with its free (the least of five rounds), or for a trace
// `ns_per_op`, `peak_requested` and `peak_reserved`, bytes. Every peer has its turn twice, the second time in reverse order, because other work
// may disturb the machine meanwhile; each time every row is measured TIMES times. Requests of a trace go to the streams that it names.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#ifdef CUARENA
#include <cuarena/allocator.cuh>
#endif
#include <cuda_runtime.h>
#include <rmm/mr/arena_memory_resource.hpp>
#include <rmm/mr/binning_memory_resource.hpp>
#include <rmm/mr/cuda_memory_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "vrampool.h"

using Clock = std::chrono::steady_clock;
constexpr size_t KIB = 1024, MIB = 1024 * KIB, GIB = 1024 * MIB;

static void check(cudaError_t status, int line) {
    if (status != cudaSuccess) {
        std::fprintf(stderr, "line %d: %s\n", line, cudaGetErrorString(status));
        std::exit(3);
    }
}
#define CHECK(call) check(call, __LINE__)

// An allocator. Streams are numbered from 0.
struct Peer {
    explicit Peer(std::string name) : name(std::move(name)) {
        for (auto &stream : streams) CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    }
    virtual ~Peer() {
        for (auto stream : streams) cudaStreamDestroy(stream);
    }
    virtual void *allocate(size_t bytes, int stream = 0) = 0;
    virtual void free(void *block, size_t bytes, int stream = 0) = 0;
    // The most bytes that it took from the device; 0 where it does not say.
    virtual size_t reserved() { return 0; }
    std::string name;
    cudaStream_t streams[2];
};

struct Vrampool : Peer {
    Vrampool(std::string name, const std::string &options) : Peer(std::move(name)) {
        if (vrampool_create(("device=cuda:0; " + options).c_str(), &pool)) throw std::runtime_error(vrampool_last_error());
    }
    ~Vrampool() override {
        for (auto stream : streams) vrampool_stream_retire(pool, stream);
        vrampool_destroy(pool);
    }
    void *allocate(size_t bytes, int stream) override {
        void *block = nullptr;
        if (vrampool_allocate(pool, bytes, streams[stream], &block)) throw std::runtime_error(vrampool_last_error());
        return block;
    }
    void free(void *block, size_t bytes, int stream) override {
        if (vrampool_free_sized(pool, block, bytes, streams[stream])) throw std::runtime_error(vrampool_last_error());
    }
    size_t reserved() override {
        vrampool_stats stats{};
        stats.struct_size = sizeof stats;
        vrampool_get_stats(pool, &stats);
        return stats.peak_reserved_bytes;
    }
    vrampool_pool pool = 0;
};

namespace caching = c10::cuda::CUDACachingAllocator;

struct Torch : Peer {
    Torch() : Peer("pytorch") {
        caching::emptyCache();
        caching::resetPeakStats(0);
    }
    ~Torch() override { caching::emptyCache(); }
    void *allocate(size_t bytes, int stream) override { return caching::raw_alloc_with_stream(bytes, streams[stream]); }
    void free(void *block, size_t, int) override { caching::raw_delete(block); }
    size_t reserved() override { return caching::getDeviceStats(0).reserved_bytes[0].peak; }
};

template <class Resource>
struct Rmm : Peer {
    Rmm(const char *name, std::unique_ptr<Resource> resource, size_t capacity)
        : Peer(name), resource(std::move(resource)), capacity(capacity) {}
    void *allocate(size_t bytes, int stream) override {
        return resource->allocate(cuda::stream_ref{streams[stream]}, bytes, 256);
    }
    void free(void *block, size_t bytes, int stream) override {
        resource->deallocate(cuda::stream_ref{streams[stream]}, block, bytes, 256);
    }
    size_t reserved() override {
        if constexpr (std::is_same_v<Resource, rmm::mr::pool_memory_resource>) return resource->pool_size();
        return capacity;
    }
    std::unique_ptr<Resource> resource;
    size_t capacity;
};

#ifdef CUARENA
// One range of `capacity` bytes, taken and filled with zeros before the clock starts. It knows no streams: what was freed is given out
// again at once, whichever stream asks, and nothing orders the work of the two; a program with several streams has to do that itself. Its
// one lock is around every allocation and every free, so threads may call it.
struct CuArena : Peer {
    explicit CuArena(size_t capacity) : Peer("cuArena") {
        // It takes less than it is asked for where the device has less, and says so only to people.
        if (!arena.create_gpu_pool(capacity) || arena.gpu_capacity() < capacity) throw std::runtime_error("no memory for cuArena's range");
        CHECK(cudaDeviceSynchronize());
    }
    // Its range is of the driver's pool, which keeps memory once `Async` has set it so.
    ~CuArena() override {
        arena.destroy_gpu_pool();
        cudaMemPool_t pool;
        CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
        CHECK(cudaMemPoolTrimTo(pool, 0));
    }
    void *allocate(size_t bytes, int) override { return arena.allocate<unsigned char>(bytes); }
    void free(void *block, size_t, int) override { arena.deallocate(static_cast<unsigned char *>(block)); }
    cuArena::DeviceArena arena;
};
#endif

// The driver's pool, set to keep what it has.
struct Async : Peer {
    Async() : Peer("cudaMallocAsync") {
        CHECK(cudaDeviceGetDefaultMemPool(&pool, 0));
        uint64_t all = UINT64_MAX, none = 0;
        CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all));
        CHECK(cudaMemPoolTrimTo(pool, 0));
        CHECK(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &none));
    }
    ~Async() override {
        CHECK(cudaDeviceSynchronize());
        CHECK(cudaMemPoolTrimTo(pool, 0));
    }
    void *allocate(size_t bytes, int stream) override {
        void *block;
        CHECK(cudaMallocAsync(&block, bytes, streams[stream]));
        return block;
    }
    void free(void *block, size_t, int stream) override { CHECK(cudaFreeAsync(block, streams[stream])); }
    size_t reserved() override {
        uint64_t bytes = 0;
        CHECK(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemHigh, &bytes));
        return bytes;
    }
    cudaMemPool_t pool;
};

struct Plain : Peer {
    Plain() : Peer("cudaMalloc") {}
    void *allocate(size_t bytes, int) override {
        void *block;
        CHECK(cudaMalloc(&block, bytes));
        return block;
    }
    void free(void *block, size_t, int) override { CHECK(cudaFree(block)); }
};

constexpr int TIMES = 3;

static void row(const std::string &name, const Peer &peer, double ns) {
    std::printf("{\"case\":\"%s\",\"peer\":\"%s\",\"ns\":%.1f}\n", name.c_str(), peer.name.c_str(), ns);
    std::fflush(stdout);
}

// Nanoseconds of one of `pairs` in each call of `body`: the least of five rounds.
static double timed(int calls, double pairs, const std::function<void()> &body) {
    body();
    double least = 1e18;
    for (int round = 0; round < 5; ++round) {
        auto begin = Clock::now();
        for (int call = 0; call < calls; ++call) body();
        auto took = std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
        least = std::min(least, took / (calls * pairs));
    }
    return least;
}

// Nanoseconds of a pair as each of several threads sees it.
static double by_threads(Peer &peer, int threads, size_t bytes, int pairs) {
    std::atomic<int> ready{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> all;
    for (int thread = 0; thread < threads; ++thread) {
        all.emplace_back([&] {
            CHECK(cudaSetDevice(0));
            peer.free(peer.allocate(bytes), bytes);
            ++ready;
            while (!go) {}
            for (int pair = 0; pair < pairs; ++pair) peer.free(peer.allocate(bytes), bytes);
        });
    }
    while (ready < threads) std::this_thread::yield();
    auto begin = Clock::now();
    go = true;
    for (auto &thread : all) thread.join();
    return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / pairs;
}

// One thread allocates, another frees.
static double handed_over(Peer &peer, size_t bytes, int pairs) {
    constexpr size_t PLACES = 64;
    std::vector<std::atomic<void *>> places(PLACES);
    auto begin = Clock::now();
    std::thread other([&] {
        CHECK(cudaSetDevice(0));
        for (int pair = 0; pair < pairs; ++pair) {
            void *block;
            while (!(block = places[pair % PLACES].exchange(nullptr))) {}
            peer.free(block, bytes);
        }
    });
    for (int pair = 0; pair < pairs; ++pair) {
        void *block = peer.allocate(bytes);
        while (places[pair % PLACES].load()) {}
        places[pair % PLACES].store(block);
    }
    other.join();
    return std::chrono::duration<double, std::nano>(Clock::now() - begin).count() / pairs;
}

// `less`: how much slower the peer is than a cache, about.
static void patterns(Peer &peer, int less) {
    row("pair 4 KiB", peer, timed(20000 / less, 1, [&] { peer.free(peer.allocate(4 * KIB), 4 * KIB); }));
    row("pair 8 MiB", peer, timed(20000 / less, 1, [&] { peer.free(peer.allocate(8 * MIB), 8 * MIB); }));
    std::vector<void *> batch(512);
    row("batch of 512, 1 KiB", peer, timed(100 / less + 1, 512, [&] {
        for (auto &block : batch) block = peer.allocate(KIB);
        for (auto block : batch) peer.free(block, KIB);
    }));
    int turn = 0;
    row("two streams in turn, 1 MiB", peer, timed(4000 / less, 1, [&] {
        turn ^= 1;
        peer.free(peer.allocate(MIB, turn), MIB, turn);
    }));
    row("resize chain, 1 to 128 MiB", peer, timed(500 / less + 1, 8, [&] {
        void *last = nullptr;
        for (size_t bytes = MIB; bytes <= 128 * MIB; bytes *= 2) {
            void *next = peer.allocate(bytes);
            if (last) peer.free(last, bytes / 2);
            last = next;
        }
        peer.free(last, 128 * MIB);
    }));
    row("handed over, 4 KiB", peer, handed_over(peer, 4 * KIB, 40000 / less));
    for (size_t bytes : {4 * KIB, 8 * MIB}) {
        for (int threads : {1, 2, 4, 8, 16}) {
            auto name = "pair " + std::string(bytes == 8 * MIB ? "8 MiB" : "4 KiB") + ", threads " + std::to_string(threads);
            row(name, peer, by_threads(peer, threads, bytes, 40000 / less / threads + 50));
        }
    }
}

struct Event {
    unsigned id;
    bool is_allocation;
    size_t bytes;
    int stream;
};

struct Trace {
    std::string name;
    std::vector<Event> events;
    unsigned ids = 0;
    size_t peak = 0;
};

// A trace in vrampool's own format, unpacked: `a,ID,BYTES,STREAM,…` and `f,ID,…`.
static Trace load(const std::string &path) {
    Trace trace;
    trace.name = path.substr(path.rfind('/') + 1);
    FILE *file = std::fopen(path.c_str(), "r");
    if (!file) throw std::runtime_error(path + " cannot be read");
    char line[256];
    size_t live = 0;
    std::vector<size_t> sizes;
    while (std::fgets(line, sizeof line, file)) {
        char kind;
        unsigned id;
        size_t bytes;
        int stream;
        if (std::sscanf(line, "%c,%u,%zu,%d", &kind, &id, &bytes, &stream) < 4) continue;
        if (id >= sizes.size()) sizes.resize(id + 1);
        if (kind == 'a') {
            sizes[id] = bytes = std::max<size_t>(bytes, 1);
            live += bytes;
            trace.peak = std::max(trace.peak, live);
            trace.ids = std::max(trace.ids, id + 1);
        } else {
            live -= bytes = sizes[id];
        }
        if (stream < 0 || stream > 1) throw std::runtime_error(path + " has more than two streams");
        trace.events.push_back({id, kind == 'a', bytes, stream});
    }
    std::fclose(file);
    return trace;
}

// `written`: bytes that are written before each call, as the work of a program empties the caches. Calls alone are timed then, those of
// `COLD_EVENTS` events from the middle of the trace.
static void replay(const Trace &trace, Peer &peer, const char *pass, size_t written = 0) {
    constexpr size_t COLD_EVENTS = 2000;
    std::vector<void *> blocks(trace.ids);
    std::vector<size_t> sizes(trace.ids);
    std::vector<int> streams(trace.ids);
    std::vector<char> others(written);
    const size_t first = written ? trace.events.size() / 2 : 0;
    const size_t end = written ? std::min(first + COLD_EVENTS, trace.events.size()) : trace.events.size();
    Clock::duration outside{};
    auto begin = Clock::now();
    for (size_t at = 0; at < end; ++at) {
        const auto &event = trace.events[at];
        if (at == first) begin = Clock::now();
        if (written && at >= first) {
            auto work = Clock::now();
            for (size_t byte = 0; byte < written; byte += 64) ++others[byte];
            asm volatile("" : : "r"(others.data()) : "memory");
            outside += Clock::now() - work;
        }
        if (event.is_allocation) {
            blocks[event.id] = peer.allocate(event.bytes, event.stream);
            sizes[event.id] = event.bytes;
            streams[event.id] = event.stream;
        } else {
            peer.free(blocks[event.id], event.bytes, event.stream);
            blocks[event.id] = nullptr;
        }
    }
    auto ns = std::chrono::duration<double, std::nano>(Clock::now() - begin - outside).count() / (end - first);
    for (unsigned id = 0; id < trace.ids; ++id) {
        if (blocks[id]) peer.free(blocks[id], sizes[id], streams[id]);
    }
    std::printf(
        "{\"case\":\"%s\",\"peer\":\"%s\",\"pass\":\"%s\",\"ns_per_op\":%.1f,\"peak_requested\":%zu,\"peak_reserved\":%zu}\n",
        trace.name.c_str(), peer.name.c_str(), pass, ns, trace.peak, peer.reserved());
    std::fflush(stdout);
}

using Make = std::function<std::unique_ptr<Peer>(size_t capacity)>;

static void compare(const std::vector<Trace> &traces, int less, const Make &make) {
    {
        auto peer = make(8 * GIB);
        for (int time = 0; time < TIMES; ++time) patterns(*peer, less);
    }
    for (size_t run = 0; run < TIMES * traces.size(); ++run) {
        const auto &trace = traces[run % traces.size()];
        // Room to spare for those that take all of it at once.
        auto peer = make((trace.peak + trace.peak / 2 + 512 * MIB) / (2 * MIB) * (2 * MIB));
        try {
            replay(trace, *peer, "first");
            replay(trace, *peer, "warm");
            replay(trace, *peer, "cold", 4 * MIB);
        } catch (const std::exception &error) {
            std::printf("{\"case\":\"%s\",\"peer\":\"%s\",\"failed\":\"out of memory\"}\n", trace.name.c_str(), peer->name.c_str());
        }
    }
}

int main(int argc, char **argv) {
    CHECK(cudaFree(nullptr));
    std::vector<Trace> traces;
    for (int index = 1; index < argc; ++index) traces.push_back(load(argv[index]));
    c10::cuda::CUDACachingAllocator::init(c10::cuda::device_count());
    using namespace rmm::mr;
    std::vector<std::function<void()>> peers{
        [&] { compare(traces, 1, [](size_t) { return std::make_unique<Vrampool>("vrampool", "source=virtual"); }); },
        [&] {
            compare(traces, 1, [](size_t) {
                return std::make_unique<Vrampool>("vrampool, direct", "source=direct; max_cached_bytes=unlimited; max_buffers_per_bucket=unlimited");
            });
        },
        [&] { compare(traces, 1, [](size_t) { return std::make_unique<Torch>(); }); },
        [&] {
            compare(traces, 1, [](size_t capacity) {
                auto pool = std::make_unique<pool_memory_resource>(cuda_memory_resource{}, 256 * MIB);
                return std::make_unique<Rmm<pool_memory_resource>>("rmm pool", std::move(pool), capacity);
            });
        },
        [&] {
            compare(traces, 1, [](size_t capacity) {
                auto arena = std::make_unique<arena_memory_resource>(cuda_memory_resource{}, capacity);
                return std::make_unique<Rmm<arena_memory_resource>>("rmm arena", std::move(arena), capacity);
            });
        },
        [&] {
            compare(traces, 1, [](size_t capacity) {
                auto bins = std::make_unique<binning_memory_resource>(pool_memory_resource(cuda_memory_resource{}, 256 * MIB), 10, 22);
                return std::make_unique<Rmm<binning_memory_resource>>("rmm binning", std::move(bins), capacity);
            });
        },
#ifdef CUARENA
        [&] { compare(traces, 1, [](size_t capacity) { return std::make_unique<CuArena>(capacity); }); },
#endif
        [&] { compare(traces, 4, [](size_t) { return std::make_unique<Async>(); }); },
        [&] { compare({}, 200, [](size_t) { return std::make_unique<Plain>(); }); },
    };
    for (auto &peer : peers) peer();
    for (auto peer = peers.rbegin(); peer != peers.rend(); ++peer) (*peer)();
}
