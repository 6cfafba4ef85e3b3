//! The driver's functions by their own names, looked up one by one, and the numbers of their results.
//!
//! A fact is about misuse as often as about use, so these methods are not marked unsafe: each fact runs in a
//! process of its own, and a crash there is a result like any other. Nothing but a fact calls them.

use libloading::Library;
use std::ffi::{c_char, c_void};
use std::fmt;

/// The result of a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Code(pub(crate) i32);

macro_rules! codes {
    ($($name:ident = $number:literal,)*) => {
        $(
            #[allow(dead_code, reason = "results are printed by name, also those that no fact expects")]
            pub(crate) const $name: Code = Code($number);
        )*

        impl fmt::Display for Code {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.0 {
                    $($number => write!(f, concat!(stringify!($name), " (", $number, ")")),)*
                    number => write!(f, "code {number}"),
                }
            }
        }
    };
}

codes! {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NOT_INITIALIZED = 3,
    DEINITIALIZED = 4,
    NO_DEVICE = 100,
    INVALID_DEVICE = 101,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    CONTEXT_ALREADY_CURRENT = 202,
    MAP_FAILED = 205,
    ALREADY_MAPPED = 208,
    NO_BINARY_FOR_GPU = 209,
    NOT_MAPPED = 211,
    PEER_ACCESS_UNSUPPORTED = 217,
    INVALID_PTX = 218,
    INVALID_SOURCE = 300,
    OPERATING_SYSTEM = 304,
    INVALID_HANDLE = 400,
    ILLEGAL_STATE = 401,
    NOT_FOUND = 500,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    LAUNCH_OUT_OF_RESOURCES = 701,
    PEER_ACCESS_ALREADY_ENABLED = 704,
    PEER_ACCESS_NOT_ENABLED = 705,
    PRIMARY_CONTEXT_ACTIVE = 708,
    CONTEXT_IS_DESTROYED = 709,
    HOST_MEMORY_ALREADY_REGISTERED = 712,
    HOST_MEMORY_NOT_REGISTERED = 713,
    LAUNCH_FAILED = 719,
    NOT_PERMITTED = 800,
    NOT_SUPPORTED = 801,
    CAPTURE_UNSUPPORTED = 900,
    CAPTURE_INVALIDATED = 901,
    CAPTURE_MERGE = 902,
    CAPTURE_UNMATCHED = 903,
    CAPTURE_UNJOINED = 904,
    CAPTURE_ISOLATION = 905,
    CAPTURE_IMPLICIT = 906,
    CAPTURED_EVENT = 907,
    CAPTURE_WRONG_THREAD = 908,
    UNKNOWN = 999,
    MISSING_FUNCTION = -1,
}

/// `CUmemLocation`: a device.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Location {
    pub(crate) kind: i32,
    pub(crate) id: i32,
}

/// `CUmemAllocationProp`
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PhysicalProperties {
    pub(crate) kind: i32,
    pub(crate) handle_types: i32,
    pub(crate) location: Location,
    pub(crate) windows: usize,
    pub(crate) flags: [u8; 8],
}

/// `CUmemAccessDesc`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Access {
    pub(crate) location: Location,
    pub(crate) flags: i32,
}

/// `CUmemPoolProps`
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolProperties {
    pub(crate) kind: i32,
    pub(crate) handle_types: i32,
    pub(crate) location: Location,
    pub(crate) windows: usize,
    pub(crate) max_size: usize,
    pub(crate) usage: u16,
    pub(crate) reserved: [u8; 54],
}

pub(crate) type HostFunction = extern "C" fn(*mut c_void);
pub(crate) type Callback = extern "C" fn(usize, i32, *mut c_void);

macro_rules! functions {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        /// Handles are numbers here, because a fact passes wrong ones, too.
        #[allow(non_snake_case, reason = "the driver's own names")]
        pub(crate) struct Driver {
            $($name: Option<unsafe extern "C" fn($($type),*) -> i32>,)*
            file: Library,
        }

        #[allow(non_snake_case, reason = "the driver's own names")]
        #[allow(clippy::too_many_arguments, reason = "the driver's own arguments")]
        impl Driver {
            fn look_up(file: Library) -> Self {
                Self {
                    $(
                        // SAFETY: the type is the one of CUDA's header, handles and pointers as numbers of
                        // their size.
                        $name: unsafe { file.get(concat!(stringify!($name), "\0").as_bytes()) }.ok().map(|found| *found),
                    )*
                    file,
                }
            }

            $(pub(crate) fn $name(&self, $($argument: $type),*) -> Code {
                match self.$name {
                    // SAFETY: not in general, which is the point: see the module's documentation.
                    Some(function) => Code(unsafe { function($($argument),*) }),
                    None => MISSING_FUNCTION,
                }
            })*
        }
    };
}

