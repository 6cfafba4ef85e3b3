// What PyTorch does with the symbols: it catches its own exceptions, and hands over a std::function.
// Compiled and run by tests/c_program.rs, with libc10.so of PyTorch's or one made of fake_c10.cpp.

#include "c10.h"
#include <vrampool.h>

#include <cstring>
#include <dlfcn.h>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <typeinfo>
#include <unistd.h>
#include <utility>

#include "check.h"

typedef void *Stream;
typedef std::pair<unsigned long long, unsigned long long> MempoolId;
// As PyTorch declares them.
typedef void Begin(int, MempoolId, std::function<bool(Stream)>);
typedef void End(int, MempoolId);

static const size_t MIB = size_t(1) << 20;
static const size_t PAGE = 2 * MIB;

struct Tracked {
    static int alive;
    Tracked() { alive++; }
    Tracked(const Tracked &) { alive++; }
    ~Tracked() { alive--; }
};
int Tracked::alive = 0;

static void test_exceptions() {
    CHECK(vrampool_torch_throws() == 1);
    CHECK(vrampool_torch_configure("device=host; limit=32MiB") == VRAMPOOL_OK);
    for (int round = 0; round < 3; round++) {
        bool caught = false;
        Tracked tracked;
        try {
            vrampool_torch_alloc(100 * MIB, 0, nullptr);
        } catch (const c10::OutOfMemoryError &error) {
            caught = true;
            CHECK(typeid(error) == typeid(c10::OutOfMemoryError));
            std::string text = error.what_without_backtrace();
            CHECK(text.find("CUDA out of memory. Tried to allocate 100.00 MiB") == 0);
            CHECK(text.find("raise `limit`") != std::string::npos);
            CHECK(text == vrampool_last_error());
            CHECK(std::string(error.what()).find(text) != std::string::npos);
        }
        CHECK(caught);
        // And on with less.
        void *address = vrampool_torch_alloc(8 * MIB, 0, nullptr);
        CHECK(address != nullptr);
        vrampool_torch_free(address, 8 * MIB, 0, nullptr);
    }
    CHECK(Tracked::alive == 0);
    // Other failures are not an out-of-memory.
    bool caught = false;
    try {
        vrampool_torch_alloc(1, 0, &caught);
    } catch (const c10::OutOfMemoryError &) {
        CHECK(!"a wrong stream");
    } catch (const c10::Error &error) {
        caught = true;
        CHECK(std::strstr(error.what(), "stream") != nullptr);
    }
    CHECK(caught);
    // As std::exception, on another thread too.
    std::thread([] {
        bool caught = false;
        try {
            vrampool_torch_alloc(size_t(1) << 62, 0, nullptr);
        } catch (const std::exception &error) {
            caught = std::strlen(error.what()) > 0;
        }
        CHECK(caught);
    }).join();
    // Below PyTorch's own allocator null is what it takes; and Python calls these, through which nothing may be thrown.
    for (auto *alloc : {vrampool_segment_alloc, vrampool_torch_alloc_or_null}) {
        vrampool_clear_error();
        CHECK(alloc(size_t(1) << 62, 0, nullptr) == nullptr);
        CHECK(vrampool_last_error_code() != VRAMPOOL_OK);
    }
    CHECK(vrampool_torch_shutdown() == VRAMPOOL_OK);
}

