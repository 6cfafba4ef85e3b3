// Device memory for another process of the same user: file descriptors of physical memory, passed over a socket.
#pragma once

#include "library.h"

namespace vrampool {

// A name by which another process can map the memory around an address, as long as the block there is live; and where in it the address
// is. Throws for memory that cannot be shared.
Torch::ShareableHandle share(void *address, size_t bytes);

// Maps memory of another process. The same name has the same memory as long as it is used.
std::shared_ptr<void> open_shared(const std::string &handle, DeviceIndex device);

} // namespace vrampool
