// What stands for libc10.so where there is no PyTorch.
#include "c10.h"

namespace c10 {

Error::Error(SourceLocation place, std::string msg)
    : msg_(std::move(msg)), what_(nullptr), what_without_backtrace_(msg_), caller_(nullptr) {
    msg_ += std::string(" (") + place.function + " at " + place.file + ":" + std::to_string(place.line) + ")";
}

const char *Error::what() const noexcept { return msg_.c_str(); }

} // namespace c10
