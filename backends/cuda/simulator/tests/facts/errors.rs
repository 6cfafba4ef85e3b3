//! Initialisation, and the numbers, names and texts of results.

use crate::driver::{INVALID_VALUE, NOT_INITIALIZED, SUCCESS};
use crate::fact::{Fact, Scene, fact};
use std::ffi::{CStr, c_char};
use std::ptr::{null, null_mut};

fn text(pointer: *const c_char) -> String {
    if pointer.is_null() {
        return "null".into();
    }
    // SAFETY: the driver's texts are constants that end with a zero.
    unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
}

fn name(d: &Scene, code: i32) -> String {
    let mut name = null();
    d.is(&format!("cuGetErrorName({code})"), d.cuGetErrorName(code, &mut name), SUCCESS);
    text(name)
}

pub(crate) const FACTS: &[Fact] = &[
    fact!("errors: nothing works before initialisation", |d| {
        let (mut count, mut handle, mut pointer) = (0, 0, 0);
        d.is("cuDeviceGetCount", d.cuDeviceGetCount(&mut count), NOT_INITIALIZED);
        d.is("cuDeviceGet", d.cuDeviceGet(&mut count, 0), NOT_INITIALIZED);
        d.is("cuDevicePrimaryCtxRetain", d.cuDevicePrimaryCtxRetain(&mut handle, 0), NOT_INITIALIZED);
        d.is("cuCtxGetCurrent", d.cuCtxGetCurrent(&mut handle), NOT_INITIALIZED);
        d.is("cuCtxSetCurrent", d.cuCtxSetCurrent(0), NOT_INITIALIZED);
        d.is("cuCtxSynchronize", d.cuCtxSynchronize(), NOT_INITIALIZED);
        d.is("cuMemAlloc", d.cuMemAlloc_v2(&mut pointer, 4096), NOT_INITIALIZED);
        d.is("cuMemFree", d.cuMemFree_v2(0x1000), NOT_INITIALIZED);
        d.is("cuStreamCreate", d.cuStreamCreate(&mut handle, 0), NOT_INITIALIZED);
        d.is("cuEventCreate", d.cuEventCreate(&mut handle, 0), NOT_INITIALIZED);
        d.is("cuStreamSynchronize", d.cuStreamSynchronize(0), NOT_INITIALIZED);
        d.is("cuMemAddressReserve", d.cuMemAddressReserve(&mut pointer, 2 << 20, 0, 0, 0), NOT_INITIALIZED);
        d.is("cuMemPoolDestroy", d.cuMemPoolDestroy(0), NOT_INITIALIZED);
        let mut mode = 2;
        let exchange = d.cuThreadExchangeStreamCaptureMode(&mut mode);
        d.is("cuThreadExchangeStreamCaptureMode", exchange, NOT_INITIALIZED);
    })
    .loaded(),
    fact!("errors: the version and the names need no initialisation", |d| {
        let mut version = 0;
        d.is("cuDriverGetVersion", d.cuDriverGetVersion(&mut version), SUCCESS);
        d.eq("at least 12000", version >= 12_000, true);
        d.is("cuDriverGetVersion(null)", d.cuDriverGetVersion(null_mut()), INVALID_VALUE);
        d.eq("name of 3", name(d, 3), "CUDA_ERROR_NOT_INITIALIZED".into());
    })
    .loaded(),
    fact!("errors: initialisation takes no flags and may be repeated", |d| {
        d.is("cuInit(1)", d.cuInit(1), INVALID_VALUE);
        d.is("cuInit(0)", d.cuInit(0), SUCCESS);
        d.is("cuInit(0) again", d.cuInit(0), SUCCESS);
    })
    .loaded(),
    fact!("errors: known numbers have the header's names", |d| {
        for (code, expected) in [
            (0, "CUDA_SUCCESS"),
            (1, "CUDA_ERROR_INVALID_VALUE"),
            (2, "CUDA_ERROR_OUT_OF_MEMORY"),
            (100, "CUDA_ERROR_NO_DEVICE"),
            (101, "CUDA_ERROR_INVALID_DEVICE"),
            (201, "CUDA_ERROR_INVALID_CONTEXT"),
            (209, "CUDA_ERROR_NO_BINARY_FOR_GPU"),
            (218, "CUDA_ERROR_INVALID_PTX"),
            (400, "CUDA_ERROR_INVALID_HANDLE"),
            (500, "CUDA_ERROR_NOT_FOUND"),
            (600, "CUDA_ERROR_NOT_READY"),
            (700, "CUDA_ERROR_ILLEGAL_ADDRESS"),
            (704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED"),
            (709, "CUDA_ERROR_CONTEXT_IS_DESTROYED"),
            (719, "CUDA_ERROR_LAUNCH_FAILED"),
            (801, "CUDA_ERROR_NOT_SUPPORTED"),
            (900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"),
            (901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"),
            (902, "CUDA_ERROR_STREAM_CAPTURE_MERGE"),
            (903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"),
            (904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED"),
            (905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"),
            (906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT"),
            (907, "CUDA_ERROR_CAPTURED_EVENT"),
            (908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"),
            (999, "CUDA_ERROR_UNKNOWN"),
        ] {
            d.eq(&format!("name of {code}"), name(d, code), expected.into());
        }
    })
    .initialised(),
    fact!("errors: an unknown number has no name and no text", |d| {
        let mut found = c"before".as_ptr();
        d.is("cuGetErrorName(99999)", d.cuGetErrorName(99_999, &mut found), INVALID_VALUE);
        d.eq("name", text(found), "null".into());
        found = c"before".as_ptr();
        d.is("cuGetErrorString(-7)", d.cuGetErrorString(-7, &mut found), INVALID_VALUE);
        d.eq("text", text(found), "null".into());
        let code = d.cuGetErrorName(226, &mut found);
        d.note("cuGetErrorName(226)", format!("{code}, {}", text(found)));
    })
    .initialised(),
    fact!("errors: a name without a place for it", |d| {
        d.is("cuGetErrorName(1, null)", d.cuGetErrorName(1, null_mut()), INVALID_VALUE);
    })
    .initialised()
    .simulator_only(),
    fact!("errors: known numbers have texts", |d| {
        for (code, expected) in [
            (0, "no error"),
            (2, "out of memory"),
            (1, "invalid argument"),
            (700, "an illegal memory access was encountered"),
        ] {
            let mut found = null();
            d.is("cuGetErrorString", d.cuGetErrorString(code, &mut found), SUCCESS);
            d.eq(&format!("text of {code}"), text(found), expected.into());
        }
    })
    .initialised(),
];
