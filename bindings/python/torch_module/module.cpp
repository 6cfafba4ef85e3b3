// What the Python package calls.
#include "allocator.h"

#include <exception>

namespace vrampool {

Allocator *installed = nullptr;

} // namespace vrampool

// Makes vrampool PyTorch's allocator, by the C library at `path`. Returns null, or why not; then nothing has changed.
extern "C" __attribute__((visibility("default"))) const char *vrampool_torch_module_install(const char *path) {
    using namespace vrampool;
    static std::string failure;
    try {
        if (installed != nullptr) {
            return nullptr;
        }
        if (const char *reason = load_library(path)) {
            failure = reason;
            return failure.c_str();
        }
        auto *current = Torch::allocator.load();
        if (current != nullptr && current->initialized()) {
            return "PyTorch's allocator is in use already";
        }
        // Never destroyed: tensors may be freed after the module's own variables.
        installed = new Allocator;
        Torch::allocator.store(installed);
        // What torch.accelerator asks, from 2.9 on. The highest priority: from 2.14 on PyTorch's own has more than the lowest.
        c10::SetAllocator(c10::DeviceType::CUDA, installed, UINT8_MAX);
        return nullptr;
    } catch (const std::exception &error) {
        failure = error.what();
        return failure.c_str();
    }
}

// The minor version of PyTorch 2 that this is built for.
extern "C" __attribute__((visibility("default"))) int vrampool_torch_module_minor() {
    return TORCH_MINOR;
}
