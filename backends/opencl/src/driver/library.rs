//! The driver's library, opened and looked up once, at run time.
//!
//! Opens the loader that finds the vendors' drivers. The functions of OpenCL 1.2 are looked up
//! before any is called, so a library that lacks one is an error here and a panic nowhere. Those of 2.0 that
//! share addresses with the host are called only for devices that say that they can.

use libloading::Library as File;
use opencl_sys::{
    cl_bool, cl_command_queue, cl_context, cl_device_id, cl_event, cl_int, cl_kernel, cl_mem, cl_platform_id,
    cl_program, cl_uint, cl_ulong,
};
use std::error::Error;
use std::ffi::{c_char, c_void};
use std::fmt;
use std::sync::OnceLock;
use vrampool_backend::BackendError;

/// The name of this backend.
pub(crate) const BACKEND: &str = "opencl";

/// Names the library, or several separated by `;`, as it does to the `cl3` crate.
const PATH_VARIABLE: &str = "OPENCL_DYLIB_PATH";

macro_rules! functions {
    ($table:ident: $($name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// The driver's functions, under the driver's own names.
        #[allow(non_snake_case, reason = "the driver's own names")]
        pub(super) struct $table {
            $(pub(super) $name: unsafe extern "system" fn($($argument),*) $(-> $result)?,)*
        }

        impl $table {
            fn look_up(file: &File) -> Result<Self, BackendError> {
                Ok(Self {
                    $($name: {
                        let symbol = concat!(stringify!($name), "\0");
                        // SAFETY: the type is the one that the standard's header gives this function, in
                        // every version that has it.
                        *unsafe { file.get(symbol.as_bytes()) }.map_err(|_| missing(stringify!($name)))?
                    },)*
                })
            }
        }
    };
}

type Notify = Option<unsafe extern "C" fn(*const c_char, *const c_void, usize, *mut c_void)>;
type Built = Option<unsafe extern "C" fn(cl_program, *mut c_void)>;

functions! {
    Core:
    clGetPlatformIDs(cl_uint, *mut cl_platform_id, *mut cl_uint) -> cl_int;
    clGetPlatformInfo(cl_platform_id, cl_uint, usize, *mut c_void, *mut usize) -> cl_int;
    clGetDeviceIDs(cl_platform_id, cl_ulong, cl_uint, *mut cl_device_id, *mut cl_uint) -> cl_int;
    clGetDeviceInfo(cl_device_id, cl_uint, usize, *mut c_void, *mut usize) -> cl_int;
    clRetainDevice(cl_device_id) -> cl_int;
    clReleaseDevice(cl_device_id) -> cl_int;
    clCreateContext(*const isize, cl_uint, *const cl_device_id, Notify, *mut c_void,
        *mut cl_int) -> cl_context;
    clRetainContext(cl_context) -> cl_int;
    clReleaseContext(cl_context) -> cl_int;
    clGetContextInfo(cl_context, cl_uint, usize, *mut c_void, *mut usize) -> cl_int;
    clCreateCommandQueue(cl_context, cl_device_id, cl_ulong, *mut cl_int) -> cl_command_queue;
    clRetainCommandQueue(cl_command_queue) -> cl_int;
    clReleaseCommandQueue(cl_command_queue) -> cl_int;
    clGetCommandQueueInfo(cl_command_queue, cl_uint, usize, *mut c_void, *mut usize) -> cl_int;
    clFlush(cl_command_queue) -> cl_int;
    clFinish(cl_command_queue) -> cl_int;
    clCreateBuffer(cl_context, cl_ulong, usize, *mut c_void, *mut cl_int) -> cl_mem;
    clReleaseMemObject(cl_mem) -> cl_int;
    clGetMemObjectInfo(cl_mem, cl_uint, usize, *mut c_void, *mut usize) -> cl_int;
    clEnqueueReadBuffer(cl_command_queue, cl_mem, cl_bool, usize, usize, *mut c_void, cl_uint,
        *const cl_event, *mut cl_event) -> cl_int;
    clEnqueueWriteBuffer(cl_command_queue, cl_mem, cl_bool, usize, usize, *const c_void, cl_uint,
        *const cl_event, *mut cl_event) -> cl_int;
    clEnqueueFillBuffer(cl_command_queue, cl_mem, *const c_void, usize, usize, usize, cl_uint,
        *const cl_event, *mut cl_event) -> cl_int;
    clEnqueueCopyBuffer(cl_command_queue, cl_mem, cl_mem, usize, usize, usize, cl_uint, *const cl_event,
        *mut cl_event) -> cl_int;
    clEnqueueMapBuffer(cl_command_queue, cl_mem, cl_bool, cl_ulong, usize, usize, cl_uint, *const cl_event,
        *mut cl_event, *mut cl_int) -> *mut c_void;
    clEnqueueUnmapMemObject(cl_command_queue, cl_mem, *mut c_void, cl_uint, *const cl_event,
        *mut cl_event) -> cl_int;
    clEnqueueMigrateMemObjects(cl_command_queue, cl_uint, *const cl_mem, cl_ulong, cl_uint, *const cl_event,
        *mut cl_event) -> cl_int;
    clEnqueueNDRangeKernel(cl_command_queue, cl_kernel, cl_uint, *const usize, *const usize, *const usize,
        cl_uint, *const cl_event, *mut cl_event) -> cl_int;
    clEnqueueMarkerWithWaitList(cl_command_queue, cl_uint, *const cl_event, *mut cl_event) -> cl_int;
    clEnqueueBarrierWithWaitList(cl_command_queue, cl_uint, *const cl_event, *mut cl_event) -> cl_int;
    clWaitForEvents(cl_uint, *const cl_event) -> cl_int;
    clGetEventInfo(cl_event, cl_uint, usize, *mut c_void, *mut usize) -> cl_int;
    clReleaseEvent(cl_event) -> cl_int;
    clCreateProgramWithSource(cl_context, cl_uint, *const *const c_char, *const usize,
        *mut cl_int) -> cl_program;
    clBuildProgram(cl_program, cl_uint, *const cl_device_id, *const c_char, Built, *mut c_void) -> cl_int;
    clGetProgramBuildInfo(cl_program, cl_device_id, cl_uint, usize, *mut c_void, *mut usize) -> cl_int;
    clReleaseProgram(cl_program) -> cl_int;
    clCreateKernel(cl_program, *const c_char, *mut cl_int) -> cl_kernel;
    clReleaseKernel(cl_kernel) -> cl_int;
    clSetKernelArg(cl_kernel, cl_uint, usize, *const c_void) -> cl_int;
}

functions! {
    Shared:
    clSVMAlloc(cl_context, cl_ulong, usize, cl_uint) -> *mut c_void;
    clSVMFree(cl_context, *mut c_void);
    clEnqueueSVMMemcpy(cl_command_queue, cl_bool, *mut c_void, *const c_void, usize, cl_uint, *const cl_event,
        *mut cl_event) -> cl_int;
    clEnqueueSVMMemFill(cl_command_queue, *mut c_void, *const c_void, usize, usize, cl_uint, *const cl_event,
        *mut cl_event) -> cl_int;
    clEnqueueSVMMap(cl_command_queue, cl_bool, cl_ulong, *mut c_void, usize, cl_uint, *const cl_event,
        *mut cl_event) -> cl_int;
    clEnqueueSVMUnmap(cl_command_queue, *mut c_void, cl_uint, *const cl_event, *mut cl_event) -> cl_int;
}

/// The library and its functions.
pub(crate) struct Library {
    pub(super) core: Core,
    /// `None` with a loader that is older than OpenCL 2.0.
    pub(super) shared: Option<Shared>,
    /// Never closed: the functions are in it.
    file: File,
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Library").field("file", &self.file).finish_non_exhaustive()
    }
}

