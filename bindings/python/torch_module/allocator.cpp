#include "allocator.h"

#include "counts.h"
#include "ipc.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <cstdio>

namespace vrampool {

extern Allocator *installed;

namespace {

// Functions of their own, as their texts take a large part of the stack.
[[gnu::cold, gnu::noinline]] void warn_of_free() {
    TORCH_WARN("vrampool: a block was not freed: ", library.last_error());
}

[[gnu::cold, gnu::noinline]] void check_device(cudaError_t code) {
    C10_CUDA_CHECK(code);
}

// The deleter of all blocks: as PyTorch's own, one function without a state, and the context is the address.
void free_block(void *address) {
    if (C10_LIKELY(address != nullptr) && C10_UNLIKELY(!Allocator::free(address))) {
        warn_of_free();
    }
}

inline c10::Device numbered(DeviceIndex number) {
    c10::Device device = hot.cuda;
    device.set_index(number);
    return device;
}

inline DeviceIndex current_device() {
    DeviceIndex device = 0;
    const auto code = hot.device(&device);
    if (C10_UNLIKELY(code != cudaSuccess)) {
        check_device(code);
    }
    return device;
}

inline cudaStream_t current_stream(DeviceIndex device) {
    const auto stream = hot.stream(device);
    // The default stream's number, whose handle is null.
    return C10_LIKELY(stream.id() == 0) ? nullptr : stream.stream();
}

// Reports to Python's tracers of memory, which are rare.
template <typename Report>
inline void traced(Report report) {
    if (C10_UNLIKELY(*hot.is_traced)) {
        if (const auto *interpreter = c10::impl::GPUTrace::get_trace()) {
            report(*interpreter);
        }
    }
}

std::string size_text(uint64_t bytes) {
    const char *units[] = {"bytes", "KiB", "MiB", "GiB"};
    size_t unit = 0;
    double amount = static_cast<double>(bytes);
    for (; amount >= 1024 && unit < 3; ++unit) {
        amount /= 1024;
    }
    char text[48];
    std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", amount, units[unit]);
    return text;
}

} // namespace

c10::DataPtr Allocator::allocate(size_t bytes) {
    const DeviceIndex device = current_device();
    void *address = bytes == 0 ? nullptr : serve(device, bytes, current_stream(device));
    return {address, address, &free_block, numbered(device)};
}

c10::DeleterFnPtr Allocator::raw_deleter() const {
    return &free_block;
}

void Allocator::copy_data(void *to, const void *from, std::size_t bytes) const {
    C10_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice));
}

void *Allocator::raw_alloc(size_t bytes) {
    if (bytes == 0) {
        return nullptr;
    }
    const DeviceIndex device = current_device();
    return serve(device, bytes, current_stream(device));
}

void *Allocator::raw_alloc_with_stream(size_t bytes, cudaStream_t stream) {
    return bytes == 0 ? nullptr : serve(current_device(), bytes, stream);
}

void Allocator::raw_delete(void *address) {
    TORCH_CHECK(address == nullptr || free(address), "invalid device pointer: ", address);
}

inline void *Allocator::serve(DeviceIndex device, size_t bytes, cudaStream_t stream) {
    if (C10_UNLIKELY(is_watched(~0u))) {
        return serve_watched(device, bytes, stream);
    }
    void *address = hot.allocate(bytes, device, stream);
    if (C10_UNLIKELY(address == nullptr)) {
        address = short_of_memory(device, bytes, stream);
    }
    count(device, bytes);
    traced([=](auto &interpreter) { interpreter->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(address)); });
    if (C10_UNLIKELY(is_profiled())) {
        report(device, address, static_cast<int64_t>(bytes));
    }
    return address;
}