static void test_filters() {
    CHECK(vrampool_torch_configure("device=host") == VRAMPOOL_OK);
    // By their addresses, as Python hands them over.
    Begin *begin = reinterpret_cast<Begin *>(dlsym(RTLD_DEFAULT, "vrampool_torch_begin_allocate_to_pool"));
    End *end = reinterpret_cast<End *>(dlsym(RTLD_DEFAULT, "vrampool_torch_end_allocate_to_pool"));
    End *release = reinterpret_cast<End *>(dlsym(RTLD_DEFAULT, "vrampool_torch_release_pool"));
    CHECK(begin && end && release);
    vrampool_pool pool = 0;
    CHECK(vrampool_torch_pool(0, &pool) == VRAMPOOL_OK);
    vrampool_stream captured = nullptr;
    CHECK(vrampool_stream_create(pool, &captured) == VRAMPOOL_OK);
    auto private_bytes = [&] {
        vrampool_stats stats;
        stats.struct_size = sizeof stats;
        CHECK(vrampool_get_stats(pool, &stats) == VRAMPOOL_OK);
        return stats.private_bytes;
    };
    const MempoolId id(1, 2);
    {
        // Larger than what a function keeps in itself.
        auto asked = std::make_shared<int>(0);
        Tracked tracked;
        struct { char more[64]; } ballast = {};
        begin(0, id, [asked, tracked, ballast, captured](Stream stream) {
            (void)tracked, (void)ballast;
            ++*asked;
            return stream == captured;
        });
        CHECK(Tracked::alive == 2);
        void *outside = vrampool_torch_alloc(MIB, 0, nullptr);
        CHECK(*asked == 1 && private_bytes() == 0);
        void *inside = vrampool_torch_alloc(MIB, 0, captured);
        CHECK(*asked == 2 && private_bytes() == PAGE);
        vrampool_torch_free(outside, MIB, 0, nullptr);
        vrampool_torch_free(inside, MIB, 0, captured);
        end(0, id);
        CHECK(Tracked::alive == 1 && private_bytes() == PAGE);
        vrampool_torch_free(vrampool_torch_alloc(MIB, 0, captured), MIB, 0, captured);
        CHECK(*asked == 2);
    }
    CHECK(Tracked::alive == 0);
    // A small one, an empty one, and one that throws: what it throws arrives.
    begin(0, id, [](Stream) { return true; });
    void *address = vrampool_torch_alloc(MIB, 0, captured);
    CHECK(private_bytes() == PAGE);
    vrampool_torch_free(address, MIB, 0, captured);
    end(0, id);
    begin(0, id, std::function<bool(Stream)>());
    vrampool_torch_free(vrampool_torch_alloc(MIB, 0, captured), MIB, 0, captured);
    CHECK(private_bytes() == PAGE);
    end(0, id);
    begin(0, id, [](Stream) -> bool { throw 42; });
    int thrown = 0;
    try {
        vrampool_torch_alloc(MIB, 0, captured);
    } catch (int what) {
        thrown = what;
    }
    CHECK(thrown == 42);
    thrown = 0;
    try {
        // Nothing is left locked.
        vrampool_torch_alloc(MIB, 0, captured);
    } catch (int what) {
        thrown = what;
    }
    CHECK(thrown == 42);
    end(0, id);
    // One that itself takes memory of the library, which is no graph's: it is not asked about that.
    int asked = 0;
    begin(0, id, [&asked, captured](Stream stream) {
        ++asked;
        void *own = vrampool_torch_alloc(MIB, 0, stream);
        CHECK(own != nullptr);
        vrampool_torch_free(own, MIB, 0, stream);
        vrampool_stats stats;
        stats.struct_size = sizeof stats;
        vrampool_pool pool = 0;
        CHECK(vrampool_torch_pool(0, &pool) == VRAMPOOL_OK);
        CHECK(vrampool_get_stats(pool, &stats) == VRAMPOOL_OK && stats.private_bytes == PAGE);
        return stream == captured;
    });
    // Where it waits for itself the program ends.
    alarm(10);
    vrampool_torch_free(vrampool_torch_alloc(MIB, 0, captured), MIB, 0, captured);
    CHECK(asked == 1);
    vrampool_torch_free(vrampool_torch_alloc(MIB, 0, nullptr), MIB, 0, nullptr);
    CHECK(asked == 2);
    end(0, id);
    alarm(0);
    for (int begun = 0; begun < 5; ++begun) {
        CHECK(private_bytes() == PAGE);
        release(0, id);
    }
    CHECK(private_bytes() == 0);
    CHECK(vrampool_stream_destroy(pool, captured) == VRAMPOOL_OK);
    CHECK(vrampool_torch_shutdown() == VRAMPOOL_OK);
}

int main() {
    test_exceptions();
    test_filters();
    puts("all is well");
    return 0;
}
