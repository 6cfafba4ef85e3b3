// PyTorch's own interface of an allocator, over vrampool's C library.
#pragma once

#include "foreign.h"

namespace vrampool {

// A block as a private pool had it.
struct CheckpointState : Torch::AllocatorState {
    MempoolId_t id;
    Spans live;
};

class Allocator final : public History {
  public:
    c10::DataPtr allocate(size_t bytes) override;
    c10::DeleterFnPtr raw_deleter() const override;
    void copy_data(void *to, const void *from, std::size_t bytes) const override;
    void *raw_alloc(size_t bytes) override;
    void *raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override;
    void raw_delete(void *address) override;
    void init(int devices) override;
    bool initialized() override;
    double getMemoryFraction(DeviceIndex device) override;
    void setMemoryFraction(double fraction, DeviceIndex device) override;
    void enable(bool value) override;
    bool isEnabled() const override;
    void cacheInfo(DeviceIndex device, size_t *largest) override;
    void *getBaseAllocation(void *address, size_t *bytes) override;
    void recordStream(const c10::DataPtr &pointer, c10::cuda::CUDAStream stream) override;
    DeviceStats getDeviceStats(DeviceIndex device) override;
    void resetAccumulatedStats(DeviceIndex device) override;
    void resetPeakStats(DeviceIndex device) override;
    void beginAllocateToPool(DeviceIndex device, MempoolId_t id, std::function<bool(cudaStream_t)> filter) override;
    void endAllocateToPool(DeviceIndex device, MempoolId_t id) override;
    void releasePool(DeviceIndex device, MempoolId_t id) override;
    int getPoolUseCount(DeviceIndex device, MempoolId_t id) override;
    bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id, const std::unordered_set<void *> &expected) override;
    Torch::ShareableHandle shareIpcHandle(void *address) override;
    std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
    void enablePeerAccess(DeviceIndex device, DeviceIndex accessed) override;
    cudaError_t memcpyAsync(void *to, int to_device, const void *from, int from_device, size_t bytes, cudaStream_t stream,
                            bool p2p_enabled) override;
    std::shared_ptr<Torch::AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t id) override;
    Torch::CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<Torch::AllocatorState> state) override;
    std::string name() override;
#if TORCH_MINOR >= 8
    void emptyCache(MempoolId_t id) override;
    void setUseOnOOM(DeviceIndex device, MempoolId_t id
#if TORCH_MINOR >= 11
                     , bool is_used
#endif
                     ) override;
    void createOrIncrefPool(DeviceIndex device, MempoolId_t id,
#if TORCH_MINOR >= 11
                            std::shared_ptr<Torch::CUDAAllocator> below
#else
                            Torch::CUDAAllocator *below
#endif
                            ) override;
#else
    void emptyCache() override;
    void ensureExistsAndIncrefPool(DeviceIndex device, MempoolId_t id) override;
#endif
    Torch::SnapshotInfo snapshot(
#if TORCH_MINOR >= 8
        MempoolId_t id
#endif
#if TORCH_MINOR >= 11
        , bool includes_traces
#endif
        ) override;
#if TORCH_MINOR >= 10
    std::vector<Torch::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override;
    void setNoSplit(DeviceIndex device, MempoolId_t id) override;
#endif

    // Frees a block. Returns false for an address where none begins.
    static bool free(void *address);

  private:
    void *serve(DeviceIndex device, size_t bytes, cudaStream_t stream);
    void *serve_watched(DeviceIndex device, size_t bytes, cudaStream_t stream);
    void *short_of_memory(DeviceIndex device, size_t bytes, cudaStream_t stream);
    bool free_watched(void *address);
    void report(DeviceIndex device, void *address, int64_t bytes) const;
    void create_pool(DeviceIndex device, MempoolId_t id, Torch::CUDAAllocator *below, std::shared_ptr<Torch::CUDAAllocator> keeps);
    Spans all_spans(DeviceIndex device) const;
    Torch::SnapshotInfo snapshot_of(MempoolId_t id, bool includes_traces);

    ForeignPools foreign_{*this};
    std::atomic<int> devices_{0};
    std::mutex lock_;
    // The pools that requests are routed to.
    std::set<std::pair<DeviceIndex, MempoolId_t>> begun_;
    // Sums at the last reset of accumulated statistics, and the most that was seen of current ones.
    std::map<DeviceIndex, DeviceStats> bases_, peaks_;
    // Errors of out-of-memory.
    std::map<DeviceIndex, int64_t> ooms_;
};

} // namespace vrampool
