// Statistics and snapshots in PyTorch's layout.
#include "allocator.h"

#include "counts.h"

#include <c10/util/ApproximateClock.h>

#include <algorithm>

namespace vrampool {

namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;

// All, small and large ones.
constexpr size_t ALL = 0, SMALL = 1, LARGE = 2;

void set(StatArray &array, size_t of, uint64_t current, uint64_t allocated) {
    auto &stat = array[of];
    stat.current = static_cast<int64_t>(current);
    stat.allocated = std::max(static_cast<int64_t>(allocated), stat.current);
    stat.freed = stat.allocated - stat.current;
}

template <typename Act>
void each_array(DeviceStats &stats, const DeviceStats &other, Act act) {
    StatArray DeviceStats::*arrays[] = {&DeviceStats::allocation,      &DeviceStats::segment,        &DeviceStats::active,
                                        &DeviceStats::inactive_split,  &DeviceStats::allocated_bytes, &DeviceStats::reserved_bytes,
                                        &DeviceStats::active_bytes,    &DeviceStats::inactive_split_bytes,
                                        &DeviceStats::requested_bytes};
    for (auto array : arrays) {
        for (size_t of = 0; of < (stats.*array).size(); ++of) {
            act((stats.*array)[of], (other.*array)[of]);
        }
    }
}

// What counts since the last reset of accumulated statistics.
template <typename Act>
void each_number(DeviceStats &stats, const DeviceStats &other, Act act) {
    int64_t DeviceStats::*numbers[] = {&DeviceStats::num_alloc_retries, &DeviceStats::num_ooms, &DeviceStats::num_sync_all_streams,
                                       &DeviceStats::num_device_alloc, &DeviceStats::num_device_free};
    for (auto number : numbers) {
        act(stats.*number, other.*number);
    }
}

DeviceStats since_the_beginning(DeviceIndex device) {
    DeviceStats stats = {};
    const auto pool = pool_if_any(device);
    if (pool == 0) {
        return stats;
    }
    const auto of_pool = stats_of(pool);
    const auto requests = counted(device);
    uint64_t live[2] = {}, bytes[2] = {}, requested[2] = {};
    for (const auto &span : spans_of(device, true)) {
        const size_t is_large = span.requested > LARGEST_SMALL;
        ++live[is_large];
        bytes[is_large] += span.bytes;
        requested[is_large] += span.requested;
    }
    for (size_t size = 0; size < 2; ++size) {
        const size_t of = SMALL + size;
        set(stats.allocation, of, live[size], requests[size].requests);
        set(stats.requested_bytes, of, requested[size], requests[size].bytes);
        set(stats.allocated_bytes, of, bytes[size], requests[size].bytes + bytes[size] - requested[size]);
    }
    auto sum = [](StatArray &array) {
        for (size_t of : {SMALL, LARGE}) {
            array[ALL].current += array[of].current;
            array[ALL].allocated += array[of].allocated;
            array[ALL].freed += array[of].freed;
        }
    };
    sum(stats.allocation);
    sum(stats.requested_bytes);
    sum(stats.allocated_bytes);
    stats.requested_bytes[ALL].peak = static_cast<int64_t>(of_pool.peak_requested_bytes);
    stats.allocated_bytes[ALL].peak = static_cast<int64_t>(of_pool.peak_live_bytes);
    stats.active = stats.allocation;
    stats.active_bytes = stats.allocated_bytes;
    // Pages hold blocks of both sizes.
    const uint64_t segments = of_pool.mappings > 0 ? of_pool.mappings
                                                   : of_pool.source_allocations - std::min(of_pool.source_allocations, of_pool.source_frees);
    for (size_t of : {ALL, LARGE}) {
        set(stats.segment, of, segments, of_pool.source_allocations);
        set(stats.reserved_bytes, of, of_pool.reserved_bytes, of_pool.source_allocated_bytes);
        stats.reserved_bytes[of].peak = static_cast<int64_t>(of_pool.peak_reserved_bytes);
        const uint64_t split = of_pool.reserved_bytes - std::min(of_pool.reserved_bytes, of_pool.held_bytes);
        set(stats.inactive_split_bytes, of, split, split);
        set(stats.inactive_split, of, split > 0, split > 0);
    }
    stats.num_alloc_retries = static_cast<int64_t>(of_pool.rung_evict);
    stats.num_sync_all_streams = static_cast<int64_t>(of_pool.rung_wait);
    stats.num_device_alloc = static_cast<int64_t>(of_pool.source_allocations);
    stats.num_device_free = static_cast<int64_t>(of_pool.source_frees);
#if TORCH_MINOR >= 13
    for (const auto &span : spans_of(device, false)) {
        if (pool_of(span) != MempoolId_t{0, 0}) {
            auto &of_private = stats.reserved_bytes_by_private_pools[pool_of(span)];
            for (size_t of : {ALL, LARGE}) {
                of_private[of].increase(span.bytes);
            }
        }
    }
#endif
    return stats;
}

void raise_peaks(DeviceStats &peaks, const DeviceStats &seen) {
    each_array(peaks, seen, [](Stat &peak, const Stat &now) { peak.peak = std::max({peak.peak, now.peak, now.current}); });
}

} // namespace

