// As much of CUDA's runtime as PyTorch's libc10_cuda calls in these tests, over the driver, which may be simulated.
#include <cuda.h>

#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>

extern "C" CUresult cuCtxGetStreamPriorityRange(int *, int *);

namespace {

thread_local int current = 0;

// Makes the current device's primary context current.
int enter() {
    static std::mutex lock;
    static std::map<int, CUcontext> contexts;
    std::lock_guard<std::mutex> locked(lock);
    auto &context = contexts[current];
    if (context == nullptr) {
        CUdevice device = 0;
        int code = cuInit(0);
        code = code != 0 ? code : cuDeviceGet(&device, current);
        code = code != 0 ? code : cuDevicePrimaryCtxRetain(&context, device);
        if (code != 0) {
            return code;
        }
    }
    return cuCtxSetCurrent(context);
}

template <typename Act>
int in_context(Act act) {
    int code = enter();
    return code != 0 ? code : static_cast<int>(act());
}

CUdeviceptr at(const void *address) {
    return reinterpret_cast<CUdeviceptr>(address);
}

} // namespace

#define RUNTIME extern "C" __attribute__((visibility("default"))) int

RUNTIME cudaGetDevice(int *device) {
    *device = current;
    return 0;
}
RUNTIME cudaSetDevice(int device) {
    current = device;
    return enter();
}
RUNTIME cudaGetDeviceCount(int *count) {
    int code = cuInit(0);
    return code != 0 ? code : static_cast<int>(cuDeviceGetCount(count));
}
RUNTIME cudaMemGetInfo(size_t *free, size_t *total) {
    return in_context([&] { return cuMemGetInfo(free, total); });
}
RUNTIME cudaMalloc(void **address, size_t bytes) {
    return in_context([&] { return cuMemAlloc(reinterpret_cast<CUdeviceptr *>(address), bytes); });
}
RUNTIME cudaFree(void *address) {
    return in_context([&] { return address == nullptr ? CUDA_SUCCESS : cuMemFree(at(address)); });
}
RUNTIME cudaMemcpy(void *to, const void *from, size_t bytes, int) {
    return in_context([&] { return cuMemcpy(at(to), at(from), bytes); });
}
RUNTIME cudaMemcpyAsync(void *to, const void *from, size_t bytes, int, CUstream stream) {
    return in_context([&] { return cuMemcpyAsync(at(to), at(from), bytes, stream); });
}
RUNTIME cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t bytes, CUstream stream) {
    return in_context([&] { return cuMemcpyAsync(at(to), at(from), bytes, stream); });
}
RUNTIME cudaDeviceSynchronize() {
    return in_context([] { return cuCtxSynchronize(); });
}
RUNTIME cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    return cuDeviceCanAccessPeer(can, device, peer);
}
RUNTIME cudaDeviceEnablePeerAccess(int, unsigned) {
    return 0;
}
RUNTIME cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -3;
    return 0;
}
RUNTIME cudaStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority) {
    return in_context([&] { return cuStreamCreateWithPriority(stream, flags, priority); });
}
RUNTIME cudaStreamSynchronize(CUstream stream) {
    return in_context([&] { return cuStreamSynchronize(stream); });
}
RUNTIME cudaStreamQuery(CUstream stream) {
    return in_context([&] { return cuStreamQuery(stream); });
}
RUNTIME cudaStreamIsCapturing(CUstream stream, CUstreamCaptureStatus *status) {
    return in_context([&] { return cuStreamIsCapturing(stream, status); });
}
RUNTIME cudaStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
    return in_context([&] { return cuStreamWaitEvent(stream, event, flags); });
}
RUNTIME cudaEventCreateWithFlags(CUevent *event, unsigned flags) {
    return in_context([&] { return cuEventCreate(event, flags); });
}
RUNTIME cudaEventDestroy(CUevent event) {
    return cuEventDestroy(event);
}
RUNTIME cudaEventRecord(CUevent event, CUstream stream) {
    return in_context([&] { return cuEventRecord(event, stream); });
}
RUNTIME cudaEventQuery(CUevent event) {
    return cuEventQuery(event);
}
RUNTIME cudaEventSynchronize(CUevent event) {
    return cuEventSynchronize(event);
}
// The beginning of a `cudaDeviceProp`: its memory is all that PyTorch's own allocator reads.
static int properties_of(char *properties) {
    std::memset(properties, 0, 512);
    const size_t total = size_t(1) << 40;
    std::memcpy(properties + 288, &total, sizeof total);
    return 0;
}
RUNTIME cudaGetDeviceProperties(char *properties, int) {
    return properties_of(properties);
}
RUNTIME cudaGetDeviceProperties_v2(char *properties, int) {
    return properties_of(properties);
}
RUNTIME cudaGetLastError() {
    return 0;
}
RUNTIME cudaDriverGetVersion(int *version) {
    return cuDriverGetVersion(version);
}
RUNTIME cudaThreadExchangeStreamCaptureMode(int *) {
    return 0;
}
extern "C" __attribute__((visibility("default"))) const char *cudaGetErrorString(int) {
    return "an error of the tests' runtime";
}
extern "C" __attribute__((visibility("default"))) const char *cudaGetErrorName(int) {
    return "error";
}

// Not supported (801): nothing here asks for them.
#define ABSENT(name)                                                                                                              \
    RUNTIME name(...) {                                                                                                           \
        return 801;                                                                                                               \
    }
ABSENT(cudaDeviceGetDefaultMemPool)
ABSENT(cudaDeviceGetGraphMemAttribute)
ABSENT(cudaDeviceSetGraphMemAttribute)
ABSENT(cudaEventElapsedTime)
ABSENT(cudaFreeAsync)
ABSENT(cudaGetDriverEntryPoint)
ABSENT(cudaGetDriverEntryPointByVersion)
ABSENT(cudaGraphAddEmptyNode)
ABSENT(cudaGraphNodeGetDependencies)
ABSENT(cudaGraphNodeGetType)
ABSENT(cudaIpcCloseMemHandle)
ABSENT(cudaIpcGetMemHandle)
ABSENT(cudaIpcOpenMemHandle)
ABSENT(cudaMallocAsync)
ABSENT(cudaMemPoolGetAttribute)
ABSENT(cudaMemPoolSetAccess)
ABSENT(cudaMemPoolSetAttribute)
ABSENT(cudaMemPoolTrimTo)
ABSENT(cudaStreamGetCaptureInfo)
ABSENT(cudaStreamGetCaptureInfo_v2)
ABSENT(cudaStreamUpdateCaptureDependencies)