void *Allocator::serve_watched(DeviceIndex device, size_t bytes, cudaStream_t stream) {
    // Before any lock: it may take Python's.
    const Context context = gather(Torch::RecordContext::STATE);
    void *address = nullptr;
    if (auto foreign = foreign_.are_any() ? foreign_.allocate(device, bytes, stream) : std::nullopt) {
        address = *foreign;
        TORCH_CHECK_WITH(OutOfMemoryError, address != nullptr, "CUDA out of memory. Tried to allocate ", size_text(bytes), " on GPU ",
                         static_cast<int>(device), " from the allocator of a MemPool, which has no memory");
    } else {
        address = library.torch_alloc_or_null(bytes, device, stream);
        if (address == nullptr) {
            address = short_of_memory(device, bytes, stream);
        }
    }
    count(device, bytes);
    if (is_watching()) {
        MempoolId_t pool = {0, 0};
        if (auto block = foreign_.around(address)) {
            pool = pool_of(*block);
        }
        look_at_segments(device);
        record_allocation(device, address, bytes, stream, pool, context);
    }
    if (c10::memoryProfilingEnabled()) {
        report(device, address, static_cast<int64_t>(bytes));
    }
    return address;
}

// After the pool's own steps: PyTorch's callbacks may free memory that other processes had. Then PyTorch's error, with its text and ours.
void *Allocator::short_of_memory(DeviceIndex device, size_t bytes, cudaStream_t stream) {
    auto is_short = [] {
        const auto status = library.last_error_code();
        return status == VRAMPOOL_ERROR_OUT_OF_MEMORY || status == VRAMPOOL_ERROR_TOO_LARGE;
    };
    if (!is_short()) {
        throw_failure("a request for memory");
    }
    bool is_freed = false;
    auto *callbacks = c10::FreeCudaMemoryCallbacksRegistry();
    for (const auto &name : callbacks->Keys()) {
        is_freed = callbacks->Create(name)->Execute() || is_freed;
    }
    if (is_freed) {
        if (void *address = library.torch_alloc_or_null(bytes, device, stream)) {
            return address;
        }
        if (!is_short()) {
            throw_failure("a request for memory");
        }
    }
    const std::string cause = library.last_error();
    {
        std::lock_guard<std::mutex> locked(lock_);
        ++ooms_[device];
    }
    vrampool_pool pool = 0;
    check(library.torch_pool(device, &pool), "the pool of a device");
    const auto stats = stats_of(pool);
    uint64_t free = 0, total = 0;
    library.memory_info(pool, &free, &total);
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), stats.live_bytes, stats.reserved_bytes,
                                     c10::Device(c10::DeviceType::CUDA, device));
    if (is_watching()) {
        record(TraceEntry::OOM, device, free, bytes, stream, {0, 0}, gather(Torch::RecordContext::STATE));
    }
    out_of_memory(device, bytes, total, free);
    const std::string limit = stats.limit_bytes == VRAMPOOL_UNLIMITED ? "" : size_text(stats.limit_bytes) + " allowed; ";
    const uint64_t others = total - std::min(total, free + stats.reserved_bytes);
    TORCH_CHECK_WITH(
        OutOfMemoryError, false, "CUDA out of memory. Tried to allocate ", size_text(bytes), ". GPU ", static_cast<int>(device),
        " has a total capacity of ", size_text(total), " of which ", size_text(free), " is free. ", size_text(others),
        " is in use by CUDA itself and other processes, and this process has ", size_text(stats.reserved_bytes),
        " of PyTorch's memory in use. ", limit, "Of the allocated memory ", size_text(stats.requested_bytes),
        " is allocated by PyTorch, and ", size_text(stats.reserved_bytes - std::min(stats.reserved_bytes, stats.requested_bytes)),
        " is reserved by PyTorch but unallocated. vrampool: ", cause);
}

inline bool Allocator::free(void *address) {
    if (C10_UNLIKELY(is_watched(~0u) || is_profiled())) {
        return installed->free_watched(address);
    }
    traced([=](auto &interpreter) { interpreter->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(address)); });
    void *block = address;
    return hot.free_at(&block, nullptr) == VRAMPOOL_OK;
}

