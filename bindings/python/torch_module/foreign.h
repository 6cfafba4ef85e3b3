// Pools of a MemPool whose memory another allocator makes, as ncclMemAlloc's.
#pragma once

#include "history.h"

#include <functional>
#include <optional>
#include <set>

namespace vrampool {

class ForeignPools {
  public:
    explicit ForeignPools(History &history) : history_(history) {}

    // Whether there is any; requests and frees look here first then.
    bool are_any() const { return is_watched(FOREIGN); }

    // Counts one more use; makes the pool where `below` is its allocator. False where it is no foreign pool.
    bool create(DeviceIndex device, MempoolId_t id, Torch::CUDAAllocator *below, std::shared_ptr<Torch::CUDAAllocator> keeps);
    bool begin(DeviceIndex device, MempoolId_t id, const std::function<bool(cudaStream_t)> &filter);
    bool end(DeviceIndex device, MempoolId_t id);
    bool release(DeviceIndex device, MempoolId_t id);
    bool has(DeviceIndex device, MempoolId_t id) const;
    int uses(DeviceIndex device, MempoolId_t id) const;
    // Returns idle memory of released pools to their allocators.
    void empty();

    // A block, where the request is for such a pool; null in it where its allocator has no memory.
    std::optional<void *> allocate(DeviceIndex device, size_t bytes, cudaStream_t stream);
    // False where the block is not from here.
    bool free(void *address);
    bool record_stream(void *address, cudaStream_t stream);
    // The block that an address is in.
    std::optional<vrampool_torch_span> around(const void *address) const;
    void add_spans(DeviceIndex device, Spans &spans) const;

  private:
    struct Pool {
        DeviceIndex device;
        MempoolId_t id;
        Torch::CUDAAllocator *below;
        std::shared_ptr<Torch::CUDAAllocator> keeps;
        int uses = 0;
    };
    // Live, or idle for a request of its stream and size. One that other streams used serves no other request.
    struct Block {
        std::shared_ptr<Pool> pool;
        size_t bytes, requested;
        cudaStream_t stream;
        bool is_live, is_shared;
    };
    struct Route {
        std::shared_ptr<Pool> pool;
        std::function<bool(cudaStream_t)> filter;
    };

    std::shared_ptr<Pool> find(DeviceIndex device, MempoolId_t id) const;
    // A block, which is a segment of its own.
    static vrampool_torch_span span_of(const void *address, const Block &block);

    History &history_;
    mutable std::mutex lock_;
    std::vector<std::shared_ptr<Pool>> pools_;
    std::vector<Route> routes_;
    std::map<void *, Block> blocks_;
};

} // namespace vrampool