DeviceStats Allocator::getDeviceStats(DeviceIndex device) {
    auto stats = since_the_beginning(device);
    std::lock_guard<std::mutex> locked(lock_);
    stats.num_ooms = ooms_[device];
    raise_peaks(peaks_[device], stats);
    each_array(stats, peaks_[device], [](Stat &stat, const Stat &peak) { stat.peak = peak.peak; });
    auto subtract = [](Stat &stat, const Stat &base) {
        stat.allocated -= base.allocated;
        stat.freed -= base.freed;
    };
    each_array(stats, bases_[device], subtract);
    each_number(stats, bases_[device], [](int64_t &number, int64_t base) { number -= base; });
    return stats;
}

void Allocator::resetAccumulatedStats(DeviceIndex device) {
    auto stats = since_the_beginning(device);
    std::lock_guard<std::mutex> locked(lock_);
    stats.num_ooms = ooms_[device];
    bases_[device] = stats;
}

void Allocator::resetPeakStats(DeviceIndex device) {
    if (const auto pool = pool_if_any(device)) {
        check(library.reset_peaks(pool), "resetPeakStats");
    }
    std::lock_guard<std::mutex> locked(lock_);
    peaks_[device] = DeviceStats();
}

double Allocator::getMemoryFraction(DeviceIndex device) {
    const auto pool = pool_if_any(device);
    uint64_t limit = VRAMPOOL_UNLIMITED, free = 0, total = 0;
    if (pool == 0) {
        return 1.0;
    }
    check(library.get_limit(pool, &limit), "getMemoryFraction");
    check(library.memory_info(pool, &free, &total), "getMemoryFraction");
    return limit >= total ? 1.0 : static_cast<double>(limit) / static_cast<double>(total);
}

void Allocator::setMemoryFraction(double fraction, DeviceIndex device) {
    TORCH_CHECK(0 <= fraction && fraction <= 1, "invalid fraction: ", fraction, ". Please set within [0, 1].");
    checked("setMemoryFraction", [&] { library.torch_memory_fraction(fraction, device); });
}

void Allocator::cacheInfo(DeviceIndex device, size_t *largest) {
    vrampool_pool pool = 0;
    check(library.torch_pool(device, &pool), "cacheInfo");
    const auto stats = stats_of(pool);
    uint64_t free = 0, total = 0;
    check(library.memory_info(pool, &free, &total), "cacheInfo");
    const auto room = stats.limit_bytes - std::min(stats.limit_bytes, stats.reserved_bytes);
    // As PyTorch's own: a number to begin with stays where it is larger.
    uint64_t most = *largest == 0 ? std::min(free, room) : *largest;
    uint64_t run = 0, end = 0;
    for (const auto &span : spans_of(device, false)) {
        const bool is_idle = !span.is_live && pool_of(span) == MempoolId_t{0, 0};
        run = is_idle ? (span.address == end ? run + span.bytes : span.bytes) : 0;
        end = span.address + span.bytes;
        most = std::max(most, run);
    }
    *largest = most;
}

