// Private pools, their checkpoints, and what their memory is returned by.
#include "allocator.h"

namespace vrampool {

void Allocator::create_pool(DeviceIndex device, MempoolId_t id, Torch::CUDAAllocator *below,
                            std::shared_ptr<Torch::CUDAAllocator> keeps) {
    // A pool over this allocator itself is one of its own.
    if (!foreign_.create(device, id, below == this ? nullptr : below, std::move(keeps))) {
        check(library.torch_pool_create(device, id_of(id)), "a private pool");
    }
}

#if TORCH_MINOR >= 11
void Allocator::createOrIncrefPool(DeviceIndex device, MempoolId_t id, std::shared_ptr<Torch::CUDAAllocator> below) {
    auto *allocator = below.get();
    create_pool(device, id, allocator, std::move(below));
}
#elif TORCH_MINOR >= 8
void Allocator::createOrIncrefPool(DeviceIndex device, MempoolId_t id, Torch::CUDAAllocator *below) {
    create_pool(device, id, below, nullptr);
}
#else
void Allocator::ensureExistsAndIncrefPool(DeviceIndex device, MempoolId_t id) {
    create_pool(device, id, nullptr, nullptr);
}
#endif

void Allocator::beginAllocateToPool(DeviceIndex device, MempoolId_t id, std::function<bool(cudaStream_t)> filter) {
    {
        std::lock_guard<std::mutex> locked(lock_);
        TORCH_CHECK(begun_.insert({device, id}).second, "beginAllocateToPool: already recording to mempool_id");
    }
#if TORCH_MINOR == 7
    auto *active = c10::cuda::MemPoolContext::getActiveMemPool();
    if (active != nullptr && active->id() == id && active->allocator() != nullptr && !foreign_.has(device, id)) {
        foreign_.create(device, id, active->allocator(), nullptr);
    }
#endif
    if (!foreign_.begin(device, id, filter)) {
        checked("beginAllocateToPool", [&] { library.torch_begin_allocate_to_pool(device, id_of(id), &filter); });
    }
}

void Allocator::endAllocateToPool(DeviceIndex device, MempoolId_t id) {
    {
        std::lock_guard<std::mutex> locked(lock_);
        TORCH_CHECK(begun_.erase({device, id}) != 0, "endAllocatePool: not currently recording to mempool_id");
    }
    if (!foreign_.end(device, id)) {
        checked("endAllocateToPool", [&] { library.torch_end_allocate_to_pool(device, id_of(id)); });
    }
}

void Allocator::releasePool(DeviceIndex device, MempoolId_t id) {
    if (!foreign_.release(device, id)) {
        checked("releasePool", [&] { library.torch_release_pool(device, id_of(id)); });
    }
}

int Allocator::getPoolUseCount(DeviceIndex device, MempoolId_t id) {
    uint64_t uses = 0;
    if (foreign_.has(device, id)) {
        return foreign_.uses(device, id);
    }
    check(library.torch_pool_uses(device, id_of(id), &uses), "getPoolUseCount");
    return static_cast<int>(uses);
}

void Allocator::emptyCache(
#if TORCH_MINOR >= 8
    MempoolId_t
#endif
) {
    foreign_.empty();
    checked("empty_cache", [] { library.torch_reset(); });
    for (int device = 0; is_watching() && device < devices_; ++device) {
        look_at_segments(static_cast<DeviceIndex>(device));
    }
}

#if TORCH_MINOR >= 8
void Allocator::setUseOnOOM(DeviceIndex device, MempoolId_t id
#if TORCH_MINOR >= 11
                            , bool is_used
#endif
) {
#if TORCH_MINOR < 11
    const bool is_used = true;
#endif
    // What another allocator made serves its pool alone.
    if (!foreign_.has(device, id)) {
        check(library.torch_pool_use_on_oom(device, id_of(id), is_used), "use_on_oom");
    }
}
#endif

#if TORCH_MINOR >= 10
void Allocator::setNoSplit(DeviceIndex, MempoolId_t) {
    // Blocks of private pools are not split.
}
#endif

bool Allocator::checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id, const std::unordered_set<void *> &expected) {
    size_t live = 0;
    bool is_expected = true;
    for (const auto &span : all_spans(device)) {
        if (span.is_live && pool_of(span) == id) {
            ++live;
            is_expected = is_expected && expected.count(reinterpret_cast<void *>(span.address)) != 0;
        }
    }
    return is_expected && live == expected.size();
}

std::shared_ptr<Torch::AllocatorState> Allocator::getCheckpointState(DeviceIndex device, MempoolId_t id) {
    auto state = std::make_shared<CheckpointState>();
    state->id = id;
    for (const auto &span : spans_of(device, true)) {
        if (pool_of(span) == id) {
            state->live.push_back(span);
        }
    }
    return state;
}

Torch::CheckpointDelta Allocator::setCheckpointPoolState(DeviceIndex device, std::shared_ptr<Torch::AllocatorState> state) {
    auto wanted = std::dynamic_pointer_cast<CheckpointState>(state);
    TORCH_CHECK(wanted, "a state of another allocator, or of no pool");
    Torch::CheckpointDelta delta;
    for (const auto &span : spans_of(device, true)) {
        if (pool_of(span) == wanted->id) {
            delta.ptrs_freed.push_back(reinterpret_cast<void *>(span.address));
        }
    }
    std::vector<uint64_t> addresses, requested, streams;
    for (const auto &span : wanted->live) {
        addresses.push_back(span.address);
        requested.push_back(span.requested);
        streams.push_back(span.stream);
    }
    check(library.torch_pool_restore(device, id_of(wanted->id), addresses.data(), requested.data(), streams.data(), addresses.size()),
          "setCheckpointPoolState");
    for (auto address : addresses) {
        auto *pointer = reinterpret_cast<void *>(address);
        delta.dataptrs_allocd.emplace_back(pointer, pointer, raw_deleter(), c10::Device(c10::DeviceType::CUDA, device));
    }
    return delta;
}

} // namespace vrampool
