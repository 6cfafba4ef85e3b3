//! The page's program: the network of `vrampool train`, trained in a browser.
//!
//! Network, data and kernels are the files of the program `vrampool`. What is different here: the device is requested,
//! results are read by futures, and after each step the page gets the figures and returns its caps.
#![cfg(target_arch = "wasm32")]

pub mod check;
mod kernels;
pub mod run;
mod train;

use vrampool::{BackendError, Error};
use wasm_bindgen::JsError;
use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = console)]
    fn error(text: &str);
}

/// Reports panics to the browser's console.
#[wasm_bindgen(start)]
fn start() {
    std::panic::set_hook(Box::new(|panic| error(&panic.to_string())));
}

/// As JavaScript's exception.
fn thrown(error: impl Into<Error>) -> JsError {
    JsError::from(error.into())
}

/// A device, or the reason why there is none.
async fn device() -> Result<vrampool::wgpu::WgpuDevice, BackendError> {
    vrampool::wgpu::WgpuDevice::request(0).await
}
