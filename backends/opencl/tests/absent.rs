//! Without a library, a platform or a device, every way in is a typed error. Each case is a process of its
//! own.

use vrampool_opencl::{OpenClDevice, list};
use vrampool_test_support::{CLibraries, assert_unavailable, passed, test_again};

/// Returns the error of every function that opens a device, in a process with this variable.
fn answer(variable: &str, value: &str) -> String {
    passed(test_again("asked_by_the_other_tests").env(variable, value))
}

#[test]
#[ignore = "the other tests start it, each without something"]
fn asked_by_the_other_tests() {
    let answers = [
        list().map(|_| ()),
        OpenClDevice::open(0).map(|_| ()),
        OpenClDevice::open(usize::MAX).map(|_| ()),
        OpenClDevice::open_by_name("opencl").map(|_| ()),
        OpenClDevice::open_by_name("opencl:0").map(|_| ()),
        OpenClDevice::open_by_name("").map(|_| ()),
        OpenClDevice::builder(0).memory_limit(1).build().map(|_| ()),
    ];
    println!("{}", assert_unavailable("opencl", answers).join("\n"));
    let first = &list();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(move || assert_eq!(&list(), first));
        }
    });
}

#[test]
#[ignore = "another test starts it, without the usual drivers"]
fn what_is_listed() {
    list().into_iter().flatten().for_each(|device| println!("listed: {}", device.device));
}

#[test]
fn a_library_that_is_not_there_is_a_typed_error() {
    for path in ["/no/such/libOpenCL.so", "/no/such/libOpenCL.so;/nor/this.so"] {
        let answer = answer("OPENCL_DYLIB_PATH", path);
        let wanted = "opencl is not available: no OpenCL library was found (/no/such/libOpenCL.so: ";
        assert!(answer.contains(wanted), "{answer}");
    }
}

/// The loader of Debian looks for drivers in the folder that this variable names.
#[test]
#[cfg(target_os = "linux")]
fn a_loader_without_a_driver_is_a_typed_error() {
    if let Err(error) = list() {
        vrampool_test_support::skipped(format_args!("{error}"));
        return;
    }
    let folder = std::env::temp_dir().join(format!("vrampool-no-opencl-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let folder_name = folder.to_string_lossy().into_owned();
    if passed(test_again("what_is_listed").env("OCL_ICD_VENDORS", &folder_name)).contains("listed: ") {
        std::fs::remove_dir_all(&folder).expect("it was there");
        vrampool_test_support::skipped("this loader finds drivers in other ways, too");
        return;
    }
    let answer = answer("OCL_ICD_VENDORS", &folder_name);
    std::fs::remove_dir_all(&folder).expect("it was there");
    assert!(answer.contains("opencl is not available: "), "{answer}");
    assert!(answer.contains("CL_PLATFORM_NOT_FOUND_KHR") || answer.contains("no platform"), "{answer}");
}

#[test]
#[cfg(target_os = "linux")]
fn a_library_that_is_no_good_is_a_typed_error() {
    let Some(libraries) = CLibraries::new("opencl") else { return };
    let library = libraries.folder().join("libOpenCL.so");
    std::fs::write(&library, "no library at all").expect("a file");
    let path = library.to_string_lossy();
    assert!(answer("OPENCL_DYLIB_PATH", &path).contains("no OpenCL library was found"));
    for (platforms, without, reason) in [
        ("*count = 0; return 0;", "", "the OpenCL loader knows no platform"),
        ("return -1001;", "", "the OpenCL loader knows no platform"),
        ("return -30;", "", "clGetPlatformIDs failed with code -30: CL_INVALID_VALUE"),
        ("*count = 1; return 0;", "", "no OpenCL platform has a device"),
        ("return 0;", "clEnqueueFillBuffer", "the OpenCL library has no clEnqueueFillBuffer"),
    ] {
        let mut text = format!(
            "int clGetPlatformIDs(unsigned n, void **to, unsigned *count) {{ {platforms} }}\n\
             int clGetDeviceIDs() {{ return -1; }}\n"
        );
        for name in functions().filter(|name| *name != without) {
            text += &format!("long {name}() {{ return 0; }}\n");
        }
        libraries.compile("libOpenCL.so", &text, &[]).expect("it compiles");
        let answer = answer("OPENCL_DYLIB_PATH", &path);
        assert!(answer.contains(reason), "{reason}: {answer}");
    }
}

/// Every function that the crate looks up, read from where it does, but the two that the library above has.
fn functions() -> impl Iterator<Item = &'static str> {
    let lines = include_str!("../src/driver/library.rs").lines();
    let names =
        lines.filter_map(|line| line.trim().strip_prefix("cl").and_then(|_| line.trim().split_once('(')));
    names.map(|(name, _)| name).filter(|name| !["clGetPlatformIDs", "clGetDeviceIDs"].contains(name))
}
