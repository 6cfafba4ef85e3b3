// The owner of memory serves descriptors on an abstract socket: a request is a range of addresses, whose physical memory the driver knows
// by the address. No descriptor stays open, and no right to trace another process is needed.
#include "ipc.h"

#include <cerrno>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <random>
#include <sstream>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

#include <cuda.h>

namespace vrampool {

namespace {

#define VRAMPOOL_DRIVER_FUNCTIONS(F)                                                                                              \
    F(cuMemRetainAllocationHandle) F(cuMemRelease) F(cuMemExportToShareableHandle) F(cuMemImportFromShareableHandle)              \
    F(cuMemAddressReserve) F(cuMemAddressFree) F(cuMemMap) F(cuMemUnmap) F(cuMemSetAccess)

struct Driver {
#define VRAMPOOL_MEMBER(name) decltype(&::name) name;
    VRAMPOOL_DRIVER_FUNCTIONS(VRAMPOOL_MEMBER)
#undef VRAMPOOL_MEMBER

    Driver() {
        void *file = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
        TORCH_CHECK(file != nullptr, "vrampool: the CUDA driver is missing");
#define VRAMPOOL_FIND(function)                                                                                                   \
    function = reinterpret_cast<decltype(function)>(dlsym(file, #function));                                                      \
    TORCH_CHECK(function != nullptr, "vrampool: the CUDA driver has no " #function);
        VRAMPOOL_DRIVER_FUNCTIONS(VRAMPOOL_FIND)
#undef VRAMPOOL_FIND
    }
};

const Driver &driver() {
    static const Driver driver;
    return driver;
}

void driver_check(CUresult code, const char *call) {
    TORCH_CHECK(code == CUDA_SUCCESS, "vrampool: ", call, " failed with code ", static_cast<int>(code));
}

// The least unit of physical memory on every device.
constexpr uint64_t PAGE = 2 << 20;
// The most descriptors of one message (SCM_MAX_FD).
constexpr size_t MOST = 250;
constexpr char VERSION = 'v';

struct Piece {
    uint64_t address;
    uint64_t bytes;
};

// What is mapped at a page; 0 for nothing. Retained: release it.
CUmemGenericAllocationHandle retain(uint64_t address) {
    CUmemGenericAllocationHandle handle = 0;
    return driver().cuMemRetainAllocationHandle(&handle, reinterpret_cast<void *>(address)) == CUDA_SUCCESS ? handle : 0;
}

// The same physical memory is behind both pages.
bool is_same(uint64_t one, uint64_t other) {
    auto first = retain(one), second = retain(other);
    for (auto handle : {first, second}) {
        if (handle != 0) {
            driver().cuMemRelease(handle);
        }
    }
    return first != 0 && first == second;
}

// The pieces of physical memory behind a range.
std::vector<Piece> pieces_of(uint64_t address, uint64_t bytes) {
    uint64_t start = address / PAGE * PAGE;
    while (start >= PAGE && is_same(start - PAGE, start)) {
        start -= PAGE;
    }
    std::vector<Piece> pieces;
    while (start < address + bytes) {
        uint64_t end = start + PAGE;
        while (is_same(start, end)) {
            end += PAGE;
        }
        pieces.push_back({start, end - start});
        start = end;
    }
    return pieces;
}

// Closes them.
struct Descriptors {
    std::vector<int> numbers;
    explicit Descriptors(std::vector<int> numbers = {}) : numbers(std::move(numbers)) {}
    // The other one has none then.
    Descriptors(Descriptors &&) = default;
    ~Descriptors() {
        for (int number : numbers) {
            close(number);
        }
    }
};

// One byte, and room for descriptors.
struct Message : msghdr {
    char one = 1;
    iovec part = {&one, 1};
    std::vector<char> control;
    explicit Message(size_t descriptors) : msghdr(), control(CMSG_SPACE(descriptors * sizeof(int))) {
        msg_iov = &part;
        msg_iovlen = 1;
        msg_control = control.data();
        msg_controllen = control.size();
    }
};

sockaddr_un place_of(const std::string &name, socklen_t &size) {
    sockaddr_un place = {};
    place.sun_family = AF_UNIX;
    // A name that begins with 0 is no file.
    std::memcpy(place.sun_path + 1, name.data(), std::min(name.size(), sizeof place.sun_path - 1));
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return place;
}

bool is_of_this_user(int socket) {
    ucred peer = {};
    socklen_t size = sizeof peer;
    return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && (peer.uid == geteuid() || peer.uid == 0);
}

// Serves one request: the addresses of pieces come, their descriptors go. A failure ends the connection, which the other side sees.
void serve(int socket) {
    Descriptors connection({socket});
    std::vector<uint64_t> addresses(MOST);
    timeval patience = {10, 0};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    auto read = recv(socket, addresses.data(), addresses.size() * sizeof(uint64_t), 0);
    if (read <= 0 || read % sizeof(uint64_t) != 0 || !is_of_this_user(socket)) {
        return;
    }
    addresses.resize(static_cast<size_t>(read) / sizeof(uint64_t));
    Descriptors exported;
    auto &numbers = exported.numbers;
    for (auto address : addresses) {
        int number = -1;
        auto handle = retain(address);
        if (handle != 0) {
            driver().cuMemExportToShareableHandle(&number, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
            driver().cuMemRelease(handle);
        }
        if (number < 0) {
            break;
        }
        numbers.push_back(number);
    }
    if (numbers.size() == addresses.size()) {
        Message message(numbers.size());
        cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(numbers.size() * sizeof(int));
        std::memcpy(CMSG_DATA(header), numbers.data(), numbers.size() * sizeof(int));
        sendmsg(socket, &message, MSG_NOSIGNAL);
    }
}

// The name of this process's socket. It is served from the first call on, in a forked child by a socket of its own.
std::string serving() {
    static std::mutex lock;
    static std::string name;
    static pid_t owner = 0;
    std::lock_guard<std::mutex> locked(lock);
    if (owner == getpid()) {
        return name;
    }
    driver();
    std::random_device random;
    std::ostringstream text;
    text << "vrampool-" << getpid() << '-' << std::hex << random() << random();
    socklen_t size = 0;
    auto place = place_of(text.str(), size);
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    TORCH_CHECK(listener >= 0 && bind(listener, reinterpret_cast<sockaddr *>(&place), size) == 0 && listen(listener, 128) == 0,
                "vrampool: no socket for memory of other processes: ", std::strerror(errno));
    std::thread([listener] {
        for (;;) {
            int connection = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
            if (connection >= 0) {
                serve(connection);
            } else if (errno != EINTR && errno != ECONNABORTED) {
                break;
            }
        }
        close(listener);
    }).detach();
    name = text.str();
    owner = getpid();
    return name;
}

// The descriptors of these pieces, from their owner.
Descriptors descriptors_of(const std::string &name, const std::vector<uint64_t> &addresses) {
    const int own = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    Descriptors connection({own});
    socklen_t size = 0;
    auto place = place_of(name, size);
    timeval patience = {10, 0};
    setsockopt(own, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    TORCH_CHECK(connect(own, reinterpret_cast<sockaddr *>(&place), size) == 0,
                "vrampool: the process that shared the memory does not serve it any more: ", std::strerror(errno));
    auto length = addresses.size() * sizeof(uint64_t);
    TORCH_CHECK(send(own, addresses.data(), length, MSG_NOSIGNAL) == static_cast<ssize_t>(length),
                "vrampool: the process that shared the memory ended");
    Message message(MOST);
    ssize_t read = recvmsg(own, &message, MSG_CMSG_CLOEXEC);
    Descriptors received;
    auto &numbers = received.numbers;
    if (read > 0) {
        for (cmsghdr *header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
            if (header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS) {
                numbers.resize((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
                std::memcpy(numbers.data(), CMSG_DATA(header), numbers.size() * sizeof(int));
            }
        }
    }
    TORCH_CHECK(numbers.size() == addresses.size(),
                "vrampool: the memory of another process cannot be had: it was freed, its kind of memory is not shareable "
                "(source=virtual is), or it belongs to another user");
    return received;
}

// Memory of another process, mapped here.
struct Mapped {
    uint64_t address = 0;
    uint64_t bytes = 0;
    uint64_t mapped = 0;
    // Opened by the runtime, as memory of PyTorch's own allocator.
    bool is_of_runtime = false;

    ~Mapped() {
        if (is_of_runtime) {
            cudaDeviceSynchronize();
            cudaIpcCloseMemHandle(reinterpret_cast<void *>(address));
            return;
        }
        if (mapped > 0) {
            // No work may use it any more.
            cudaDeviceSynchronize();
            driver().cuMemUnmap(address, mapped);
        }
        if (address != 0) {
            driver().cuMemAddressFree(address, bytes);
        }
    }
};

std::shared_ptr<Mapped> map(const std::string &name, const std::vector<Piece> &pieces, DeviceIndex device) {
    auto memory = std::make_shared<Mapped>();
    for (const auto &piece : pieces) {
        memory->bytes += piece.bytes;
    }
    // The primary context is there, and current, from here on.
    C10_CUDA_CHECK(cudaDeviceSynchronize());
    CUdeviceptr start = 0;
    driver_check(driver().cuMemAddressReserve(&start, memory->bytes, 0, 0, 0), "cuMemAddressReserve");
    memory->address = start;
    for (size_t first = 0; first < pieces.size(); first += MOST) {
        size_t last = std::min(first + MOST, pieces.size());
        std::vector<uint64_t> addresses;
        for (size_t piece = first; piece < last; ++piece) {
            addresses.push_back(pieces[piece].address);
        }
        const auto received = descriptors_of(name, addresses);
        for (size_t piece = first; piece < last; ++piece) {
            auto *number = reinterpret_cast<void *>(static_cast<intptr_t>(received.numbers[piece - first]));
            CUmemGenericAllocationHandle handle = 0;
            auto code = driver().cuMemImportFromShareableHandle(&handle, number, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
            if (code == CUDA_SUCCESS) {
                code = driver().cuMemMap(start + memory->mapped, pieces[piece].bytes, 0, handle, 0);
                driver().cuMemRelease(handle);
            }
            driver_check(code, "an import of another process's memory");
            memory->mapped += pieces[piece].bytes;
        }
    }
    CUmemAccessDesc access = {};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = device;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    driver_check(driver().cuMemSetAccess(start, memory->bytes, &access, 1), "cuMemSetAccess");
    return memory;
}

// Memory of cudaMalloc, as a process without vrampool names it: a version, a type, and the runtime's handle.
std::shared_ptr<Mapped> open_of_runtime(const std::string &handle) {
    cudaIpcMemHandle_t of_runtime;
    if (handle.size() != 2 + sizeof of_runtime || handle[1] != 'c') {
        return nullptr;
    }
    std::memcpy(&of_runtime, handle.data() + 2, sizeof of_runtime);
    void *address = nullptr;
    C10_CUDA_CHECK(cudaIpcOpenMemHandle(&address, of_runtime, cudaIpcMemLazyEnablePeerAccess));
    auto memory = std::make_shared<Mapped>();
    memory->address = reinterpret_cast<uint64_t>(address);
    memory->is_of_runtime = true;
    return memory;
}

} // namespace

Torch::ShareableHandle share(void *address, size_t bytes) {
    auto start = reinterpret_cast<uint64_t>(address);
    auto page = retain(start / PAGE * PAGE);
    TORCH_CHECK(page != 0, "vrampool: memory of this pool cannot be shared with another process: it is not virtual (source=virtual is)");
    driver().cuMemRelease(page);
    auto pieces = pieces_of(start, bytes);
    std::ostringstream text;
    text << VERSION << ' ' << serving() << ' ' << pieces.size();
    for (const auto &piece : pieces) {
        text << ' ' << piece.address << ' ' << piece.bytes;
    }
    return {static_cast<ptrdiff_t>(start - pieces.front().address), text.str()};
}

std::shared_ptr<void> open_shared(const std::string &handle, DeviceIndex device) {
    static std::mutex lock;
    static std::map<std::string, std::weak_ptr<Mapped>> known;
    std::lock_guard<std::mutex> locked(lock);
    auto &before = known[handle + ' ' + std::to_string(device)];
    auto memory = before.lock();
    if (memory == nullptr && (memory = open_of_runtime(handle)) != nullptr) {
        before = memory;
    } else if (memory == nullptr) {
        std::istringstream text(handle);
        char version = 0;
        std::string name;
        size_t count = 0;
        text >> version >> name >> count;
        TORCH_CHECK(text && version == VERSION && count > 0 && count < (1u << 20),
                    "vrampool: the memory was shared by another allocator; install vrampool in both processes");
        std::vector<Piece> pieces(count);
        for (auto &piece : pieces) {
            text >> piece.address >> piece.bytes;
        }
        TORCH_CHECK(static_cast<bool>(text), "vrampool: the name of shared memory is not complete");
        memory = map(name, pieces, device);
        before = memory;
        for (auto entry = known.begin(); entry != known.end();) {
            entry = entry->second.expired() ? known.erase(entry) : std::next(entry);
        }
    }
    return {memory, reinterpret_cast<void *>(memory->address)};
}

} // namespace vrampool