impl Library {
    /// The library, opened by the first call that succeeds.
    ///
    /// # Errors
    /// [`BackendError::Unavailable`] without one, or with one that is older than OpenCL 1.2.
    pub(crate) fn get() -> Result<&'static Self, BackendError> {
        static LIBRARY: OnceLock<Library> = OnceLock::new();
        if let Some(library) = LIBRARY.get() {
            return Ok(library);
        }
        let library = Self::open()?;
        Ok(LIBRARY.get_or_init(|| library))
    }

    /// Whether it has the functions of memory whose addresses host and device share.
    pub(crate) fn shares_addresses(&self) -> bool {
        self.shared.is_some()
    }

    fn open() -> Result<Self, BackendError> {
        let paths = std::env::var(PATH_VARIABLE).ok().filter(|paths| !paths.is_empty());
        let names: Vec<&str> = match &paths {
            Some(paths) => paths.split(';').collect(),
            None if cfg!(windows) => vec!["OpenCL.dll"],
            None if cfg!(target_os = "macos") => vec!["/System/Library/Frameworks/OpenCL.framework/OpenCL"],
            None => vec!["libOpenCL.so.1", "libOpenCL.so"],
        };
        let mut reasons = Vec::new();
        let file = names.into_iter().find_map(|name| {
            // SAFETY: loading runs the initialisers of the file that the system finds under the name of
            // OpenCL's loader, or that the variable names. They have no requirements of their own; the code that
            // runs the program vouches for it.
            unsafe { File::new(name) }.map_err(|error| reasons.push(reason(&error))).ok()
        });
        let file =
            file.ok_or_else(|| unavailable(format!("no OpenCL library was found ({})", reasons.join("; "))))?;
        Ok(Self { core: Core::look_up(&file)?, shared: Shared::look_up(&file).ok(), file })
    }
}

/// Returns the system's message.
fn reason(error: &libloading::Error) -> String {
    error.source().map_or_else(|| error.to_string(), ToString::to_string)
}

pub(super) fn unavailable(reason: impl Into<String>) -> BackendError {
    BackendError::unavailable(BACKEND, reason)
}

fn missing(symbol: &str) -> BackendError {
    unavailable(format!("the OpenCL library has no {symbol}; install one of OpenCL 1.2 or newer"))
}
