// What PyTorch records of memory: traces with stacks, annotations, trackers of segments, observers.
#pragma once

#include "library.h"

#include <atomic>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>

namespace vrampool {

using Context = std::shared_ptr<c10::GatheredContext>;

// All devices' history, and PyTorch's functions of it. Its lock is held for moments, never while a recorder of contexts or an observer runs.
class History : public Torch::CUDAAllocator {
  public:
    bool isHistoryEnabled() override { return recording_.load(std::memory_order_relaxed); }
    void recordHistory(bool enabled, Torch::CreateContextFn recorder, size_t most, Torch::RecordContext when
#if TORCH_MINOR >= 8
                       , bool clears
#endif
#if TORCH_MINOR >= 11
                       , const std::vector<std::string> &skipped
#endif
                       ) override;
    void recordAnnotation(const std::vector<std::pair<std::string, std::string>> &texts) override;
    void attachOutOfMemoryObserver(Torch::OutOfMemoryObserver observer) override;
    void attachAllocatorTraceTracker(Torch::AllocatorTraceTracker tracker) override;
#if TORCH_MINOR >= 8
    void pushCompileContext(std::string &text) override;
    void popCompileContext() override;
#endif
#if TORCH_MINOR >= 10
    void setUserMetadata(const std::string &text) override;
    std::string getUserMetadata() override;
#endif
#if TORCH_MINOR >= 12
    Context getContextForPointer(const void *address) override { return context_of(address); }
    // Never called: requests are rejected by a policy of PyTorch's allocator, which this one does not have.
    void attachOomRejectionObserver(Torch::OomRejectionObserver) override {}
#endif
#if TORCH_MINOR >= 14
    bool supportsUserMetadata() override { return true; }
    void annotateMemory(const void *address, const std::string &text) override;
#endif

    // Whether requests are recorded or tracked.
    bool is_watching() const { return is_watched(HISTORY); }

    // The stack of the caller, where it is recorded for such an event.
    Context gather(Torch::RecordContext level) const;

    void record_allocation(DeviceIndex device, void *address, size_t bytes, cudaStream_t stream, MempoolId_t pool, const Context &context);
    void record_free(DeviceIndex device, void *address, size_t bytes, cudaStream_t stream, MempoolId_t pool, const Context &context);
    void record(TraceEntry::Action action, DeviceIndex device, size_t address, size_t bytes, cudaStream_t stream, MempoolId_t pool,
                const Context &context);
    // Records what segments came and went since the last call.
    void look_at_segments(DeviceIndex device);
    // Calls the observers, without the lock.
    void out_of_memory(DeviceIndex device, size_t allocated, size_t total, size_t free) const;

    Context context_of(const void *address) const;
    int registration_of(DeviceIndex device, size_t address) const;
    std::vector<TraceEntry> traces_of(DeviceIndex device) const;
    std::vector<AnnotationEntry> annotations() const;

  private:
    struct Segment {
        size_t bytes;
        bool is_virtual;
    };
    using Segments = std::map<size_t, Segment>;

    void locked_record(TraceEntry entry);
    void update();

    mutable std::mutex lock_;
    std::atomic<bool> recording_{false};
    std::atomic<Torch::CreateContextFn> recorder_{nullptr};
    std::atomic<Torch::RecordContext> when_{Torch::RecordContext::NEVER};
    size_t most_ = 1;
    std::vector<std::string> skipped_;
    std::map<DeviceIndex, std::deque<TraceEntry>> traces_;
    std::deque<AnnotationEntry> annotations_;
    std::unordered_map<const void *, Context> contexts_;
    std::vector<Torch::AllocatorTraceTracker> trackers_;
    std::vector<Torch::OutOfMemoryObserver> observers_;
    std::map<DeviceIndex, Segments> segments_;
    std::map<DeviceIndex, uint64_t> calls_;
    std::map<std::pair<DeviceIndex, size_t>, int> registered_;
    int registrations_ = 0;
    std::string metadata_;
};

} // namespace vrampool
