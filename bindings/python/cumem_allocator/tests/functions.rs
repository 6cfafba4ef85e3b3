//! The two functions, as PyTorch calls them: through vrampool's C library, on a host device.

use cumem_allocator::{cumem_allocator_bind, my_free, my_malloc};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};
use vrampool_c::{
    Status, last_error_text, vrampool_clear_error, vrampool_last_error_code, vrampool_segment_alloc,
    vrampool_segment_callbacks, vrampool_segment_free, vrampool_torch_configure, vrampool_torch_shutdown,
};

static LIVE: AtomicI64 = AtomicI64::new(0);

extern "C" fn on_malloc(_: *mut c_void, _: i32, _: u64, _: u64, _: u64) -> Status {
    LIVE.fetch_add(1, SeqCst);
    Status::OK
}

extern "C" fn on_free(_: *mut c_void, _: i32, _: u64, _: u64, _: u64) -> Status {
    LIVE.fetch_sub(1, SeqCst);
    Status::OK
}

extern "C" fn no_memory(_: usize, _: i32, _: *mut c_void) -> *mut c_void {
    ptr::null_mut()
}

/// One test, because a process binds the functions once.
#[test]
fn segments_are_allocated_once_the_functions_are_bound() {
    const BYTES: isize = 3 << 20;
    assert_eq!(vrampool_torch_configure(c"device=host; host_capacity=64MiB".into()), Status::OK);
    assert!(my_malloc(BYTES, 0, ptr::null_mut()).is_null(), "not bound");
    my_free(8 as *mut c_void, BYTES, 0, ptr::null_mut());
    assert_eq!(cumem_allocator_bind(None, Some(vrampool_segment_free)), 1);
    for _ in 0..2 {
        assert_eq!(cumem_allocator_bind(Some(vrampool_segment_alloc), Some(vrampool_segment_free)), 0);
    }
    assert_eq!(cumem_allocator_bind(Some(no_memory), Some(vrampool_segment_free)), 1, "others are bound");

    assert_eq!(vrampool_segment_callbacks(Some(on_malloc), Some(on_free), ptr::null_mut()), Status::OK);
    for size in [0, -1, isize::MIN] {
        assert!(my_malloc(size, 0, ptr::null_mut()).is_null());
    }
    for _ in 0..3 {
        // More than there is: a failure does not outlast its call.
        assert!(my_malloc(1 << 30, 0, ptr::null_mut()).is_null());
        let made = my_malloc(BYTES, 0, ptr::null_mut());
        assert!(!made.is_null(), "{}", last_error_text());
        assert_eq!(LIVE.load(SeqCst), 1);
        // On another thread, with another size, which is not used.
        let address = made as usize;
        std::thread::spawn(move || my_free(address as *mut c_void, -1, 0, ptr::null_mut()))
            .join()
            .expect("freed");
        assert_eq!(LIVE.load(SeqCst), 0);
        vrampool_clear_error();
        my_free(made, BYTES, 0, ptr::null_mut());
        assert_eq!(vrampool_last_error_code(), Status::INVALID_POINTER);
        my_free(ptr::null_mut(), 0, 0, ptr::null_mut());
    }
    assert!(my_malloc(BYTES, -7, ptr::null_mut()).is_null(), "no such device");
    assert_eq!(LIVE.load(SeqCst), 0);
    assert_eq!(vrampool_segment_callbacks(None, None, ptr::null_mut()), Status::OK);
    assert_eq!(vrampool_torch_shutdown(), Status::OK);
}
