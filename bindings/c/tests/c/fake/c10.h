// The classes of PyTorch's libc10 that matter here, with the same names, order and kinds of members: what its headers say.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

namespace c10 {

struct SourceLocation {
    const char *function;
    const char *file;
    uint32_t line;
};

template <typename T> class LazyValue;

class __attribute__((visibility("default"))) Error : public std::exception {
    std::string msg_;
    std::vector<std::string> context_;
    std::shared_ptr<const LazyValue<std::string>> backtrace_;
    void *what_;
    std::string what_without_backtrace_;
    const void *caller_;

  public:
    Error(SourceLocation place, std::string msg);
    const char *what() const noexcept override;
    virtual const char *what_without_backtrace() const noexcept { return what_without_backtrace_.c_str(); }
};

class __attribute__((visibility("default"))) OutOfMemoryError : public Error {
    using Error::Error;
};

} // namespace c10
