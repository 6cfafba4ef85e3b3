//! PyTorch's symbols on a CUDA device: memory is not reused under work that was recorded, with one thread and with several.
//! The simulated driver's race detector sees each mistake; on a GPU the contents do.
#![cfg(all(feature = "cuda", target_os = "linux"))]

use libloading::Library;
use std::ffi::{CStr, c_int, c_void};
use std::ptr;
use std::sync::{Mutex, PoisonError, mpsc};
use vrampool_c::boundary::{Out, Text};
use vrampool_c::{
    Status, last_error_text, vrampool_create, vrampool_destroy, vrampool_stream_create,
    vrampool_stream_destroy, vrampool_torch_alloc, vrampool_torch_configure, vrampool_torch_free,
    vrampool_torch_pool, vrampool_torch_record_stream, vrampool_torch_shutdown, vrampool_trim,
};
use vrampool_cuda_simulator_control::Simulator;

const BYTES: usize = 256 << 10;

/// The process has one pool for PyTorch.
static ALONE: Mutex<()> = Mutex::new(());

/// The driver's own calls, which are PyTorch's kernels here.
struct Driver {
    library: Library,
}

type Fill = unsafe extern "C" fn(u64, u8, usize, *mut c_void) -> c_int;
type Copy = unsafe extern "C" fn(u64, u64, usize, *mut c_void) -> c_int;
type Wait = unsafe extern "C" fn(*mut c_void) -> c_int;

impl Driver {
    fn open() -> Option<Self> {
        // SAFETY: the library is the driver that the pool uses, whose initialisers have no requirements.
        let library = unsafe { Library::new("libcuda.so.1") }.ok()?;
        Some(Self { library })
    }

    fn fill(&self, address: *mut c_void, value: u8, bytes: usize, stream: *mut c_void) {
        // SAFETY: CUDA's header gives the function this type.
        let fill = unsafe { self.library.get::<Fill>(b"cuMemsetD8Async\0") }.expect("the driver has it");
        // SAFETY: the callers pass memory that is allocated, and a stream that exists.
        assert_eq!(unsafe { fill(address as u64, value, bytes, stream) }, 0);
    }

    fn copy(&self, to: *mut c_void, from: *mut c_void, bytes: usize, stream: *mut c_void) {
        // SAFETY: as above.
        let copy = unsafe { self.library.get::<Copy>(b"cuMemcpyAsync\0") }.expect("the driver has it");
        // SAFETY: as above; a buffer of the host lives until its stream was waited for.
        assert_eq!(unsafe { copy(to as u64, from as u64, bytes, stream) }, 0);
    }

    fn wait(&self, stream: *mut c_void) {
        // SAFETY: as above.
        let wait = unsafe { self.library.get::<Wait>(b"cuStreamSynchronize\0") }.expect("the driver has it");
        // SAFETY: as above.
        assert_eq!(unsafe { wait(stream) }, 0);
    }

    fn read(&self, address: *mut c_void, stream: *mut c_void) -> Vec<u8> {
        let mut bytes = vec![0u8; BYTES];
        self.copy(bytes.as_mut_ptr().cast(), address, BYTES, stream);
        self.wait(stream);
        bytes
    }
}

/// Runs `test` with PyTorch's pool on the first CUDA device; skips it, and says so, without one.
fn on_cuda(options: &CStr, test: impl Fn(&Driver, u64)) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut pool = 0;
    assert_eq!(vrampool_torch_shutdown(), Status::OK);
    assert_eq!(vrampool_torch_configure(Text::from(options)), Status::OK, "{}", last_error_text());
    let made = vrampool_torch_pool(0, Out::from(&mut pool));
    let driver = Driver::open();
    if made == Status::UNAVAILABLE || driver.is_none() {
        let required = std::env::var("VRAMPOOL_REQUIRE").unwrap_or_default();
        assert!(
            !required.split(',').any(|name| name == "cuda"),
            "VRAMPOOL_REQUIRE names cuda: {}",
            last_error_text()
        );
        eprintln!("skipped: {}", last_error_text());
        return;
    }
    assert_eq!(made, Status::OK, "{}", last_error_text());
    if let Some(driver) = driver {
        test(&driver, pool);
    }
    if let Some(simulator) = Simulator::loaded() {
        assert_eq!(simulator.reports(), (0, String::new()));
    }
    assert_eq!(vrampool_torch_shutdown(), Status::OK);
}