bool Allocator::free_watched(void *address) {
    auto foreign = foreign_.are_any() ? foreign_.around(address) : std::nullopt;
    vrampool_block block = {};
    block.struct_size = sizeof block;
    int device = 0;
    if (foreign) {
        block.requested = foreign->requested;
        block.stream = reinterpret_cast<void *>(foreign->stream);
        device = current_device();
    } else if (library.block_at(address, &block) != VRAMPOOL_OK) {
        return false;
    } else {
        for (int number = 0; number < devices_; ++number) {
            device = pool_if_any(static_cast<DeviceIndex>(number)) == block.pool ? number : device;
        }
    }
    const auto index = static_cast<DeviceIndex>(device);
    if (is_watching()) {
        // Before the free, after which another thread may have the address.
        record_free(index, address, block.requested, static_cast<cudaStream_t>(block.stream),
                       foreign ? pool_of(*foreign) : MempoolId_t{0, 0}, gather(Torch::RecordContext::ALL));
    }
    void *place = address;
    if (!(foreign ? foreign_.free(address) : library.free_at(&place, nullptr) == VRAMPOOL_OK)) {
        return false;
    }
    if (!isEnabled()) {
        library.torch_reset();
    }
    if (is_watching()) {
        look_at_segments(index);
    }
    if (c10::memoryProfilingEnabled()) {
        report(index, address, -static_cast<int64_t>(block.requested));
    }
    return true;
}

void Allocator::report(DeviceIndex device, void *address, int64_t bytes) const {
    const auto stats = stats_of(pool_if_any(device));
    c10::reportMemoryUsageToProfiler(address, bytes, stats.live_bytes, stats.reserved_bytes, c10::Device(c10::DeviceType::CUDA, device));
}

void Allocator::init(int devices) {
    devices_ = devices;
    library.torch_init(devices);
}

bool Allocator::initialized() {
    return devices_ > 0;
}

void Allocator::enable(bool value) {
    watch(UNCACHED, !value);
    if (!value) {
        library.torch_reset();
    }
}

bool Allocator::isEnabled() const {
    return !is_watched(UNCACHED);
}

void *Allocator::getBaseAllocation(void *address, size_t *bytes) {
    size_t size = 0;
    void *base = nullptr;
    if (auto foreign = foreign_.around(address)) {
        base = reinterpret_cast<void *>(foreign->address);
        size = foreign->bytes;
    } else {
        base = library.torch_base_alloc(address, &size);
    }
    TORCH_CHECK(size != 0, "invalid device pointer: ", address);
    if (bytes != nullptr) {
        *bytes = size;
    }
    return base;
}

void Allocator::recordStream(const c10::DataPtr &pointer, c10::cuda::CUDAStream stream) {
    // As PyTorch's own: an empty tensor's, and memory of others, as of other processes.
    if (pointer.get() == nullptr || pointer.get_deleter() != &free_block) {
        return;
    }
    if (foreign_.are_any() && foreign_.record_stream(pointer.get(), stream.stream())) {
        return;
    }
    checked("record_stream", [&] { library.torch_record_stream(pointer.get(), stream.stream()); });
}

Torch::ShareableHandle Allocator::shareIpcHandle(void *address) {
    size_t bytes = 0;
    void *base = getBaseAllocation(address, &bytes);
    auto shared = share(base, bytes);
    shared.offset += static_cast<char *>(address) - static_cast<char *>(base);
    return shared;
}

std::shared_ptr<void> Allocator::getIpcDevPtr(std::string handle) {
    return open_shared(handle, current_device());
}

void Allocator::enablePeerAccess(DeviceIndex device, DeviceIndex accessed) {
    // Pools' memory is accessible to each device that can reach it, from its mapping on. This is for memory of cudaMalloc.
    c10::cuda::CUDAGuard guard(device);
    const auto code = cudaDeviceEnablePeerAccess(accessed, 0);
    if (code == cudaErrorPeerAccessAlreadyEnabled) {
        (void)cudaGetLastError();
        return;
    }
    C10_CUDA_CHECK(code);
}

cudaError_t Allocator::memcpyAsync(void *to, int to_device, const void *from, int from_device, size_t bytes, cudaStream_t stream,
                                   bool p2p_enabled) {
    if (p2p_enabled || to_device == from_device) {
        return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
    }
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
}

std::string Allocator::name() {
    // Programs ask for this name where they need the whole interface.
    return "native";
}

} // namespace vrampool
