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

// All devices' history. Its lock is held for moments, never while a recorder of contexts or an observer runs.
class History {
  public:
    // Whether requests are recorded or tracked.
    bool is_watching() const { return is_watched(HISTORY); }
    bool is_recording() const { return recording_.load(std::memory_order_relaxed); }

    void record(bool enabled, Torch::CreateContextFn recorder, size_t most, Torch::RecordContext when, bool clears,
                const std::vector<std::string> &skipped);
    void attach(Torch::AllocatorTraceTracker tracker);
    void attach(Torch::OutOfMemoryObserver observer);
    void annotate(const std::vector<std::pair<std::string, std::string>> &texts);

    // The stack of the caller, where it is recorded for such an event.
    Context gather(Torch::RecordContext level) const;

    void allocated(DeviceIndex device, void *address, size_t bytes, cudaStream_t stream, MempoolId_t pool, const Context &context);
    void freed(DeviceIndex device, void *address, size_t bytes, cudaStream_t stream, MempoolId_t pool, const Context &context);
    void add(TraceEntry::Action action, DeviceIndex device, size_t address, size_t bytes, cudaStream_t stream, MempoolId_t pool,
             const Context &context);
#if TORCH_MINOR >= 14
    void annotate_block(DeviceIndex device, const void *address, const std::string &text);
#endif
    // Records what segments came and went since the last call.
    void look_at_segments(DeviceIndex device);
    // Calls the observers, without the lock.
    void out_of_memory(DeviceIndex device, size_t allocated, size_t total, size_t free) const;

    Context context_of(const void *address) const;
    int registration_of(DeviceIndex device, size_t address) const;
    std::vector<TraceEntry> traces_of(DeviceIndex device) const;
    std::vector<AnnotationEntry> annotations() const;

    std::string metadata() const;
    void set_metadata(const std::string &text);
    static void push_compile_context(const std::string &text);
    static void pop_compile_context();

  private:
    struct Segment {
        size_t bytes;
        bool is_virtual;
    };
    using Segments = std::map<size_t, Segment>;

    void locked_add(TraceEntry entry);
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

// Whether an entry of this action is wanted by name.
const char *name_of(TraceEntry::Action action);

} // namespace vrampool
