#include "history.h"

#include <c10/util/ApproximateClock.h>

#include <algorithm>

namespace vrampool {

namespace {

thread_local std::vector<std::string> compile_contexts;

TraceEntry entry_of(TraceEntry::Action action, DeviceIndex device, size_t address, size_t bytes, cudaStream_t stream, MempoolId_t pool,
                    const Context &context, const std::string &metadata) {
    auto now = c10::getApproximateTime();
#if TORCH_MINOR >= 8
    std::string compiled = compile_contexts.empty() ? "" : compile_contexts.back();
#endif
#if TORCH_MINOR >= 10
    return TraceEntry(action, device, address, bytes, stream, pool, now, context, compiled, metadata);
#elif TORCH_MINOR >= 8
    return TraceEntry(action, device, address, bytes, stream, pool, now, context, compiled);
#else
    return TraceEntry(action, device, address, bytes, stream, now, context);
#endif
}

// The name by which entries of an action are left out.
const char *name_of(TraceEntry::Action action) {
    switch (action) {
    case TraceEntry::ALLOC: return "alloc";
    case TraceEntry::FREE_REQUESTED: return "free_requested";
    case TraceEntry::FREE_COMPLETED: return "free_completed";
    case TraceEntry::SEGMENT_ALLOC: return "segment_alloc";
    case TraceEntry::SEGMENT_FREE: return "segment_free";
    case TraceEntry::SEGMENT_MAP: return "segment_map";
    case TraceEntry::SEGMENT_UNMAP: return "segment_unmap";
    case TraceEntry::SNAPSHOT: return "snapshot";
    case TraceEntry::OOM: return "oom";
    default: return "annotate";
    }
}

} // namespace

void History::update() {
    watch(HISTORY, recording_.load() || !trackers_.empty());
}

void History::recordHistory(bool enabled, Torch::CreateContextFn recorder, size_t most, Torch::RecordContext when
#if TORCH_MINOR >= 8
                            , bool clears
#endif
#if TORCH_MINOR >= 11
                            , const std::vector<std::string> &skipped
#endif
) {
#if TORCH_MINOR < 8
    const bool clears = false;
#endif
    TORCH_CHECK(when == Torch::RecordContext::NEVER || recorder, "a recorder of contexts is needed for this kind of history");
    std::lock_guard<std::mutex> locked(lock_);
    recording_ = enabled;
    recorder_ = enabled ? recorder : nullptr;
    when_ = enabled ? when : Torch::RecordContext::NEVER;
    most_ = std::max<size_t>(1, most);
#if TORCH_MINOR >= 11
    skipped_ = skipped;
#endif
    if (!enabled || clears) {
        traces_.clear();
        annotations_.clear();
    }
    if (!enabled) {
        contexts_.clear();
    }
    update();
}

void History::attachAllocatorTraceTracker(Torch::AllocatorTraceTracker tracker) {
    std::lock_guard<std::mutex> locked(lock_);
    trackers_.push_back(std::move(tracker));
    update();
}

void History::attachOutOfMemoryObserver(Torch::OutOfMemoryObserver observer) {
    std::lock_guard<std::mutex> locked(lock_);
    observers_.push_back(std::move(observer));
}

void History::recordAnnotation(const std::vector<std::pair<std::string, std::string>> &texts) {
    if (!isHistoryEnabled()) {
        return;
    }
    AnnotationEntry entry(c10::cuda::current_device(), c10::getApproximateTime());
    for (const auto &[name, text] : texts) {
        entry.recordUserMetadata(name, text);
    }
    std::lock_guard<std::mutex> locked(lock_);
    annotations_.push_back(std::move(entry));
    while (annotations_.size() > most_) {
        annotations_.pop_front();
    }
}

Context History::gather(Torch::RecordContext level) const {
    auto recorder = recorder_.load();
    return recorder != nullptr && when_.load() >= level ? recorder() : nullptr;
}

void History::locked_record(TraceEntry entry) {
    // Segments have numbers in the order in which they came, by which NCCL registers them on each rank.
    const std::pair<DeviceIndex, size_t> place{entry.device_, static_cast<size_t>(entry.addr_)};
    if (entry.action_ == TraceEntry::SEGMENT_ALLOC || entry.action_ == TraceEntry::SEGMENT_MAP) {
        registered_[place] = registrations_++;
    } else if (entry.action_ == TraceEntry::SEGMENT_FREE || entry.action_ == TraceEntry::SEGMENT_UNMAP) {
        registered_.erase(place);
    }
    for (const auto &tracker : trackers_) {
        tracker(entry);
    }
    if (!isHistoryEnabled() || std::find(skipped_.begin(), skipped_.end(), name_of(entry.action_)) != skipped_.end()) {
        return;
    }
    auto &traces = traces_[entry.device_];
    traces.push_back(std::move(entry));
    while (traces.size() > most_) {
        traces.pop_front();
    }
}

void History::record(TraceEntry::Action action, DeviceIndex device, size_t address, size_t bytes, cudaStream_t stream, MempoolId_t pool,
                  const Context &context) {
    std::lock_guard<std::mutex> locked(lock_);
    locked_record(entry_of(action, device, address, bytes, stream, pool, context, metadata_));
}

void History::record_allocation(DeviceIndex device, void *address, size_t bytes, cudaStream_t stream, MempoolId_t pool,
                        const Context &context) {
    const bool keeps = when_.load() >= Torch::RecordContext::ALLOC;
    std::lock_guard<std::mutex> locked(lock_);
    if (context != nullptr) {
        contexts_[address] = context;
    }
    locked_record(entry_of(TraceEntry::ALLOC, device, reinterpret_cast<size_t>(address), bytes, stream, pool,
                        keeps ? context : nullptr, metadata_));
}

void History::record_free(DeviceIndex device, void *address, size_t bytes, cudaStream_t stream, MempoolId_t pool, const Context &context) {
    std::lock_guard<std::mutex> locked(lock_);
    contexts_.erase(address);
    for (auto action : {TraceEntry::FREE_REQUESTED, TraceEntry::FREE_COMPLETED}) {
        locked_record(entry_of(action, device, reinterpret_cast<size_t>(address), bytes, stream, pool, context, metadata_));
    }
}

#if TORCH_MINOR >= 14
void History::annotateMemory(const void *address, const std::string &text) {
    const auto device = c10::cuda::current_device();
    std::lock_guard<std::mutex> locked(lock_);
    locked_record(entry_of(TraceEntry::ANNOTATE, device, reinterpret_cast<size_t>(address), 0, nullptr, {0, 0}, nullptr, text));
}
#endif

void History::look_at_segments(DeviceIndex device) {
    const auto pool = pool_if_any(device);
    const auto calls = stats_of(pool).memory_calls;
    {
        std::lock_guard<std::mutex> locked(lock_);
        auto &before = calls_[device];
        if (before == calls) {
            return;
        }
        before = calls;
    }
    Segments now;
    for (const auto &span : spans_of(device, false)) {
        now[span.segment] = {span.segment_bytes, span.is_virtual != 0};
    }
    std::lock_guard<std::mutex> locked(lock_);
    auto &known = segments_[device];
    auto note_absent = [&](const Segments &segments, const Segments &others, bool is_new) {
        for (const auto &[address, segment] : segments) {
            auto same = others.find(address);
            if (same != others.end() && same->second.bytes == segment.bytes) {
                continue;
            }
            auto action = segment.is_virtual ? (is_new ? TraceEntry::SEGMENT_MAP : TraceEntry::SEGMENT_UNMAP)
                                             : (is_new ? TraceEntry::SEGMENT_ALLOC : TraceEntry::SEGMENT_FREE);
            locked_record(entry_of(action, device, address, segment.bytes, nullptr, {0, 0}, nullptr, metadata_));
        }
    };
    note_absent(known, now, false);
    note_absent(now, known, true);
    known = std::move(now);
}

void History::out_of_memory(DeviceIndex device, size_t allocated, size_t total, size_t free) const {
    std::vector<Torch::OutOfMemoryObserver> observers;
    {
        std::lock_guard<std::mutex> locked(lock_);
        observers = observers_;
    }
    for (const auto &observer : observers) {
        observer(device, allocated, total, free);
    }
}

Context History::context_of(const void *address) const {
    std::lock_guard<std::mutex> locked(lock_);
    auto found = contexts_.find(address);
    return found == contexts_.end() ? nullptr : found->second;
}

int History::registration_of(DeviceIndex device, size_t address) const {
    std::lock_guard<std::mutex> locked(lock_);
    auto found = registered_.find({device, address});
    return found == registered_.end() ? -1 : found->second;
}

std::vector<TraceEntry> History::traces_of(DeviceIndex device) const {
    std::lock_guard<std::mutex> locked(lock_);
    auto found = traces_.find(device);
    return found == traces_.end() ? std::vector<TraceEntry>() : std::vector<TraceEntry>(found->second.begin(), found->second.end());
}

std::vector<AnnotationEntry> History::annotations() const {
    std::lock_guard<std::mutex> locked(lock_);
    return {annotations_.begin(), annotations_.end()};
}

#if TORCH_MINOR >= 10
void History::setUserMetadata(const std::string &text) {
    std::lock_guard<std::mutex> locked(lock_);
    metadata_ = text;
}

std::string History::getUserMetadata() {
    std::lock_guard<std::mutex> locked(lock_);
    return metadata_;
}
#endif

#if TORCH_MINOR >= 8
void History::pushCompileContext(std::string &text) {
    compile_contexts.push_back(text);
}

void History::popCompileContext() {
    if (!compile_contexts.empty()) {
        compile_contexts.pop_back();
    }
}
#endif

} // namespace vrampool
