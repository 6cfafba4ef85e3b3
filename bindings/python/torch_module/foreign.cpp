#include "foreign.h"

#include "counts.h"

#include <algorithm>

namespace vrampool {

namespace {

constexpr size_t PAGE = 2 << 20;

// Small blocks in powers of two from 512 bytes, others in pages.
size_t rounded(size_t bytes) {
    if (bytes > LARGEST_SMALL) {
        return (bytes + PAGE - 1) / PAGE * PAGE;
    }
    size_t size = 512;
    while (size < bytes) {
        size *= 2;
    }
    return size;
}

} // namespace

vrampool_torch_span ForeignPools::span_of(const void *address, const Block &block) {
    const auto begins = reinterpret_cast<uint64_t>(address);
    const auto stream = reinterpret_cast<uint64_t>(block.stream);
    return {begins, block.bytes, begins, block.bytes, block.requested, stream, id_of(block.pool->id), block.is_live, 0};
}

std::shared_ptr<ForeignPools::Pool> ForeignPools::find(DeviceIndex device, MempoolId_t id) const {
    for (const auto &pool : pools_) {
        if (pool->device == device && pool->id == id) {
            return pool;
        }
    }
    return nullptr;
}

bool ForeignPools::create(DeviceIndex device, MempoolId_t id, Torch::CUDAAllocator *below,
                          std::shared_ptr<Torch::CUDAAllocator> keeps) {
    std::lock_guard<std::mutex> locked(lock_);
    auto pool = find(device, id);
    if (pool == nullptr) {
        if (below == nullptr) {
            return false;
        }
        pool = std::make_shared<Pool>();
        pool->device = device;
        pool->id = id;
        pool->below = below;
        pool->keeps = std::move(keeps);
        pools_.push_back(pool);
        watch(FOREIGN, true);
    }
    ++pool->uses;
    return true;
}

bool ForeignPools::begin(DeviceIndex device, MempoolId_t id, const std::function<bool(cudaStream_t)> &filter) {
    std::lock_guard<std::mutex> locked(lock_);
    auto pool = find(device, id);
    if (pool == nullptr) {
        return false;
    }
    ++pool->uses;
    routes_.push_back({pool, filter});
    return true;
}

bool ForeignPools::end(DeviceIndex device, MempoolId_t id) {
    std::lock_guard<std::mutex> locked(lock_);
    for (auto route = routes_.rbegin(); route != routes_.rend(); ++route) {
        if (route->pool->device == device && route->pool->id == id) {
            routes_.erase(std::next(route).base());
            return true;
        }
    }
    return find(device, id) != nullptr;
}

bool ForeignPools::release(DeviceIndex device, MempoolId_t id) {
    std::lock_guard<std::mutex> locked(lock_);
    auto pool = find(device, id);
    if (pool != nullptr) {
        pool->uses = std::max(0, pool->uses - 1);
    }
    return pool != nullptr;
}

bool ForeignPools::has(DeviceIndex device, MempoolId_t id) const {
    std::lock_guard<std::mutex> locked(lock_);
    return find(device, id) != nullptr;
}

int ForeignPools::uses(DeviceIndex device, MempoolId_t id) const {
    std::lock_guard<std::mutex> locked(lock_);
    auto pool = find(device, id);
    return pool == nullptr ? 0 : pool->uses;
}

void ForeignPools::empty() {
    std::vector<std::pair<void *, Block>> freed;
    {
        std::lock_guard<std::mutex> locked(lock_);
        for (auto at = blocks_.begin(); at != blocks_.end();) {
            if (at->second.is_live || at->second.pool->uses > 0) {
                ++at;
            } else {
                freed.push_back(*at);
                at = blocks_.erase(at);
            }
        }
        auto is_over = [&](const std::shared_ptr<Pool> &pool) {
            auto of_pool = [&](const auto &block) { return block.second.pool == pool; };
            return pool->uses == 0 && std::none_of(blocks_.begin(), blocks_.end(), of_pool);
        };
        auto over = std::remove_if(pools_.begin(), pools_.end(), is_over);
        pools_.erase(over, pools_.end());
        watch(FOREIGN, !pools_.empty());
    }
    if (!freed.empty()) {
        C10_CUDA_CHECK(cudaDeviceSynchronize());
    }
    for (const auto &[address, block] : freed) {
        const auto &pool = *block.pool;
        history_.record(TraceEntry::SEGMENT_FREE, pool.device, reinterpret_cast<size_t>(address), block.bytes, nullptr, pool.id, nullptr);
        pool.below->raw_delete(address);
    }
}

std::optional<void *> ForeignPools::allocate(DeviceIndex device, size_t bytes, cudaStream_t stream) {
    std::vector<Route> routes;
    {
        std::lock_guard<std::mutex> locked(lock_);
        routes = routes_;
    }
    const size_t size = rounded(bytes);
    for (auto route = routes.rbegin(); route != routes.rend(); ++route) {
        auto pool = route->pool;
        // Asked without the lock: it is PyTorch's function.
        if (pool->device != device || (route->filter && !route->filter(stream))) {
            continue;
        }
        {
            std::lock_guard<std::mutex> locked(lock_);
            for (auto &[address, block] : blocks_) {
                if (block.pool == pool && block.stream == stream && block.bytes == size && !block.is_live && !block.is_shared) {
                    block.is_live = true;
                    block.requested = bytes;
                    return address;
                }
            }
        }
        void *address = pool->below->raw_alloc(size);
        if (address == nullptr) {
            return nullptr;
        }
        history_.record(TraceEntry::SEGMENT_ALLOC, device, reinterpret_cast<size_t>(address), size, stream, pool->id, nullptr);
        std::lock_guard<std::mutex> locked(lock_);
        blocks_[address] = {pool, size, bytes, stream, true, false};
        return address;
    }
    return std::nullopt;
}

bool ForeignPools::free(void *address) {
    bool is_over = false;
    {
        std::lock_guard<std::mutex> locked(lock_);
        auto found = blocks_.find(address);
        if (found == blocks_.end() || !found->second.is_live) {
            return false;
        }
        found->second.is_live = false;
        found->second.requested = 0;
        is_over = found->second.pool->uses == 0;
    }
    if (is_over) {
        empty();
    }
    return true;
}

bool ForeignPools::record_stream(void *address, cudaStream_t stream) {
    std::lock_guard<std::mutex> locked(lock_);
    auto found = blocks_.find(address);
    if (found == blocks_.end() || !found->second.is_live) {
        return false;
    }
    found->second.is_shared = found->second.is_shared || found->second.stream != stream;
    return true;
}

std::optional<vrampool_torch_span> ForeignPools::around(const void *address) const {
    std::lock_guard<std::mutex> locked(lock_);
    auto after = blocks_.upper_bound(const_cast<void *>(address));
    if (after == blocks_.begin()) {
        return std::nullopt;
    }
    const auto &[start, block] = *std::prev(after);
    if (!block.is_live || reinterpret_cast<uint64_t>(address) - reinterpret_cast<uint64_t>(start) >= block.bytes) {
        return std::nullopt;
    }
    return span_of(start, block);
}

void ForeignPools::add_spans(DeviceIndex device, Spans &spans) const {
    std::lock_guard<std::mutex> locked(lock_);
    for (const auto &[address, block] : blocks_) {
        if (block.pool->device == device) {
            spans.push_back(span_of(address, block));
        }
    }
}

} // namespace vrampool
