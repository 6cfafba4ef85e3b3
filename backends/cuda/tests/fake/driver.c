/* A driver of one device whose memory is the host's: enough to open it, and all of virtual memory. What it refuses is chosen
 * when it is compiled. It says what it was asked for, and ends the program where addresses go while something is mapped. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_PERMITTED = 800, NOT_SUPPORTED = 801 };
enum { FILE_DESCRIPTOR = 1, FABRIC = 8 };

static const uint64_t GRANULE = 2 << 20, TOTAL = 1 << 30;
static uint64_t used;
static __thread void *contexts[16];
static __thread int depth;

int cuInit(unsigned flags) { return 0; }
int cuDriverGetVersion(int *version) { *version = 13000; return 0; }
int cuGetErrorName(int code, const char **text) { *text = "CUDA_ERROR_FAKE"; return 0; }
int cuGetErrorString(int code, const char **text) { *text = "as it was compiled"; return 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return 0; }
int cuDeviceGetCount(int *count) { *count = 1; return 0; }
int cuDeviceGetName(char *name, int length, int device) { strcpy(name, "Fake"); return 0; }
int cuDeviceGetUuid_v2(char *uuid, int device) { memset(uuid, 7, 16); return 0; }
int cuDeviceTotalMem_v2(size_t *bytes, int device) { *bytes = TOTAL; return 0; }
int cuDeviceGetAttribute(int *value, int attribute, int device) { *value = 1; return 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = &used; return 0; }
int cuCtxGetCurrent(void **context) { *context = contexts[depth]; return 0; }
int cuCtxSetCurrent(void *context) { contexts[depth] = context; return 0; }
int cuCtxPushCurrent_v2(void *context) { contexts[++depth] = context; return 0; }
int cuCtxPopCurrent_v2(void **context) { *context = contexts[depth--]; return 0; }
int cuMemGetInfo_v2(size_t *free, size_t *total) { *free = TOTAL - used; *total = TOTAL; return 0; }

#ifndef WITHOUT_VIRTUAL_MEMORY

struct properties {
    int kind, shareable, location, device;
    void *windows;
    uint8_t compression, rdma;
    uint16_t usage;
    uint8_t rest[4];
};
struct access { int location, device, flags; };
struct memory { int file, shareable, handles; uint64_t bytes; };
static struct { char *start; struct memory *memory; } mappings[64];

static int refuses(const struct properties *asked) {
    if (asked->kind != 1 || asked->location != 1 || asked->device != 0) return INVALID_VALUE;
    if (asked->shareable == FABRIC) return NOT_PERMITTED;
#ifdef REFUSES_RDMA
    if (asked->rdma) return REFUSES_RDMA;
#endif
    return 0;
}

int cuMemGetAllocationGranularity(size_t *bytes, const struct properties *asked, int option) {
    int code = refuses(asked);
    *bytes = GRANULE;
    return code == OUT_OF_MEMORY ? 0 : code;
}

int cuMemAddressReserve(void **start, size_t bytes, size_t align, uint64_t at, uint64_t flags) {
    char *more = mmap(0, bytes + GRANULE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (more == MAP_FAILED) return OUT_OF_MEMORY;
    *start = (char *)(((uintptr_t)more + GRANULE - 1) / GRANULE * GRANULE);
    return 0;
}

int cuMemAddressFree(char *start, size_t bytes) {
    for (int i = 0; i < 64; i++)
        if (mappings[i].memory && mappings[i].start >= start && mappings[i].start < start + bytes) abort();
    printf("addresses are free\n");
    return munmap(start, bytes);
}

static void give_back(struct memory *memory) {
    if (--memory->handles) return;
    used -= memory->bytes;
    close(memory->file);
    free(memory);
}

int cuMemCreate(struct memory **handle, size_t bytes, const struct properties *asked, uint64_t flags) {
    int code = refuses(asked);
    printf("%s rdma=%d shareable=%d\n", code ? "refused" : "created", asked->rdma, asked->shareable);
    if (code) return code;
    if (used + bytes > TOTAL) return OUT_OF_MEMORY;
    *handle = malloc(sizeof **handle);
    **handle = (struct memory){ memfd_create("memory", 0), asked->shareable, 1, bytes };
    used += bytes;
    return ftruncate((*handle)->file, bytes);
}

int cuMemRelease(struct memory *memory) { give_back(memory); return 0; }

int cuMemMap(char *start, size_t bytes, size_t offset, struct memory *memory, uint64_t flags) {
#ifdef REFUSES_MAPPING
    return NOT_SUPPORTED;
#endif
    if (bytes != memory->bytes) return INVALID_VALUE;
    for (int i = 0; i < 64; i++) {
        if (mappings[i].memory) continue;
        mappings[i].start = start;
        mappings[i].memory = memory;
        memory->handles++;
        mmap(start, bytes, PROT_NONE, MAP_SHARED | MAP_FIXED, memory->file, 0);
        return 0;
    }
    return NOT_SUPPORTED;
}

int cuMemUnmap(char *start, size_t bytes) {
    printf("unmapped %zu\n", bytes / GRANULE);
    for (int i = 0; i < 64; i++) {
        if (!mappings[i].memory || mappings[i].start < start || mappings[i].start >= start + bytes) continue;
        give_back(mappings[i].memory);
        mappings[i].memory = 0;
    }
    mmap(start, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    return 0;
}

int cuMemSetAccess(char *start, size_t bytes, const struct access *access, size_t count) {
#ifdef REFUSES_ACCESS
    return NOT_SUPPORTED;
#endif
    if (count != 1 || access->location != 1 || access->device != 0 || access->flags != 3) return INVALID_VALUE;
    return mprotect(start, bytes, PROT_READ | PROT_WRITE);
}

int cuMemGetAllocationPropertiesFromHandle(struct properties *properties, struct memory *memory) {
    int device = 0;
#ifdef IMPORTS_FROM_ANOTHER_DEVICE
    device = 1;
#endif
    *properties = (struct properties){ 1, memory->shareable, 1, device };
    return 0;
}

int cuMemExportToShareableHandle(int *handle, struct memory *memory, int kind, uint64_t flags) {
    if (memory->shareable != kind || kind != FILE_DESCRIPTOR) return INVALID_VALUE;
    *handle = dup(memory->file);
    return 0;
}

int cuMemImportFromShareableHandle(struct memory **handle, void *from, int kind) {
    struct stat file;
    if (kind != FILE_DESCRIPTOR || fstat((int)(uintptr_t)from, &file)) return INVALID_VALUE;
    *handle = malloc(sizeof **handle);
    **handle = (struct memory){ dup((int)(uintptr_t)from), kind, 1, file.st_size };
    used += file.st_size;
    return 0;
}

#endif
