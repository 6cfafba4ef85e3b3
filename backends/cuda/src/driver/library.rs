//! The driver's library, opened and looked up once, at run time.
//!
//! Every function is looked up before any is called, so a driver that lacks one is an error here and a panic
//! nowhere. One that lacks a function of virtual memory serves without it. Results are numbers, not an
//! enumeration: a newer driver may return values that no current list has.

use super::layouts::{AccessDescriptor, PhysicalProperties, PoolProperties};
use cudarc::driver::sys::{CUcontext, CUdeviceptr, CUevent, CUmemoryPool, CUstream};
use libloading::Library as File;
use std::error::Error;
use std::ffi::{CStr, c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;
use vrampool_backend::{BackendError, fork};

/// The name of this backend.
pub(crate) const BACKEND: &str = "cuda";

/// The oldest driver that has every function below, as `cuDriverGetVersion` says it: CUDA 12.0.
const OLDEST_VERSION: c_int = 12_000;

/// Functions that the `cudarc` crate calls where this crate uses it, and would panic without.
const NEEDED_BY_CUDARC: [&str; 5] =
    ["cuStreamCreate", "cuStreamDestroy_v2", "cuLaunchKernel", "cuModuleLoadData", "cuModuleGetFunction"];

macro_rules! functions {
    ($(#[$doc:meta])* $table:ident: $($name:ident($($argument:ty),*);)*) => {
        $(#[$doc])*
        #[allow(non_snake_case, reason = "the driver's own names")]
        pub(crate) struct $table {
            $(pub(super) $name: unsafe extern "system" fn($($argument),*) -> c_int,)*
        }

        impl $table {
            fn look_up(file: &File) -> Result<Self, BackendError> {
                Ok(Self {
                    $($name: {
                        let symbol = concat!(stringify!($name), "\0");
                        // SAFETY: the type is the one that CUDA's header gives this function, in every
                        // version that has a function of this name: a changed one gets a new suffix.
                        *unsafe { file.get(symbol.as_bytes()) }.map_err(|_| missing(stringify!($name)))?
                    },)*
                })
            }
        }
    };
}

/// The driver's library.
pub(crate) struct Library {
    functions: Functions,
    virtual_memory: Option<VirtualFunctions>,
    peers: Option<PeerFunctions>,
    green: Option<GreenFunctions>,
    /// Never closed: the functions are in it.
    _file: File,
}

impl Deref for Library {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        &self.functions
    }
}

functions! {
    /// Functions of every driver, under the driver's own names.
    Functions:
    cuInit(c_uint);
    cuDriverGetVersion(*mut c_int);
    cuGetErrorName(c_int, *mut *const c_char);
    cuGetErrorString(c_int, *mut *const c_char);
    cuDeviceGet(*mut c_int, c_int);
    cuDeviceGetCount(*mut c_int);
    cuDeviceGetName(*mut c_char, c_int, c_int);
    cuDeviceGetUuid_v2(*mut [u8; 16], c_int);
    cuDeviceTotalMem_v2(*mut usize, c_int);
    cuDeviceGetAttribute(*mut c_int, c_int, c_int);
    cuDevicePrimaryCtxRetain(*mut CUcontext, c_int);
    cuDevicePrimaryCtxRelease_v2(c_int);
    cuCtxGetCurrent(*mut CUcontext);
    cuCtxPushCurrent_v2(CUcontext);
    cuCtxPopCurrent_v2(*mut CUcontext);
    cuCtxSetCurrent(CUcontext);
    cuCtxSynchronize();
    cuThreadExchangeStreamCaptureMode(*mut c_int);
    cuMemGetInfo_v2(*mut usize, *mut usize);
    cuMemAlloc_v2(*mut CUdeviceptr, usize);
    cuMemAllocManaged(*mut CUdeviceptr, usize, c_uint);
    cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
    cuMemFree_v2(CUdeviceptr);
    cuMemFreeHost(*mut c_void);
    cuMemAllocFromPoolAsync(*mut CUdeviceptr, usize, CUmemoryPool, CUstream);
    cuMemFreeAsync(CUdeviceptr, CUstream);
    cuMemPoolCreate(*mut CUmemoryPool, *const PoolProperties);
    cuMemPoolDestroy(CUmemoryPool);
    cuMemPoolGetAttribute(CUmemoryPool, c_int, *mut c_void);
    cuMemPoolSetAttribute(CUmemoryPool, c_int, *mut c_void);
    cuMemPoolTrimTo(CUmemoryPool, usize);
    cuDeviceGetDefaultMemPool(*mut CUmemoryPool, c_int);
    cuDeviceGetMemPool(*mut CUmemoryPool, c_int);
    cuMemcpyAsync(CUdeviceptr, CUdeviceptr, usize, CUstream);
    cuMemsetD8Async(CUdeviceptr, c_uchar, usize, CUstream);
    cuStreamGetCtx(CUstream, *mut CUcontext);
    cuStreamGetId(CUstream, *mut c_ulonglong);
    cuStreamIsCapturing(CUstream, *mut c_int);
    cuStreamQuery(CUstream);
    cuStreamGetCaptureInfo_v2(
        CUstream, *mut c_int, *mut c_ulonglong, *mut *mut c_void, *mut *const *mut c_void, *mut usize
    );
    cuStreamSynchronize(CUstream);
    cuStreamWaitEvent(CUstream, CUevent, c_uint);
    cuEventCreate(*mut CUevent, c_uint);
    cuEventDestroy_v2(CUevent);
    cuEventQuery(CUevent);
    cuEventRecord(CUevent, CUstream);
}

functions! {
    /// Separate address space and physical memory, which a driver may lack.
    VirtualFunctions:
    cuMemGetAllocationGranularity(*mut usize, *const PhysicalProperties, c_int);
    cuMemAddressReserve(*mut CUdeviceptr, usize, usize, CUdeviceptr, c_ulonglong);
    cuMemAddressFree(CUdeviceptr, usize);
    cuMemCreate(*mut u64, usize, *const PhysicalProperties, c_ulonglong);
    cuMemRelease(u64);
    cuMemMap(CUdeviceptr, usize, usize, u64, c_ulonglong);
    cuMemUnmap(CUdeviceptr, usize);
    cuMemSetAccess(CUdeviceptr, usize, *const AccessDescriptor, usize);
    cuMemGetAllocationPropertiesFromHandle(*mut PhysicalProperties, u64);
    cuMemExportToShareableHandle(*mut c_void, u64, c_int, c_ulonglong);
    cuMemImportFromShareableHandle(*mut u64, *mut c_void, c_int);
}

functions! {
    /// Devices that use each other's memory.
    PeerFunctions:
    cuDeviceCanAccessPeer(*mut c_int, c_int, c_int);
    cuDevicePrimaryCtxGetState(c_int, *mut c_uint, *mut c_int);
}

functions! {
    /// Streams of green contexts, from CUDA 12.5 on.
    GreenFunctions:
    cuStreamGetCtx_v2(CUstream, *mut CUcontext, *mut *mut c_void);
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").field("file", &self._file).finish_non_exhaustive()
    }
}

impl Library {
    /// The library, opened and initialised by the first call that succeeds.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] without a driver, with one that is too old or broken, or without a
    /// device.
    pub(crate) fn get() -> Result<&'static Self, BackendError> {
        static LIBRARY: OnceLock<Library> = OnceLock::new();
        fork::check()?;
        if let Some(library) = LIBRARY.get() {
            return Ok(library);
        }
        let library = Self::open()?;
        Ok(LIBRARY.get_or_init(|| library))
    }

    pub(crate) fn has_virtual_memory(&self) -> bool {
        self.virtual_memory.is_some()
    }

    /// # Errors
    /// [`BackendError::Unsupported`] where the driver lacks one of them.
    pub(super) fn virtual_memory(&self) -> Result<&VirtualFunctions, BackendError> {
        self.virtual_memory.as_ref().ok_or(BackendError::unsupported("virtual memory"))
    }

    pub(super) fn peers(&self) -> Option<&PeerFunctions> {
        self.peers.as_ref()
    }

    pub(super) fn green(&self) -> Option<&GreenFunctions> {
        self.green.as_ref()
    }

    fn open() -> Result<Self, BackendError> {
        let names: &[&str] = if cfg!(windows) { &["nvcuda.dll"] } else { &["libcuda.so.1", "libcuda.so"] };
        let mut reasons = Vec::new();
        let file = names.iter().find_map(|name| {
            // SAFETY: loading runs the initialisers of the file that the system finds under the name of
            // NVIDIA's driver, which have no requirements of their own; the system's administrator vouches
            // for the file.
            let opened = unsafe { File::new(*name) };
            // The system's text is the source: the error's own is "dlopen failed".
            let reason = |error: libloading::Error| error.source().unwrap_or(&error).to_string();
            opened.map_err(|error| reasons.push(reason(error))).ok()
        });
        let file =
            file.ok_or_else(|| unavailable(format!("no NVIDIA driver was found ({})", reasons.join("; "))))?;
        for symbol in NEEDED_BY_CUDARC {
            // SAFETY: the symbol is only looked up; its type does not matter, because nothing calls it.
            unsafe { file.get::<*const c_void>(symbol.as_bytes()) }.map_err(|_| missing(symbol))?;
        }
        let (functions, virtual_memory) = (Functions::look_up(&file)?, VirtualFunctions::look_up(&file).ok());
        let (peers, green) = (PeerFunctions::look_up(&file).ok(), GreenFunctions::look_up(&file).ok());
        let library = Self { functions, virtual_memory, peers, green, _file: file };
        // SAFETY: `cuInit` may be called at any time, by any thread, any number of times; its flags must be
        // 0.
        library.start("cuInit", unsafe { (library.cuInit)(0) })?;
        let mut version = 0;
        // SAFETY: it writes one number to `version`, which lives here.
        library.start("cuDriverGetVersion", unsafe { (library.cuDriverGetVersion)(&raw mut version) })?;
        if version < OLDEST_VERSION {
            let (major, minor) = (version / 1000, version % 1000 / 10);
            return Err(unavailable(format!(
                "the driver is one of CUDA {major}.{minor}; install 12.0 or newer"
            )));
        }
        let mut devices = 0;
        // SAFETY: it writes one number to `devices`, which lives here.
        library.start("cuDeviceGetCount", unsafe { (library.cuDeviceGetCount)(&raw mut devices) })?;
        if devices < 1 {
            return Err(unavailable("the driver sees no device; is CUDA_VISIBLE_DEVICES empty?".into()));
        }
        Ok(library)
    }

    fn start(&self, call: &str, code: c_int) -> Result<(), BackendError> {
        match code {
            0 => Ok(()),
            _ => {
                Err(unavailable(format!("{call} answers {} ({code}): {}", self.name(code), self.text(code))))
            }
        }
    }

    /// The driver's name of a result, such as `CUDA_ERROR_INVALID_VALUE`.
    pub(crate) fn name(&self, code: c_int) -> String {
        self.describe(self.cuGetErrorName, code).unwrap_or_else(|| "an unknown error".into())
    }

    /// The driver's explanation of a result.
    pub(crate) fn text(&self, code: c_int) -> String {
        self.describe(self.cuGetErrorString, code).unwrap_or_else(|| "the driver has no text for it".into())
    }

    fn describe(
        &self,
        ask: unsafe extern "system" fn(c_int, *mut *const c_char) -> c_int,
        code: c_int,
    ) -> Option<String> {
        let mut text = std::ptr::null();
        // SAFETY: both functions passed here take any number and write one pointer to `text`, which lives
        // here.
        let answer = unsafe { ask(code, &raw mut text) };
        if answer != 0 || text.is_null() {
            return None;
        }
        // SAFETY: on success the driver's pointer, which is not null, leads to a string constant of its own
        // that ends with a zero and lives as long as the library, which is never closed.
        Some(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
    }
}

fn unavailable(reason: String) -> BackendError {
    BackendError::unavailable(BACKEND, reason)
}

fn missing(symbol: &str) -> BackendError {
    unavailable(format!("the driver has no {symbol}; install one of CUDA 12.0 or newer"))
}
