//! Errors, versions and devices.

use crate::boundary::{self, Out, exports};
use crate::failure::Status;
use crate::last_error;
pub use crate::last_error::copied as last_error_text;
use serde_json::json;
use std::ffi::{CStr, c_char};
use std::ptr;

exports! {
    extern "C" fn vrampool_last_error() -> *const c_char {
        last_error::text()
    }

    extern "C" fn vrampool_last_error_code() -> Status {
        last_error::status()
    }

    extern "C" fn vrampool_clear_error() {
        last_error::clear();
    }

    extern "C" fn vrampool_status_name(status: Status) -> *const c_char {
        status.c_name().as_ptr()
    }

    extern "C" fn vrampool_version() -> *const c_char {
        const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
        CStr::from_bytes_until_nul(VERSION.as_bytes()).map_or(ptr::null(), CStr::as_ptr)
    }

    extern "C" fn vrampool_abi_version() -> u32 {
        1
    }

    fn vrampool_string_free(text: *mut c_char) {
        boundary::take_back(text)
    }

    fn vrampool_devices(json: Out<'_, *mut c_char>) {
        json.answer("json", || {
            let devices = vrampool::any::devices();
            let there = devices.there.iter().map(|device| {
                json!({
                    "name": device.name, "backend": device.backend, "device": device.device,
                    "kind": format!("{:?}", device.kind).to_lowercase(), "total_bytes": device.total_bytes.unwrap_or(0),
                })
            });
            let absent = devices.absent.iter();
            let absent = absent
                .map(|absent| json!({ "backend": absent.backend, "reason": absent.reason.to_string() }));
            let listed =
                json!({ "devices": there.collect::<Vec<_>>(), "absent": absent.collect::<Vec<_>>() });
            Ok(boundary::give_text(listed.to_string()))
        })
    }
}
