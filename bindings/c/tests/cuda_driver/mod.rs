//! PyTorch's pool on a CUDA device, and the driver's own calls, which are PyTorch's kernels here.
#![allow(dead_code, reason = "each test file uses a part of it")]

use crate::calls::ok;
use libloading::Library;
use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError};
use vrampool_c::boundary::{Out, Text};
use vrampool_c::*;
use vrampool_cuda_simulator_control::Simulator;

pub(crate) const BYTES: usize = 256 << 10;

/// `CU_STREAM_PER_THREAD`
pub(crate) const PER_THREAD: *mut c_void = 2 as *mut c_void;
/// `CU_STREAM_NON_BLOCKING`
const NON_BLOCKING: c_uint = 1;

/// The process has one pool for PyTorch.
static ALONE: Mutex<()> = Mutex::new(());

/// The driver.
pub(crate) struct Driver {
    library: Library,
}

type Fill = unsafe extern "C" fn(u64, u8, usize, *mut c_void) -> c_int;
type Copy = unsafe extern "C" fn(u64, u64, usize, *mut c_void) -> c_int;
type Wait = unsafe extern "C" fn(*mut c_void) -> c_int;
type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> c_int;
type Begin = unsafe extern "C" fn(*mut c_void, c_uint) -> c_int;
type End = unsafe extern "C" fn(*mut c_void, *mut *mut c_void) -> c_int;
type Create = unsafe extern "C" fn(*mut *mut c_void, c_uint) -> c_int;

impl Driver {
    fn open() -> Option<Self> {
        // SAFETY: the library is the driver that the pool uses, whose initialisers have no requirements.
        let library = unsafe { Library::new("libcuda.so.1") }.ok()?;
        Some(Self { library })
    }

    pub(crate) fn fill(&self, address: *mut c_void, value: u8, bytes: usize, stream: *mut c_void) {
        // SAFETY: CUDA's header gives the function this type.
        let fill = unsafe { self.library.get::<Fill>(b"cuMemsetD8Async\0") }.expect("the driver has it");
        // SAFETY: the callers pass memory that is allocated, and a stream that exists.
        assert_eq!(unsafe { fill(address as u64, value, bytes, stream) }, 0);
    }

    pub(crate) fn copy(&self, to: *mut c_void, from: *mut c_void, bytes: usize, stream: *mut c_void) {
        // SAFETY: as above.
        let copy = unsafe { self.library.get::<Copy>(b"cuMemcpyAsync\0") }.expect("the driver has it");
        // SAFETY: as above; a buffer of the host lives until its stream was waited for.
        assert_eq!(unsafe { copy(to as u64, from as u64, bytes, stream) }, 0);
    }

    pub(crate) fn wait(&self, stream: *mut c_void) {
        // SAFETY: as above.
        let wait = unsafe { self.library.get::<Wait>(b"cuStreamSynchronize\0") }.expect("the driver has it");
        // SAFETY: as above.
        assert_eq!(unsafe { wait(stream) }, 0);
    }

    /// Begins to capture a stream into a graph, in the mode that lets this thread call what it likes.
    pub(crate) fn begin_capture(&self, stream: *mut c_void) {
        const RELAXED: c_uint = 2;
        // SAFETY: CUDA's header gives the function this type.
        let begin =
            unsafe { self.library.get::<Begin>(b"cuStreamBeginCapture_v2\0") }.expect("the driver has it");
        // SAFETY: the callers pass a stream that exists.
        assert_eq!(unsafe { begin(stream, RELAXED) }, 0);
    }

    /// Ends it. The graph is left to the process's end.
    pub(crate) fn end_capture(&self, stream: *mut c_void) {
        let mut graph = ptr::null_mut();
        // SAFETY: CUDA's header gives the function this type.
        let end = unsafe { self.library.get::<End>(b"cuStreamEndCapture\0") }.expect("the driver has it");
        // SAFETY: the callers pass a stream that is captured; the call writes one handle.
        assert_eq!(unsafe { end(stream, &raw mut graph) }, 0);
    }

    /// Makes the first device's context current on this thread, as PyTorch's kernels have it.
    pub(crate) fn enter(&self) {
        let mut context = ptr::null_mut();
        // SAFETY: CUDA's header gives the function this type.
        let retain = unsafe { self.library.get::<Retain>(b"cuDevicePrimaryCtxRetain\0") };
        // SAFETY: the driver is initialised by the pool; the call writes one handle, kept until the process
        // ends.
        assert_eq!(unsafe { retain.expect("the driver has it")(&raw mut context, 0) }, 0);
        // SAFETY: as above.
        let set = unsafe { self.library.get::<Wait>(b"cuCtxSetCurrent\0") };
        // SAFETY: the context was retained.
        assert_eq!(unsafe { set.expect("the driver has it")(context) }, 0);
    }

    /// A stream of the program's own.
    pub(crate) fn create_stream(&self) -> *mut c_void {
        let mut stream = ptr::null_mut();
        // SAFETY: CUDA's header gives the function this type.
        let create = unsafe { self.library.get::<Create>(b"cuStreamCreate\0") };
        // SAFETY: a context is current; the call writes one handle.
        assert_eq!(unsafe { create.expect("the driver has it")(&raw mut stream, NON_BLOCKING) }, 0);
        stream
    }

    pub(crate) fn destroy_stream(&self, stream: *mut c_void) {
        // SAFETY: CUDA's header gives the function this type.
        let destroy = unsafe { self.library.get::<Wait>(b"cuStreamDestroy_v2\0") };
        // SAFETY: the callers pass a stream that they created, and do not use it again.
        assert_eq!(unsafe { destroy.expect("the driver has it")(stream) }, 0);
    }

    pub(crate) fn read(&self, address: *mut c_void, stream: *mut c_void) -> Vec<u8> {
        let mut bytes = vec![0u8; BYTES];
        self.copy(bytes.as_mut_ptr().cast(), address, BYTES, stream);
        self.wait(stream);
        bytes
    }
}

/// Runs `test` with PyTorch's pool on the first CUDA device; skips it, and says so, without one.
pub(crate) fn on_cuda(options: &CStr, test: impl Fn(&Driver, u64)) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut pool = 0;
    ok(vrampool_torch_shutdown());
    ok(vrampool_torch_configure(Text::from(options)));
    let made = vrampool_torch_pool(0, Out::from(&mut pool));
    let driver = Driver::open();
    if made == Status::UNAVAILABLE || driver.is_none() {
        let required = std::env::var("VRAMPOOL_REQUIRE").unwrap_or_default();
        assert!(
            !required.split(',').any(|name| name == "cuda"),
            "VRAMPOOL_REQUIRE names cuda: {}",
            last_error_text()
        );
        vrampool_test_support::skipped(format_args!("{}", last_error_text()));
        return;
    }
    ok(made);
    if let Some(driver) = driver {
        test(&driver, pool);
    }
    if let Some(simulator) = Simulator::loaded() {
        assert_eq!(simulator.reports(), (0, String::new()));
    }
    ok(vrampool_torch_shutdown());
}
