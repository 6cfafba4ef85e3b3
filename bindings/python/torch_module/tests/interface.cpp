// Every virtual function of PyTorch's interface, through PyTorch's own entry points: interface MODULE LIBRARY. Over any CUDA driver.
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <thread>

namespace c10::cuda::_internal {
// libtorch_cuda calls it; no header has it.
C10_CUDA_API void setHasPrimaryContext(bool (*has)(c10::DeviceIndex));
} // namespace c10::cuda::_internal

namespace Torch = c10::cuda::CUDACachingAllocator;
using c10::cuda::MempoolId_t;

namespace {

constexpr size_t MIB = 1 << 20;
int checks = 0, faults = 0;

void is(bool right, const char *what, int line) {
    ++checks;
    if (!right) {
        ++faults;
        std::printf("line %d: %s\n", line, what);
    }
}
#define IS(condition) is((condition), #condition, __LINE__)

template <typename Error = c10::Error>
bool throws(const std::function<void()> &act, const char *part = "") {
    try {
        act();
    } catch (const Error &error) {
        if (std::strstr(error.what(), part) == nullptr) {
            std::printf("another text: %s\n", error.what());
            return false;
        }
        return true;
    }
    return false;
}

c10::DataPtr allocate(size_t bytes) {
    return Torch::get()->allocate(bytes);
}

auto stats() {
    return Torch::getDeviceStats(0);
}

Torch::SnapshotInfo snapshot() {
    return Torch::snapshot();
}

void record(bool enabled, Torch::RecordContext when) {
    static int gathered = 0;
    auto recorder = []() -> std::shared_ptr<c10::GatheredContext> {
        ++gathered;
        return std::make_shared<c10::GatheredContext>();
    };
    Torch::recordHistory(enabled, recorder, 1000, when
#if TORCH_MINOR >= 8
                         , true
#endif
#if TORCH_MINOR >= 11
                         , {"snapshot"}
#endif
    );
}

void create(MempoolId_t id, Torch::CUDAAllocator *below) {
#if TORCH_MINOR >= 11
    Torch::createOrIncrefPool(0, id, std::shared_ptr<Torch::CUDAAllocator>(below, [](auto *) {}));
#elif TORCH_MINOR >= 8
    Torch::createOrIncrefPool(0, id, below);
#else
    Torch::ensureExistsAndIncrefPool(0, id);
#endif
}

auto everything = [](cudaStream_t) { return true; };

void requests() {
    IS(Torch::name() == "native");
    IS(Torch::get()->initialized() && Torch::isEnabled());
    IS(c10::GetAllocator(c10::DeviceType::CUDA) == Torch::get());
    auto empty = allocate(0);
    IS(empty.get() == nullptr && empty.get_deleter() == Torch::get()->raw_deleter());
    auto block = allocate(3 * MIB);
    IS(block.get() != nullptr && block.get() == block.get_context() && block.device().index() == 0);
    IS(Torch::get()->is_simple_data_ptr(block) && block.get_deleter() == Torch::get()->raw_deleter());
    IS(Torch::raw_alloc(0) == nullptr);
    auto *raw = Torch::raw_alloc(1000);
    IS(raw != nullptr);
    Torch::raw_delete(raw);
    IS(throws([&] { Torch::raw_delete(raw); }, "invalid device pointer"));
    auto stream = c10::cuda::getStreamFromPool(false, 0);
    auto *on_stream = Torch::raw_alloc_with_stream(MIB, stream.stream());
    Torch::raw_delete(on_stream);
    Torch::raw_delete(nullptr);
    Torch::recordStream(block, stream);
    Torch::recordStream(empty, stream);
    c10::DataPtr foreign(&stream, c10::Device(c10::DeviceType::CUDA, 0));
    Torch::recordStream(foreign, stream);
    size_t bytes = 0;
    IS(Torch::getBaseAllocation(static_cast<char *>(block.get()) + 5, &bytes) == block.get() && bytes >= 3 * MIB);
    IS(throws([&] { Torch::getBaseAllocation(&stream, &bytes); }, "invalid device pointer"));
    auto other = allocate(3 * MIB);
    Torch::get()->copy_data(other.get(), block.get(), 3 * MIB);
    IS(Torch::memcpyAsync(other.get(), 0, block.get(), 0, MIB, stream.stream(), false) == 0);
    IS(Torch::memcpyAsync(other.get(), 0, block.get(), 1, MIB, stream.stream(), true) == 0);
    Torch::enablePeerAccess(0, 0);
    c10::cuda::device_synchronize();
    Torch::enable(false);
    IS(!Torch::isEnabled());
    allocate(MIB).clear();
    Torch::enable(true);
}

void statistics() {
    Torch::emptyCache();
    Torch::resetAccumulatedStats(0);
    auto small = allocate(1000), large = allocate(8 * MIB);
    auto now = stats();
    IS(now.allocation[1].current == 1 && now.allocation[2].current == 1 && now.allocation[0].allocated == 2);
    IS(now.requested_bytes[0].current == 1000 + 8 * static_cast<int64_t>(MIB));
    IS(now.reserved_bytes[0].current >= now.allocated_bytes[0].current && now.segment[0].current >= 1);
    large.clear();
    IS(stats().requested_bytes[0].current == 1000 && stats().requested_bytes[0].peak >= 8 * static_cast<int64_t>(MIB));
    Torch::resetPeakStats(0);
    IS(stats().requested_bytes[0].peak < static_cast<int64_t>(MIB));
    size_t largest = 0;
    Torch::cacheInfo(0, &largest);
    IS(largest >= 8 * MIB);
    Torch::emptyCache();
    IS(stats().reserved_bytes[0].current < 8 * static_cast<int64_t>(MIB));
    IS(Torch::getMemoryFraction(0) == 1.0);
    IS(throws([] { Torch::setMemoryFraction(1.5, 0); }, "fraction"));
    std::thread([] { allocate(500).clear(); }).join();
    IS(stats().allocation[1].allocated == 2);
}

void out_of_memory() {
    // They stay attached.
    static int64_t asked = 0;
    Torch::attachOutOfMemoryObserver([](int64_t device, size_t bytes, size_t total, size_t free) {
        asked = static_cast<int64_t>(bytes);
        IS(device == 0 && total >= free && total > 0);
    });
    IS(throws<c10::OutOfMemoryError>([] { allocate(size_t(1) << 40); }, "CUDA out of memory. Tried to allocate 1024.00 GiB. GPU 0"));
    IS(asked == int64_t(1) << 40);
    Torch::setMemoryFraction(0.5, 0);
    IS(Torch::getMemoryFraction(0) > 0.49 && Torch::getMemoryFraction(0) < 0.51);
    size_t free = 0, total = 0;
    (void)cudaMemGetInfo(&free, &total);
    IS(throws<c10::OutOfMemoryError>([&] { allocate(total * 6 / 10); }, "vrampool"));
    Torch::setMemoryFraction(1.0, 0);
    IS(stats().num_ooms == 2);
}

void histories() {
    IS(!Torch::isHistoryEnabled());
    record(true, Torch::RecordContext::ALL);
    IS(Torch::isHistoryEnabled());
    static std::vector<Torch::TraceEntry::Action> tracked;
    Torch::attachAllocatorTraceTracker([](const Torch::TraceEntry &entry) { tracked.push_back(entry.action_); });
    Torch::recordAnnotation({{"name", "part"}});
#if TORCH_MINOR >= 8
    std::string compiled = "graph 1";
    Torch::pushCompileContext(compiled);
#endif
#if TORCH_MINOR >= 10
    Torch::setUserMetadata("phase");
    IS(Torch::getUserMetadata() == "phase");
#endif
    auto block = allocate(20 * MIB);
#if TORCH_MINOR >= 12
    IS(Torch::getContextForPointer(block.get()) != nullptr);
    Torch::attachOomRejectionObserver([](auto...) {});
#endif
#if TORCH_MINOR >= 14
    IS(Torch::supportsUserMetadata());
    Torch::annotateMemory(block.get(), "a note");
#endif
#if TORCH_MINOR >= 8
    Torch::popCompileContext();
    Torch::popCompileContext();
#endif
    auto found = snapshot();
    const auto address = reinterpret_cast<size_t>(block.get());
    bool is_traced = false, is_listed = false;
    for (const auto &entry : found.device_traces.at(0)) {
        is_traced = is_traced || (entry.action_ == Torch::TraceEntry::ALLOC && entry.addr_ == address && entry.context_ != nullptr);
    }
    for (const auto &segment : found.segments) {
        size_t at = segment.address, sum = 0;
        for (const auto &of : segment.blocks) {
            is_listed = is_listed || (at == address && of.allocated && of.context_when_allocated != nullptr && of.requested_size == 20 * MIB);
            at += of.size;
            sum += of.size;
        }
        IS(sum == segment.total_size);
    }
    IS(is_traced && is_listed && found.external_annotations.size() == 1 && found.config_metadata.expandable_segments);
    block.clear();
    Torch::emptyCache();
    auto last = snapshot().device_traces.at(0);
    bool is_freed = false;
    for (const auto &entry : last) {
        is_freed = is_freed || (entry.action_ == Torch::TraceEntry::FREE_COMPLETED && entry.addr_ == address);
    }
    auto has = [&](auto action) { return std::find(tracked.begin(), tracked.end(), action) != tracked.end(); };
    IS(is_freed && has(Torch::TraceEntry::ALLOC) && has(Torch::TraceEntry::SEGMENT_MAP) && has(Torch::TraceEntry::SEGMENT_UNMAP));
    record(false, Torch::RecordContext::NEVER);
    IS(!Torch::isHistoryEnabled() && snapshot().device_traces.at(0).empty());
#if TORCH_MINOR >= 10
    IS(!Torch::getExpandableSegmentSizes(0).empty() || snapshot().segments.empty());
    IS(Torch::get()->getMemoryInfo(0).second > 0);
#endif
}

void pools() {
    const MempoolId_t id = {0, 77}, unknown = {0, 99};
    IS(throws([&] { Torch::releasePool(0, unknown); }));
    IS(throws([&] { Torch::endAllocateToPool(0, unknown); }, "not currently recording"));
    create(id, nullptr);
    IS(Torch::getPoolUseCount(0, id) == 1);
    Torch::beginAllocateToPool(0, id, everything);
    IS(throws([&] { Torch::beginAllocateToPool(0, id, everything); }, "already recording"));
    auto one = allocate(4 * MIB), two = allocate(2 * MIB);
    auto state = Torch::getCheckpointState(0, id);
    auto three = allocate(MIB);
    auto *address = one.get();
    one.clear();
    Torch::endAllocateToPool(0, id);
    IS(Torch::getPoolUseCount(0, id) == 2);
    IS(Torch::checkPoolLiveAllocations(0, id, {two.get(), three.get()}) && !Torch::checkPoolLiveAllocations(0, id, {two.get()}));
    IS(allocate(4 * MIB).get() != address);
    auto *of_two = two.release_context(), *of_three = three.release_context();
    auto delta = Torch::setCheckpointPoolState(0, state);
    IS(delta.ptrs_freed.size() == 2 && delta.dataptrs_allocd.size() == 2);
    IS(Torch::checkPoolLiveAllocations(0, id, {address, of_two}) && of_three != nullptr);
    bool is_listed = false;
    for (const auto &segment : snapshot().segments) {
        is_listed = is_listed || segment.owner_private_pool_id == id;
    }
    IS(is_listed);
    delta.dataptrs_allocd.clear();
    IS(throws([&] { Torch::setCheckpointPoolState(0, nullptr); }));
#if TORCH_MINOR >= 8
    Torch::setUseOnOOM(0, id
#if TORCH_MINOR >= 11
                       , true
#endif
    );
    IS(throws([&] {
        Torch::setUseOnOOM(0, unknown
#if TORCH_MINOR >= 11
                           , true
#endif
        );
    }));
    IS(Torch::snapshot(id).segments.size() >= 1 && Torch::snapshot(unknown).segments.empty());
#endif
#if TORCH_MINOR >= 10
    Torch::setNoSplit(0, id);
#endif
    Torch::releasePool(0, id);
    Torch::releasePool(0, id);
    IS(Torch::getPoolUseCount(0, id) == 0);
#if TORCH_MINOR >= 8
    Torch::emptyCache(id);
#endif
#if TORCH_MINOR >= 13
    Torch::markCaptureBegin(0);
    Torch::markCaptureEnd(0);
    IS(throws([&] { Torch::allocateWithAddress(MIB, address); }, "does not yet support allocateWithAddress"));
#endif
}

#if TORCH_MINOR >= 8
void pools_over_another_allocator(Torch::CUDAAllocator *below) {
    const MempoolId_t id = {0, 55};
    create(id, below);
    Torch::beginAllocateToPool(0, id, everything);
    auto one = allocate(3 * MIB);
    Torch::endAllocateToPool(0, id);
    IS(one.get() != nullptr && one.get_deleter() == Torch::get()->raw_deleter());
    size_t bytes = 0;
    IS(Torch::getBaseAllocation(static_cast<char *>(one.get()) + 100, &bytes) == one.get() && bytes == 4 * MIB);
    IS(Torch::snapshot(id).segments.size() == 1);
    Torch::recordStream(one, c10::cuda::getStreamFromPool(false, 0));
    auto *address = one.get();
    one.clear();
    Torch::beginAllocateToPool(0, id, everything);
    // The first was used by another stream.
    auto two = allocate(3 * MIB);
    IS(two.get() != address);
    address = two.get();
    two.clear();
    IS(allocate(3 * MIB).get() == address);
    Torch::endAllocateToPool(0, id);
    IS(Torch::getPoolUseCount(0, id) == 3);
    for (int use = 0; use < 3; ++use) {
        Torch::releasePool(0, id);
    }
    Torch::emptyCache(id);
    IS(Torch::snapshot(id).segments.empty());
}
#endif

void sharing() {
    auto block = allocate(5 * MIB);
    auto shared = Torch::shareIpcHandle(static_cast<char *>(block.get()) + 64);
    IS(shared.offset >= 64 && !shared.handle.empty());
    {
        auto opened = Torch::getIpcDevPtr(shared.handle);
        IS(opened != nullptr && opened == Torch::getIpcDevPtr(shared.handle));
        IS(cudaMemcpy(static_cast<char *>(opened.get()) + shared.offset, block.get(), MIB, cudaMemcpyDeviceToDevice) == 0);
    }
    IS(throws([] { Torch::getIpcDevPtr("of nothing"); }));
    IS(throws([] { Torch::shareIpcHandle(&checks); }, "invalid device pointer"));
}

} // namespace

