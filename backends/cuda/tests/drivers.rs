//! Drivers that are broken, old, or without a device, made here: each is a typed error that says what is
//! wrong.
#![cfg(target_os = "linux")]

use std::path::Path;
use vrampool_cuda::{CudaDevice, list};
use vrampool_test_support::{CLibraries, passed, test_again};

/// Every function that the crate looks up, read from where it does.
fn functions() -> Vec<&'static str> {
    let source = include_str!("../src/driver/library.rs");
    let names = source.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| {
        word.strip_prefix("cu").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_uppercase()))
    });
    let mut names: Vec<_> = names.collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// A library in which every function but `missing` succeeds and does nothing else, and these say what they
/// are called.
fn source(missing: &str, init: i32, version: i32, devices: i32) -> String {
    let mut text = format!(
        "int cuInit(unsigned f) {{ return {init}; }}\n\
         int cuDriverGetVersion(int *v) {{ *v = {version}; return 0; }}\n\
         int cuDeviceGetCount(int *n) {{ *n = {devices}; return 0; }}\n\
         int cuGetErrorName(int e, const char **s) {{ *s = \"CUDA_ERROR_FAKE\"; return 0; }}\n\
         int cuGetErrorString(int e, const char **s) {{ *s = 0; return 0; }}\n"
    );
    let written = ["cuInit", "cuDriverGetVersion", "cuDeviceGetCount", "cuGetErrorName", "cuGetErrorString"];
    for name in functions().into_iter().filter(|name| !written.contains(name) && *name != missing) {
        text += &format!("int {name}() {{ return 0; }}\n");
    }
    text
}

/// Returns the error of opening a device in a process that finds its driver in `folder`.
fn answer(folder: &Path) -> String {
    passed(test_again("asked_by_the_other_tests").env("LD_LIBRARY_PATH", folder))
}

#[test]
#[ignore = "the other tests start it, each with a driver of its own"]
fn asked_by_the_other_tests() {
    let error = CudaDevice::open(0).expect_err("the driver is no good");
    assert!(error.is_unavailable(), "{error}");
    assert_eq!(list().expect_err("nor is it now"), error);
    println!("{error}");
}

#[test]
fn a_driver_that_is_no_good_is_a_typed_error() {
    let Some(libraries) = CLibraries::new("drivers") else { return };
    let folder = libraries.folder();
    for name in ["libcuda.so.1", "libcuda.so"] {
        std::fs::write(folder.join(name), "no library at all").expect("a file");
    }
    assert!(answer(folder).contains("cuda is not available"));
    for (text, reason) in [
        (source("cuMemAlloc_v2", 0, 13_000, 1), "the driver has no cuMemAlloc_v2"),
        (source("cuLaunchKernel", 0, 13_000, 1), "the driver has no cuLaunchKernel"),
        (source("", 999, 13_000, 1), "cuInit answers CUDA_ERROR_FAKE (999): the driver has no text for it"),
        (source("", 0, 11_080, 1), "the driver is one of CUDA 11.8; install 12.0 or newer"),
        (source("", 0, 12_000, 0), "the driver sees no device"),
    ] {
        libraries.compile("libcuda.so.1", &text, &[]).expect("it compiles");
        let answer = answer(folder);
        assert!(answer.contains(reason), "{reason}: {answer}");
    }
}
