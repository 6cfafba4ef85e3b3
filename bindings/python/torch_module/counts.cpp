#include "counts.h"

#include <memory>
#include <mutex>
#include <set>

namespace vrampool {

namespace {

struct All {
    std::mutex lock;
    std::set<Counts *> of_threads;
    // Of threads that ended.
    std::array<BySize, Counts::DEVICES> ended;
};

// Never destroyed: threads may end after the module's own variables.
All &all() {
    static All *all = new All;
    return *all;
}

void add(BySize &sum, const std::array<Counts::Cell, 2> &cells) {
    for (size_t size = 0; size < cells.size(); ++size) {
        sum[size].requests += cells[size].requests.load(std::memory_order_relaxed);
        sum[size].bytes += cells[size].bytes.load(std::memory_order_relaxed);
    }
}

// Ends a thread's counts.
struct AtEnd {
    Counts *counts = nullptr;

    ~AtEnd() {
        counts_of_thread = nullptr;
        if (counts == nullptr) {
            return;
        }
        std::lock_guard<std::mutex> locked(all().lock);
        all().of_threads.erase(counts);
        for (size_t device = 0; device < Counts::DEVICES; ++device) {
            add(all().ended[device], counts->cells[device]);
        }
        delete counts;
        is_ending = true;
    }

    static thread_local bool is_ending;
};

thread_local bool AtEnd::is_ending = false;

} // namespace

__thread Counts *counts_of_thread = nullptr;

Counts *make_counts() {
    if (AtEnd::is_ending) {
        return nullptr;
    }
    static thread_local AtEnd at_end;
    at_end.counts = new Counts;
    std::lock_guard<std::mutex> locked(all().lock);
    all().of_threads.insert(at_end.counts);
    return counts_of_thread = at_end.counts;
}

BySize counted(c10::DeviceIndex device) {
    std::lock_guard<std::mutex> locked(all().lock);
    BySize sum = all().ended[counted_as(device)];
    for (const Counts *counts : all().of_threads) {
        add(sum, counts->cells[counted_as(device)]);
    }
    return sum;
}

} // namespace vrampool
