#include "library.h"

#include <cstdio>
#include <cstring>
#include <dlfcn.h>

namespace vrampool {

Library library;
Hot hot;

const char *load_library(const char *path) {
    void *file = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (file == nullptr) {
        return dlerror();
    }
#define VRAMPOOL_FIND(name)                                                                                                       \
    library.name = reinterpret_cast<decltype(library.name)>(dlsym(file, "vrampool_" #name));                                      \
    if (library.name == nullptr) {                                                                                                \
        return "vrampool_" #name " is missing";                                                                                   \
    }
    VRAMPOOL_FUNCTIONS(VRAMPOOL_FIND)
#undef VRAMPOOL_FIND
    hot.allocate = library.torch_alloc_or_null;
    hot.free_at = library.free_at;
    return nullptr;
}

void throw_failure(const char *call) {
    TORCH_CHECK(false, "vrampool: ", call, ": ", library.last_error());
}

vrampool_pool pool_if_any(DeviceIndex device) {
    char *json = nullptr;
    check(library.torch_pools(&json), "the pools of PyTorch's devices");
    vrampool_pool found = 0;
    for (const char *at = json; (at = std::strchr(at, '{')) != nullptr; ++at) {
        int number = -1;
        unsigned long long pool = 0;
        if (std::sscanf(at, "{\"device\":%d,\"pool\":%llu", &number, &pool) == 2 && number == device) {
            found = pool;
        }
    }
    library.string_free(json);
    return found;
}

vrampool_stats stats_of(vrampool_pool pool) {
    vrampool_stats stats = {};
    stats.struct_size = sizeof stats;
    if (pool != 0) {
        check(library.get_stats(pool, &stats), "statistics");
    }
    return stats;
}

Spans spans_of(DeviceIndex device, bool is_live_only) {
    Spans spans;
    auto add = [](void *user, const vrampool_torch_span *span) { static_cast<Spans *>(user)->push_back(*span); };
    check(library.torch_visit(device, is_live_only, add, &spans), "the memory of a device");
    return spans;
}

} // namespace vrampool
