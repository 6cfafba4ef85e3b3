// Requests since the beginning, by PyTorch's two sizes, counted by each thread without a lock.
#pragma once

#include <c10/core/Device.h>

#include <array>
#include <atomic>
#include <cstdint>

namespace vrampool {

// The largest request that PyTorch calls small.
constexpr size_t LARGEST_SMALL = 1 << 20;

struct Requested {
    uint64_t requests = 0;
    uint64_t bytes = 0;
};

// Small and large ones.
using BySize = std::array<Requested, 2>;

// What a thread counts. It alone writes. Those of a device are in one cache line.
struct alignas(64) Counts {
    // Devices beyond are counted with the last one.
    static constexpr size_t DEVICES = 16;
    struct Cell {
        std::atomic<uint64_t> requests{0}, bytes{0};
    };
    std::array<std::array<Cell, 2>, DEVICES> cells;
};

// Beside the thread's own data, where no function has to look it up or to initialize it. There is room for some hundred bytes of all
// modules, so the rest is on the heap.
[[gnu::tls_model("initial-exec")]] extern __thread Counts *counts_of_thread;

// Makes them, until the thread ends. Null if it is ending.
Counts *make_counts();

inline size_t counted_as(c10::DeviceIndex device) {
    return static_cast<size_t>(device) < Counts::DEVICES ? static_cast<size_t>(device) : Counts::DEVICES - 1;
}

inline void count(c10::DeviceIndex device, size_t bytes) {
    Counts *counts = counts_of_thread;
    if (C10_UNLIKELY(counts == nullptr) && (counts = make_counts()) == nullptr) {
        return;
    }
    auto &cell = counts->cells[counted_as(device)][bytes > LARGEST_SMALL];
    cell.requests.store(cell.requests.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    cell.bytes.store(cell.bytes.load(std::memory_order_relaxed) + bytes, std::memory_order_relaxed);
}

// All threads' together.
BySize counted(c10::DeviceIndex device);

} // namespace vrampool
