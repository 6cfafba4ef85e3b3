//! The way in: what every exported function does before and after its own work, and the caller's pointers.
//!
//! The callers are C: they keep what CUDA's header says of each argument, and this file alone relies on it.

use crate::code::{Answer, Code};
use crate::detector::Site;
use crate::world::World;
use crate::world::executor;
use parking_lot::MutexGuard;
use std::cell::Cell;
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Functions that work before `cuInit`.
const WITHOUT_INIT: [&str; 4] = ["cuInit", "cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString"];

/// The process that initialised the driver; 0 before.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Whether this process is a child of the one that did.
static FORKED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread's variables are being destroyed.
    static ENDS: Cell<bool> = const { Cell::new(false) };
    static END: End = const { End };
}

/// Destroyed with a thread's other variables. Those that it had before its first call of the driver are
/// destroyed later.
struct End;

impl Drop for End {
    fn drop(&mut self) {
        ENDS.set(true);
    }
}

/// One call of an exported function.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    name: &'static str,
    number: u64,
}

impl Call {
    /// The state, locked.
    pub(crate) fn world(self) -> MutexGuard<'static, World> {
        let mut world = World::lock();
        world.site = Site { call: self.name, number: self.number };
        world
    }
}

macro_rules! exports {
    ($($(#[doc = $doc:literal])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) |$call:ident| $body:block)*) => {$(
        $(#[doc = $doc])*
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, reason = "the driver's own names")]
        extern "C" fn $name($($argument: $kind),*) -> std::ffi::c_int {
            $(let _ = &$argument;)*
            #[allow(unused_variables, reason = "some functions need no state")]
            let work = |$call: $crate::boundary::Call| -> $crate::code::Answer { $body };
            $crate::boundary::call(stringify!($name), work)
        }
    )*};
}
pub(crate) use exports;

/// Runs the work of the exported function `name`, unless this call is to fail.
pub(crate) fn call(name: &'static str, work: impl FnOnce(Call) -> Answer) -> c_int {
    if FORKED.load(Ordering::Relaxed) {
        return Code::NOT_INITIALIZED.0;
    }
    let _ = END.try_with(|_| ());
    let number = {
        let mut world = World::lock();
        let number = world.faults.count(name);
        if world.settings.log {
            eprintln!("simulator: call {number}: {name}");
        }
        if !name.starts_with("simulator") {
            if !WITHOUT_INIT.contains(&name) {
                if !world.initialized {
                    return Code::NOT_INITIALIZED.0;
                }
                if executor::is_worker() {
                    return Code::NOT_PERMITTED.0;
                }
            }
            if ENDS.get() {
                world.site = Site { call: name, number };
                world.report("the driver is called while a thread's variables are destroyed".into());
            }
            if let Some(code) = world.faults.due(name) {
                return code.0;
            }
        }
        number
    };
    // A panic is a defect of the simulator; it must not cross into C.
    let answer = catch_unwind(AssertUnwindSafe(|| work(Call { name, number })));
    match answer {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code.0,
        Err(_) => Code::UNKNOWN.0,
    }
}

/// Makes every call in a forked child, which has no worker threads, return `NOT_INITIALIZED`.
pub(crate) fn watch_forks() {
    extern "C" fn in_the_child() {
        FORKED.store(true, Ordering::Relaxed);
    }
    if PROCESS.swap(std::process::id(), Ordering::Relaxed) == 0 {
        // SAFETY: the handler stores one atomic flag, which is allowed in a child of a process with threads.
        unsafe { libc::pthread_atfork(None, None, Some(in_the_child)) };
    }
}

/// Writes one value to where the caller wants it.
pub(crate) fn put<T>(to: *mut T, value: T) -> Answer {
    if to.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the pointer is not null, and by the header's word it leads to room for one `T`. Unaligned,
    // because C's own declarations of a handle type may be less strict.
    unsafe { to.write_unaligned(value) };
    Ok(())
}

/// As [`put`], where the header allows a null pointer.
pub(crate) fn put_optional<T>(to: *mut T, value: T) {
    let _ = put(to, value);
}

/// Reads one value.
pub(crate) fn get<T: Copy>(from: *const T) -> Answer<T> {
    if from.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the pointer is not null, and by the header's word it leads to one `T`, which has no invalid
    // values.
    Ok(unsafe { from.read_unaligned() })
}

/// Reads `count` values.
pub(crate) fn get_many<T: Copy>(from: *const T, count: usize) -> Answer<Vec<T>> {
    (0..count).map(|index| get(from.wrapping_add(index))).collect()
}

/// Reads `bytes` bytes of the host's memory.
pub(crate) fn read_bytes(from: u64, bytes: usize) -> Vec<u8> {
    // SAFETY: the program names this memory, of at least `bytes` bytes, as the source of a copy.
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance::<u8>(from as usize), bytes) }
        .to_vec()
}

/// Writes text that ends with a zero into room for `length` bytes.
pub(crate) fn put_text(to: *mut std::ffi::c_char, length: c_int, text: &str) -> Answer {
    let room = usize::try_from(length).map_err(|_| Code::INVALID_VALUE)?;
    if to.is_null() || room == 0 {
        return Err(Code::INVALID_VALUE);
    }
    let bytes = text.bytes().take(room - 1).chain([0]);
    for (index, byte) in bytes.enumerate() {
        put(to.wrapping_add(index), byte as std::ffi::c_char)?;
    }
    Ok(())
}

/// Reads a text that ends with a zero.
pub(crate) fn text(from: *const std::ffi::c_char) -> Answer<String> {
    if from.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: not null, and by the header's word a text that ends with a zero.
    Ok(unsafe { std::ffi::CStr::from_ptr(from) }.to_string_lossy().into_owned())
}
