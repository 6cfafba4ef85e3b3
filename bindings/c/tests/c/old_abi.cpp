// A PyTorch with the C++ ABI of before GCC 5: its exceptions cannot be made here. Callers get an error before it matters, and null.
// Compiled and run by tests/c_program.rs, with libc10.so made of fake/c10.cpp for that ABI.

#include "c10.h"
#include <vrampool.h>

#include <cstring>

#include "check.h"

int main() {
    // The library is there, and has the class.
    c10::Error error({"main", __FILE__, __LINE__}, "text");
    CHECK(std::strstr(error.what(), "text") != nullptr);
    CHECK(vrampool_torch_throws() == 0);
    CHECK(vrampool_torch_configure("device=host; limit=32MiB") == VRAMPOOL_OK);
    const size_t bytes = size_t(100) << 20;
    CHECK(vrampool_torch_alloc_or_null(bytes, 0, nullptr) == nullptr);
    CHECK(vrampool_last_error_code() == VRAMPOOL_ERROR_OUT_OF_MEMORY);
    CHECK(vrampool_torch_alloc(bytes, 0, nullptr) == nullptr);
    CHECK(std::strstr(vrampool_last_error(), "CUDA out of memory. Tried to allocate 100.00 MiB") != nullptr);
    CHECK(vrampool_torch_shutdown() == VRAMPOOL_OK);
    puts("all is well");
    return 0;
}