int main(int count, char **arguments) {
    if (count != 3) {
        return 2;
    }
    // What libtorch_cuda sets.
    c10::cuda::_internal::setHasPrimaryContext([](c10::DeviceIndex) { return true; });
    auto *native = Torch::get();
    void *module = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    if (module == nullptr) {
        std::printf("%s\n", dlerror());
        return 1;
    }
    auto install = reinterpret_cast<const char *(*)(const char *)>(dlsym(module, "vrampool_torch_module_install"));
    auto minor = reinterpret_cast<int (*)()>(dlsym(module, "vrampool_torch_module_minor"));
    IS(install("/nowhere.so") != nullptr && Torch::get() == native);
    const char *reason = install(arguments[2]);
    IS(reason == nullptr && minor() == TORCH_MINOR && Torch::get() != native);
    if (reason != nullptr) {
        std::printf("%s\n", reason);
        return 1;
    }
    IS(!Torch::get()->initialized());
    Torch::init(c10::cuda::device_count());
    requests();
    statistics();
    out_of_memory();
    histories();
    pools();
#if TORCH_MINOR >= 8
    native->init(1);
    pools_over_another_allocator(native);
#endif
    sharing();
    std::printf("PyTorch 2.%d: %d checks, %d faults\n", TORCH_MINOR, checks, faults);
    return faults == 0 ? 0 : 1;
}