functions! {
    cuInit(flags: u32);
    cuDriverGetVersion(version: *mut i32);
    cuGetErrorName(code: i32, text: *mut *const c_char);
    cuGetErrorString(code: i32, text: *mut *const c_char);
    cuDeviceGet(device: *mut i32, ordinal: i32);
    cuDeviceGetCount(count: *mut i32);
    cuDeviceGetName(name: *mut c_char, len: i32, device: i32);
    cuDeviceGetUuid_v2(uuid: *mut [u8; 16], device: i32);
    cuDeviceTotalMem_v2(bytes: *mut usize, device: i32);
    cuDeviceGetAttribute(value: *mut i32, attribute: i32, device: i32);
    cuDeviceCanAccessPeer(can: *mut i32, device: i32, peer: i32);
    cuDevicePrimaryCtxRetain(context: *mut usize, device: i32);
    cuDevicePrimaryCtxRelease_v2(device: i32);
    cuDevicePrimaryCtxReset_v2(device: i32);
    cuDevicePrimaryCtxGetState(device: i32, flags: *mut u32, active: *mut i32);
    cuDevicePrimaryCtxSetFlags_v2(device: i32, flags: u32);
    cuDeviceGetDefaultMemPool(pool: *mut usize, device: i32);
    cuDeviceGetMemPool(pool: *mut usize, device: i32);
    cuDeviceSetMemPool(device: i32, pool: usize);
    cuCtxCreate_v2(context: *mut usize, flags: u32, device: i32);
    cuCtxDestroy_v2(context: usize);
    cuCtxGetCurrent(context: *mut usize);
    cuCtxSetCurrent(context: usize);
    cuCtxPushCurrent_v2(context: usize);
    cuCtxPopCurrent_v2(context: *mut usize);
    cuCtxGetDevice(device: *mut i32);
    cuCtxSynchronize();
    cuCtxGetStreamPriorityRange(least: *mut i32, greatest: *mut i32);
    cuCtxEnablePeerAccess(peer: usize, flags: u32);
    cuCtxDisablePeerAccess(peer: usize);
    cuStreamCreate(stream: *mut usize, flags: u32);
    cuStreamCreateWithPriority(stream: *mut usize, flags: u32, priority: i32);
    cuStreamDestroy_v2(stream: usize);
    cuStreamQuery(stream: usize);
    cuStreamSynchronize(stream: usize);
    cuStreamWaitEvent(stream: usize, event: usize, flags: u32);
    cuStreamGetId(stream: usize, id: *mut u64);
    cuStreamGetCtx(stream: usize, context: *mut usize);
    cuStreamGetFlags(stream: usize, flags: *mut u32);
    cuStreamGetPriority(stream: usize, priority: *mut i32);
    cuStreamAddCallback(stream: usize, callback: Callback, data: *mut c_void, flags: u32);
    cuStreamAttachMemAsync(stream: usize, pointer: u64, bytes: usize, flags: u32);
    cuLaunchHostFunc(stream: usize, function: HostFunction, data: *mut c_void);
    cuEventCreate(event: *mut usize, flags: u32);
    cuEventDestroy_v2(event: usize);
    cuEventQuery(event: usize);
    cuEventSynchronize(event: usize);
    cuEventRecord(event: usize, stream: usize);
    cuEventRecordWithFlags(event: usize, stream: usize, flags: u32);
    cuEventElapsedTime(milliseconds: *mut f32, from: usize, to: usize);
    cuMemGetInfo_v2(free: *mut usize, total: *mut usize);
    cuMemAlloc_v2(pointer: *mut u64, bytes: usize);
    cuMemAllocManaged(pointer: *mut u64, bytes: usize, flags: u32);
    cuMemFree_v2(pointer: u64);
    cuMemHostAlloc(pointer: *mut u64, bytes: usize, flags: u32);
    cuMemFreeHost(pointer: u64);
    cuMemHostGetDevicePointer_v2(pointer: *mut u64, host: u64, flags: u32);
    cuMemHostGetFlags(flags: *mut u32, pointer: u64);
    cuMemHostRegister_v2(pointer: u64, bytes: usize, flags: u32);
    cuMemHostUnregister(pointer: u64);
    cuMemGetAddressRange_v2(start: *mut u64, bytes: *mut usize, pointer: u64);
    cuPointerGetAttribute(value: *mut u64, attribute: i32, pointer: u64);
    cuMemcpy(to: u64, from: u64, bytes: usize);
    cuMemcpyAsync(to: u64, from: u64, bytes: usize, stream: usize);
    cuMemcpyHtoD_v2(to: u64, from: *const u8, bytes: usize);
    cuMemcpyDtoH_v2(to: *mut u8, from: u64, bytes: usize);

    cuMemsetD8_v2(pointer: u64, value: u8, bytes: usize);
    cuMemsetD8Async(pointer: u64, value: u8, bytes: usize, stream: usize);
    cuMemsetD32_v2(pointer: u64, value: u32, count: usize);
    cuMemAllocAsync(pointer: *mut u64, bytes: usize, stream: usize);
    cuMemAllocFromPoolAsync(pointer: *mut u64, bytes: usize, pool: usize, stream: usize);
    cuMemFreeAsync(pointer: u64, stream: usize);
    cuMemPoolCreate(pool: *mut usize, properties: *const PoolProperties);
    cuMemPoolDestroy(pool: usize);
    cuMemPoolGetAttribute(pool: usize, attribute: i32, value: *mut u64);
    cuMemPoolSetAttribute(pool: usize, attribute: i32, value: *mut u64);
    cuMemPoolTrimTo(pool: usize, bytes: usize);
    cuMemPoolSetAccess(pool: usize, access: *const Access, count: usize);
    cuMemPoolGetAccess(flags: *mut i32, pool: usize, location: *mut Location);
    cuMemPoolExportToShareableHandle(shared: *mut i32, pool: usize, kind: i32, flags: u64);
    cuMemGetAllocationGranularity(bytes: *mut usize, properties: *const PhysicalProperties, option: i32);
    cuMemAddressReserve(pointer: *mut u64, bytes: usize, alignment: usize, address: u64, flags: u64);
    cuMemAddressFree(pointer: u64, bytes: usize);
    cuMemCreate(handle: *mut u64, bytes: usize, properties: *const PhysicalProperties, flags: u64);
    cuMemRelease(handle: u64);
    cuMemMap(pointer: u64, bytes: usize, offset: usize, handle: u64, flags: u64);
    cuMemUnmap(pointer: u64, bytes: usize);
    cuMemSetAccess(pointer: u64, bytes: usize, access: *const Access, count: usize);
    cuMemGetAccess(flags: *mut u64, location: *const Location, pointer: u64);
    cuMemRetainAllocationHandle(handle: *mut u64, pointer: u64);
    cuMemGetAllocationPropertiesFromHandle(properties: *mut PhysicalProperties, handle: u64);
    cuMemExportToShareableHandle(shared: *mut i32, handle: u64, kind: i32, flags: u64);
    cuMemImportFromShareableHandle(handle: *mut u64, shared: usize, kind: i32);
    cuThreadExchangeStreamCaptureMode(mode: *mut i32);
    cuStreamBeginCapture_v2(stream: usize, mode: i32);
    cuStreamEndCapture(stream: usize, graph: *mut usize);
    cuStreamIsCapturing(stream: usize, status: *mut i32);
    cuStreamGetCaptureInfo_v2(stream: usize, status: *mut i32, id: *mut u64, graph: *mut usize, dependencies: *mut *const usize, count: *mut usize);
    cuStreamUpdateCaptureDependencies(stream: usize, dependencies: *mut usize, count: usize, flags: u32);
    cuGraphCreate(graph: *mut usize, flags: u32);
    cuGraphDestroy(graph: usize);
    cuGraphGetNodes(graph: usize, nodes: *mut usize, count: *mut usize);
    cuGraphInstantiateWithFlags(program: *mut usize, graph: usize, flags: u64);
    cuGraphLaunch(program: usize, stream: usize);
    cuGraphUpload(program: usize, stream: usize);
    cuGraphExecDestroy(program: usize);
    cuModuleLoadData(module: *mut usize, image: *const c_char);
    cuModuleUnload(module: usize);
    cuModuleGetFunction(function: *mut usize, module: usize, name: *const c_char);
    cuLaunchKernel(function: usize, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32, block_y: u32, block_z: u32, shared: u32, stream: usize, parameters: *mut *mut c_void, extra: *mut *mut c_void);
}

impl Driver {
    pub(crate) fn open() -> Result<Self, String> {
        // SAFETY: loading runs the initialisers of the file that the system finds under the driver's name.
        let file = unsafe { Library::new("libcuda.so.1") }.map_err(|error| error.to_string())?;
        Ok(Self::look_up(file))
    }

    /// Whether this is the simulated driver.
    pub(crate) fn is_simulator(&self) -> bool {
        // SAFETY: the symbol is only looked up.
        unsafe { self.file.get::<*const c_void>(b"simulator_hold\0") }.is_ok()
    }
}