Spans Allocator::all_spans(DeviceIndex device) const {
    auto spans = spans_of(device, false);
    foreign_.add_spans(device, spans);
    return spans;
}

#if TORCH_MINOR >= 10
std::vector<Torch::StreamSegmentSize> Allocator::getExpandableSegmentSizes(DeviceIndex device) {
    std::map<cudaStream_t, size_t> sizes;
    for (const auto &segment : snapshot_of({0, 0}, false).segments) {
        if (segment.device == device && segment.is_expandable) {
            sizes[static_cast<cudaStream_t>(segment.stream)] += segment.total_size;
        }
    }
    std::vector<Torch::StreamSegmentSize> listed;
    for (const auto &[stream, size] : sizes) {
        listed.emplace_back(stream, false, size);
    }
    return listed;
}
#endif

Torch::SnapshotInfo Allocator::snapshot(
#if TORCH_MINOR >= 8
    MempoolId_t id
#endif
#if TORCH_MINOR >= 11
    , bool includes_traces
#endif
) {
#if TORCH_MINOR < 8
    const MempoolId_t id = {0, 0};
#endif
#if TORCH_MINOR < 11
    const bool includes_traces = true;
#endif
    return snapshot_of(id, includes_traces);
}

Torch::SnapshotInfo Allocator::snapshot_of(MempoolId_t id, bool includes_traces) {
    Torch::SnapshotInfo snapshot = {};
    for (int number = 0; number < devices_; ++number) {
        const auto device = static_cast<DeviceIndex>(number);
        uint64_t segment_of = 0, end = 0, active = 0;
        look_at_segments(device);
        for (const auto &span : all_spans(device)) {
            active += span.is_live ? span.bytes : 0;
            if (id != MempoolId_t{0, 0} && pool_of(span) != id) {
                continue;
            }
            auto &segments = snapshot.segments;
            // Memory of one segment and one pool in a row.
            if (segments.empty() || segment_of != span.segment || end != span.address ||
                segments.back().owner_private_pool_id != pool_of(span) || segments.back().device != device) {
                segments.emplace_back();
                segments.back().device = device;
                segments.back().address = span.address;
                segments.back().owner_private_pool_id = pool_of(span);
                segments.back().is_expandable = span.is_virtual != 0;
#if TORCH_MINOR >= 11
                segments.back().registration_counter = registration_of(device, span.segment);
#endif
                segment_of = span.segment;
            }
            auto &segment = segments.back();
            end = span.address + span.bytes;
            segment.total_size += span.bytes;
            segment.is_large = segment.total_size > LARGEST_SMALL;
            segment.blocks.emplace_back();
            auto &block = segment.blocks.back();
            block.size = span.bytes;
            if (!span.is_live) {
                continue;
            }
            segment.allocated_size += span.bytes;
            segment.active_size += span.bytes;
            segment.requested_size += span.requested;
            segment.stream = reinterpret_cast<cudaStream_t>(span.stream);
            block.requested_size = span.requested;
            block.allocated = block.active = true;
            block.context_when_allocated = context_of(reinterpret_cast<void *>(span.address));
        }
        if (isHistoryEnabled()) {
            record(TraceEntry::SNAPSHOT, device, 0, active, nullptr, id, nullptr);
        }
        snapshot.device_traces.push_back(includes_traces ? traces_of(device) : std::vector<TraceEntry>());
    }
    snapshot.external_annotations = annotations();
    c10::ApproximateClockToUnixTimeConverter clock;
    auto nanoseconds = clock.makeConverter();
    auto convert = [&](auto &entry) { entry.time_.t_ = nanoseconds(entry.time_.approx_t_) / 1000; };
    for (auto &traces : snapshot.device_traces) {
        std::for_each(traces.begin(), traces.end(), convert);
    }
    std::for_each(snapshot.external_annotations.begin(), snapshot.external_annotations.end(), convert);
    snapshot.config_metadata.expandable_segments = true;
    snapshot.config_metadata.last_allocator_settings = "vrampool";
    return snapshot;
}

} // namespace vrampool