fn stream(pool: u64) -> *mut c_void {
    let mut stream = ptr::null_mut();
    assert_eq!(vrampool_stream_create(pool, Out::from(&mut stream)), Status::OK, "{}", last_error_text());
    stream
}

const OPTIONS: [&CStr; 2] =
    [c"device=cuda:0; limit=32MiB; source=virtual", c"device=cuda:0; limit=32MiB; source=direct"];

#[test]
fn memory_that_a_stream_was_recorded_on_waits_for_it() {
    for options in OPTIONS {
        on_cuda(options, |driver, pool| {
            let (one, two) = (stream(pool), stream(pool));
            for value in 1..=50u8 {
                let block = vrampool_torch_alloc(BYTES, 0, one);
                driver.fill(block, value, BYTES, one);
                driver.wait(one);
                // Another stream reads it, as `tensor.record_stream` says.
                let copy = vrampool_torch_alloc(BYTES, 0, two);
                driver.copy(copy, block, BYTES, two);
                vrampool_torch_record_stream(block, two);
                vrampool_torch_free(block, BYTES, 0, one);
                let next = vrampool_torch_alloc(BYTES, 0, one);
                driver.fill(next, 0xFF, BYTES, one);
                assert_eq!(driver.read(copy, two), vec![value; BYTES]);
                vrampool_torch_free(next, BYTES, 0, one);
                vrampool_torch_free(copy, BYTES, 0, two);
            }
            assert_eq!(vrampool_trim(pool, 0, Out::null()), Status::OK, "{}", last_error_text());
        });
    }
}

#[test]
fn threads_with_streams_of_their_own_share_a_pool() {
    for options in OPTIONS {
        on_cuda(options, |driver, pool| {
            std::thread::scope(|scope| {
                for thread in 1..=3u8 {
                    let own = stream(pool) as usize;
                    scope.spawn(move || {
                        let own = own as *mut c_void;
                        for round in 0..60u8 {
                            let value = thread * 60 + round % 60;
                            let block = vrampool_torch_alloc(BYTES, 0, own);
                            driver.fill(block, value, BYTES, own);
                            assert_eq!(driver.read(block, own), vec![value; BYTES]);
                            vrampool_torch_free(block, BYTES, 0, own);
                        }
                    });
                }
            });
        });
    }
}

#[test]
fn a_thread_that_ends_calls_no_driver() {
    for options in OPTIONS {
        on_cuda(options, |_, pool| {
            let own = stream(pool);
            let block = vrampool_torch_alloc(BYTES, 0, ptr::null_mut());
            let (worked, work) = mpsc::channel();
            let (end, ended) = mpsc::channel::<()>();
            let thread = std::thread::spawn({
                let (block, own) = (block as usize, own as usize);
                move || {
                    vrampool_torch_record_stream(block as *mut c_void, own as *mut c_void);
                    worked.send(()).expect("the test waits");
                    let _ = ended.recv();
                }
            });
            work.recv().expect("the thread works");
            vrampool_torch_free(block, BYTES, 0, ptr::null_mut());
            assert_eq!(vrampool_trim(pool, 0, Out::null()), Status::OK, "{}", last_error_text());
            assert_eq!(vrampool_stream_destroy(pool, own), Status::OK, "{}", last_error_text());
            // Destroyed pools are forgotten when another goes; then the thread has the last handle to the device.
            assert_eq!(vrampool_torch_shutdown(), Status::OK, "{}", last_error_text());
            let mut other = 0;
            let host = Text::from(c"device=host; host_capacity=1MiB");
            assert_eq!(vrampool_create(host, Out::from(&mut other)), Status::OK, "{}", last_error_text());
            assert_eq!(vrampool_destroy(other), Status::OK, "{}", last_error_text());
            drop(end);
            thread.join().expect("no panic");
        });
    }
}
