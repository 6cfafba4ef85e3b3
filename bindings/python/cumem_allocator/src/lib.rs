//! The C functions of vLLM's extension module: `my_malloc` and `my_free`.
//!
//! vLLM looks for a loaded library whose file name begins with `cumem_allocator.`, and PyTorch loads the two functions
//! from it. They call the functions that `cumem_allocator_bind` was called with: those of vrampool's C library, which is
//! in another file of the wheel.

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

/// `vrampool_segment_alloc`: bytes, device, stream.
pub type Allocate = extern "C" fn(usize, c_int, *mut c_void) -> *mut c_void;
/// `vrampool_segment_free`: address, bytes, device, stream.
pub type Free = extern "C" fn(*mut c_void, usize, c_int, *mut c_void);

static BOUND: OnceLock<(Allocate, Free)> = OnceLock::new();

/// Sets the functions that `my_malloc` and `my_free` call. Returns 0, or 1 if others are set or one is null.
#[allow(unsafe_code, reason = "exported names are unsafe attributes")]
#[unsafe(no_mangle)]
pub extern "C" fn cumem_allocator_bind(allocate: Option<Allocate>, free: Option<Free>) -> c_int {
    let (Some(allocate), Some(free)) = (allocate, free) else { return 1 };
    let bound = BOUND.get_or_init(|| (allocate, free));
    let is_same = ptr::fn_addr_eq(bound.0, allocate) && ptr::fn_addr_eq(bound.1, free);
    c_int::from(!is_same)
}

/// Allocates a segment. Returns null if there is not enough memory, for a size that is not positive, and before
/// `cumem_allocator_bind`.
#[allow(unsafe_code, reason = "exported names are unsafe attributes")]
#[unsafe(no_mangle)]
pub extern "C" fn my_malloc(size: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    match (BOUND.get(), usize::try_from(size)) {
        (Some((allocate, _)), Ok(size)) if size > 0 => allocate(size, device, stream),
        _ => ptr::null_mut(),
    }
}

/// Frees a segment of `my_malloc`; does nothing for null. `size` is not used.
#[allow(unsafe_code, reason = "exported names are unsafe attributes")]
#[unsafe(no_mangle)]
pub extern "C" fn my_free(address: *mut c_void, size: isize, device: c_int, stream: *mut c_void) {
    if let Some((_, free)) = BOUND.get()
        && !address.is_null()
    {
        free(address, usize::try_from(size).unwrap_or(0), device, stream);
    }
}
