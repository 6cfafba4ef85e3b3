// vrampool's C library, which a process with this module has loaded, and the names of PyTorch that this module uses.
#pragma once

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <vrampool.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#ifndef TORCH_MINOR
#error "TORCH_MINOR is the minor version of PyTorch 2"
#endif

namespace vrampool {

namespace Torch = c10::cuda::CUDACachingAllocator;
using c10::DeviceIndex;
using c10::cuda::MempoolId_t;
using c10::CachingDeviceAllocator::DeviceStats;
using Torch::TraceEntry;
#if TORCH_MINOR >= 11
using c10::CachingDeviceAllocator::AnnotationEntry;
#else
using Torch::AnnotationEntry;
#endif

#define VRAMPOOL_FUNCTIONS(F)                                                                                                     \
    F(last_error) F(last_error_code) F(clear_error) F(string_free) F(free_at) F(block_at) F(get_stats) F(reset_peaks)             \
    F(get_limit) F(memory_info) F(torch_pool) F(torch_pools) F(torch_alloc_or_null) F(torch_reset) F(torch_memory_fraction)       \
    F(torch_base_alloc) F(torch_record_stream) F(torch_begin_allocate_to_pool) F(torch_end_allocate_to_pool)                      \
    F(torch_release_pool) F(torch_pool_create) F(torch_pool_uses) F(torch_pool_use_on_oom) F(torch_pool_restore) F(torch_visit)   \
    F(torch_init)

// The functions, by their names without the prefix.
struct Library {
#define VRAMPOOL_MEMBER(name) decltype(&vrampool_##name) name;
    VRAMPOOL_FUNCTIONS(VRAMPOOL_MEMBER)
#undef VRAMPOOL_MEMBER
};

extern Library library;

// What each request and each free reads, in one cache line: the linker spreads the addresses of other libraries' functions over several.
struct alignas(64) Hot {
    decltype(&vrampool_torch_alloc_or_null) allocate = nullptr;
    decltype(&vrampool_free_at) free_at = nullptr;
    // Whether requests are recorded, tracked, or may be for another allocator's pool: they take another way then.
    std::atomic<uint32_t> watched{0};
    // To copy: its constructor makes texts for its checks.
    c10::Device cuda{c10::DeviceType::CUDA};
    decltype(&c10::cuda::GetDevice) device = &c10::cuda::GetDevice;
    decltype(&c10::cuda::getCurrentCUDAStream) stream = &c10::cuda::getCurrentCUDAStream;
    decltype(&c10::ThreadLocalDebugInfo::get) debug_info = &c10::ThreadLocalDebugInfo::get;
    // Whether Python traces memory.
    const bool *is_traced = &c10::impl::GPUTrace::haveState;
};
static_assert(sizeof(Hot) == 64);

extern Hot hot;

// Mostly the thread has no profiler at all.
inline bool is_profiled() {
    return C10_UNLIKELY(hot.debug_info(c10::DebugInfoKind::PROFILER_STATE) != nullptr) && c10::memoryProfilingEnabled();
}

// The reasons, as bits of `watched`.
constexpr uint32_t HISTORY = 1, FOREIGN = 2, UNCACHED = 4;

inline void watch(uint32_t reason, bool is_so) {
    if (is_so) {
        hot.watched.fetch_or(reason);
    } else {
        hot.watched.fetch_and(~reason);
    }
}

inline bool is_watched(uint32_t reasons) {
    return (hot.watched.load(std::memory_order_acquire) & reasons) != 0;
}

// Finds the functions in a library that is loaded. Returns the name of one that is missing, or null.
const char *load_library(const char *path);

inline vrampool_mempool_id id_of(MempoolId_t id) {
    return {id.first, id.second};
}

// Throws the thread's last failure, as PyTorch's error.
[[noreturn]] void throw_failure(const char *call);

inline void check(vrampool_status status, const char *call) {
    if (C10_UNLIKELY(status != VRAMPOOL_OK)) {
        throw_failure(call);
    }
}

// Calls a function without a status, and throws its failure.
template <typename Act>
void checked(const char *call, Act act) {
    library.clear_error();
    act();
    check(library.last_error_code(), call);
}

// The pool of a device; 0 where it has none yet.
vrampool_pool pool_if_any(DeviceIndex device);

vrampool_stats stats_of(vrampool_pool pool);

using Spans = std::vector<vrampool_torch_span>;

// Spans of a device's memory: all of them, or the live blocks.
Spans spans_of(DeviceIndex device, bool is_live_only);

inline MempoolId_t pool_of(const vrampool_torch_span &span) {
    return {span.pool.first, span.pool.second};
}

} // namespace vrampool
