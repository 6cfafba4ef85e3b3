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

thread_local bool is_ending = false;

struct OfThread {
    Counts counts;

    OfThread() {
        std::lock_guard<std::mutex> locked(all().lock);
        all().of_threads.insert(&counts);
    }

    ~OfThread() {
        counts_of_thread = nullptr;
        is_ending = true;
        std::lock_guard<std::mutex> locked(all().lock);
        all().of_threads.erase(&counts);
        for (size_t device = 0; device < Counts::DEVICES; ++device) {
            add(all().ended[device], counts.cells[device]);
        }
    }
};

} // namespace

thread_local Counts *counts_of_thread = nullptr;

Counts *make_counts() {
    if (is_ending) {
        return nullptr;
    }
    static thread_local OfThread of_thread;
    counts_of_thread = &of_thread.counts;
    return counts_of_thread;
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
