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

// A block, which is a segment of its own.
vrampool_torch_span span_of(const void *address, size_t bytes, size_t requested, cudaStream_t stream, MempoolId_t pool, bool is_live) {
    auto begins = reinterpret_cast<uint64_t>(address);
    return {begins, bytes, begins, bytes, requested, reinterpret_cast<uint64_t>(stream), {pool.first, pool.second}, is_live, 0};
}

} // namespace

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
    std::vector<std::pair<std::shared_ptr<Pool>, std::pair<void *, size_t>>> freed;
    {
        std::lock_guard<std::mutex> locked(lock_);
        for (const auto &pool : pools_) {
            if (pool->uses > 0) {
                continue;
            }
            for (const auto &[key, address] : pool->idle) {
                freed.push_back({pool, {address, key.second}});
            }
            for (const auto &block : pool->aside) {
                freed.push_back({pool, block});
            }
            pool->idle.clear();
            pool->aside.clear();
        }
        auto is_over = [&](const std::shared_ptr<Pool> &pool) {
            auto of_pool = [&](const auto &block) { return block.second.pool == pool; };
            return pool->uses == 0 && std::none_of(live_.begin(), live_.end(), of_pool);
        };
        auto over = std::remove_if(pools_.begin(), pools_.end(), is_over);
        pools_.erase(over, pools_.end());
        watch(FOREIGN, !pools_.empty());
    }
    if (!freed.empty()) {
        C10_CUDA_CHECK(cudaDeviceSynchronize());
    }
    for (const auto &[pool, block] : freed) {
        history_.add(TraceEntry::SEGMENT_FREE, pool->device, reinterpret_cast<size_t>(block.first), block.second, nullptr, pool->id,
                     nullptr);
        pool->below->raw_delete(block.first);
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
        void *address = nullptr;
        {
            std::lock_guard<std::mutex> locked(lock_);
            auto idle = pool->idle.find({stream, size});
            if (idle != pool->idle.end()) {
                address = idle->second;
                pool->idle.erase(idle);
            }
        }
        if (address == nullptr) {
            address = pool->below->raw_alloc(size);
            if (address == nullptr) {
                return nullptr;
            }
            history_.add(TraceEntry::SEGMENT_ALLOC, device, reinterpret_cast<size_t>(address), size, stream, pool->id, nullptr);
        }
        std::lock_guard<std::mutex> locked(lock_);
        live_[address] = {pool, size, bytes, stream, false};
        return address;
    }
    return std::nullopt;
}

bool ForeignPools::free(void *address) {
    bool is_over = false;
    {
        std::lock_guard<std::mutex> locked(lock_);
        auto found = live_.find(address);
        if (found == live_.end()) {
            return false;
        }
        Block block = found->second;
        live_.erase(found);
        if (block.is_shared) {
            block.pool->aside.push_back({address, block.bytes});
        } else {
            block.pool->idle.insert({{block.stream, block.bytes}, address});
        }
        is_over = block.pool->uses == 0;
    }
    if (is_over) {
        empty();
    }
    return true;
}

bool ForeignPools::record_stream(void *address, cudaStream_t stream) {
    std::lock_guard<std::mutex> locked(lock_);
    auto found = live_.find(address);
    if (found == live_.end()) {
        return false;
    }
    found->second.is_shared = found->second.is_shared || found->second.stream != stream;
    return true;
}

std::optional<vrampool_torch_span> ForeignPools::around(const void *address) const {
    std::lock_guard<std::mutex> locked(lock_);
    auto after = live_.upper_bound(const_cast<void *>(address));
    if (after == live_.begin()) {
        return std::nullopt;
    }
    const auto &[start, block] = *std::prev(after);
    if (reinterpret_cast<uint64_t>(address) - reinterpret_cast<uint64_t>(start) >= block.bytes) {
        return std::nullopt;
    }
    return span_of(start, block.bytes, block.requested, block.stream, block.pool->id, true);
}

void ForeignPools::add_spans(DeviceIndex device, Spans &spans) const {
    std::lock_guard<std::mutex> locked(lock_);
    for (const auto &[address, block] : live_) {
        if (block.pool->device == device) {
            spans.push_back(span_of(address, block.bytes, block.requested, block.stream, block.pool->id, true));
        }
    }
    for (const auto &pool : pools_) {
        if (pool->device != device) {
            continue;
        }
        for (const auto &[key, address] : pool->idle) {
            spans.push_back(span_of(address, key.second, 0, key.first, pool->id, false));
        }
        for (const auto &[address, bytes] : pool->aside) {
            spans.push_back(span_of(address, bytes, 0, nullptr, pool->id, false));
        }
    }
}

} // namespace vrampool
