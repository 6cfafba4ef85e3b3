//! What the device does when the driver lacks, refuses or fails a part of virtual memory: with a driver made here.
#![cfg(target_os = "linux")]

use std::process::Command;
use vrampool_cuda::{
    Backend, BackendError, Capabilities, CudaDevice, MemoryKind, Placement, ShareableKind, SharedHandles,
    VirtualMemory,
};

const DRIVER: &str = include_str!("fake/driver.c");
const PAGE: u64 = 2 << 20;

fn kind() -> MemoryKind {
    Placement::Device.into()
}

/// What the test `name` of this file says, and the driver, in a process that finds a driver compiled with `defined`.
/// `None`, and a line that says so, where there is no compiler.
fn run(name: &str, defined: &[&str]) -> Option<String> {
    if Command::new("cc").arg("--version").output().is_err() {
        eprintln!("skipped: there is no C compiler");
        return None;
    }
    let tag = format!("{name}{}", defined.concat()).replace('=', "-");
    let folder = std::env::temp_dir().join(format!("vrampool-refusals-{}-{tag}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    // What is not in the source succeeds and does nothing else.
    let library = include_str!("../src/driver/library.rs");
    let words = library.split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut names: Vec<_> = words
        .filter(|word| word.strip_prefix("cu").is_some_and(|rest| rest.starts_with(char::is_uppercase)))
        .filter(|word| !DRIVER.contains(&format!("int {word}(")))
        .collect();
    names.sort_unstable();
    names.dedup();
    let rest: String = names.iter().map(|name| format!("int {name}() {{ return 0; }}\n")).collect();
    let (file, built) = (folder.join("driver.c"), folder.join("libcuda.so.1"));
    std::fs::write(&file, format!("{DRIVER}{rest}")).expect("a file");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-w"]).args(defined.iter().map(|name| format!("-D{name}")));
    let output = compiler.arg("-o").arg(&built).arg(&file).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    std::fs::copy(&built, folder.join("libcuda.so")).expect("a copy");
    let output = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", name, "--nocapture", "--ignored"])
        .env("LD_LIBRARY_PATH", &folder)
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("1 passed"), "{name} with {defined:?}: {output:?}");
    std::fs::remove_dir_all(&folder).expect("it was there");
    Some(said)
}

/// What of it the driver says that it was asked to create, as whether network cards were to reach it.
fn created(said: &str) -> Vec<&str> {
    said.lines().filter(|line| line.ends_with("shareable=0")).collect()
}

#[test]
#[ignore = "another test starts it"]
fn is_there_and_has_none() {
    let device = CudaDevice::open(0).expect("a device");
    assert!(device.virtual_memory().is_none() && device.shared_handles().is_none());
    let capabilities = device.properties().capabilities;
    assert!(!capabilities.intersects(Capabilities::VIRTUAL_MEMORY | Capabilities::SHARED_HANDLES));
    for error in [
        device.granularity(kind()).expect_err("no virtual memory"),
        device.reserve(PAGE).expect_err("no virtual memory"),
        device.create_physical(PAGE, kind()).expect_err("no virtual memory"),
        device.create_shareable(PAGE, kind(), ShareableKind::FileDescriptor).expect_err("no handles"),
    ] {
        assert!(matches!(error, BackendError::Unsupported { .. }), "{error}");
    }
    assert!(device.shareable_kinds().is_empty());
}

#[test]
fn a_driver_without_the_functions_serves_without_virtual_memory() {
    run("is_there_and_has_none", &["WITHOUT_VIRTUAL_MEMORY"]);
}

#[test]
#[ignore = "another test starts it"]
fn creates_twice() {
    let device = CudaDevice::open(0).expect("a device");
    assert_eq!(device.granularity(kind()).expect("a granularity"), PAGE);
    let pieces = [(); 2].map(|()| device.create_physical(PAGE, kind()).expect("memory"));
    assert_eq!(pieces.map(|piece| piece.len()), [PAGE; 2]);
    assert_eq!(device.shareable_kinds(), [ShareableKind::FileDescriptor], "fabric handles were tried");
    device.create_shareable(PAGE, kind(), ShareableKind::FileDescriptor).expect("memory");
    let error = device.create_shareable(PAGE, kind(), ShareableKind::Fabric).expect_err("refused");
    assert!(matches!(error, BackendError::Unsupported { .. }), "{error}");
    let info = device.memory_info().expect("memory info");
    assert_eq!(info.free_bytes, info.total_bytes, "all is given back");
}

#[test]
fn memory_is_for_network_cards_unless_that_is_refused_which_is_asked_once() {
    let Some(said) = run("creates_twice", &[]) else { return };
    assert_eq!(created(&said), ["created rdma=1 shareable=0"; 2], "{said}");
    for code in [1, 800, 801] {
        let Some(said) = run("creates_twice", &[&format!("REFUSES_RDMA={code}")]) else { return };
        let expected =
            ["refused rdma=1 shareable=0", "created rdma=0 shareable=0", "created rdma=0 shareable=0"];
        assert_eq!(created(&said), expected, "{said}");
    }
    // Out of memory is no refusal of the flag, and nor is anything else.
    let Some(said) = run("is_refused", &["REFUSES_RDMA=2"]) else { return };
    assert!(said.contains("out of memory"), "{said}");
    let Some(said) = run("is_refused", &["REFUSES_RDMA=999"]) else { return };
    assert!(said.contains("failed with code 999"), "{said}");
}

#[test]
#[ignore = "another test starts it"]
fn is_refused() {
    let device = CudaDevice::open(0).expect("a device");
    println!("{}", device.create_physical(PAGE, kind()).expect_err("refused"));
}

#[test]
#[ignore = "another test starts it"]
fn maps_nothing() {
    let device = CudaDevice::open(0).expect("a device");
    let reservation = device.reserve(8 * PAGE).expect("addresses");
    for _ in 0..3 {
        let error = device.create_and_map(&reservation, PAGE, 2 * PAGE, kind()).expect_err("refused");
        assert!(matches!(error, BackendError::Driver { code: 801, .. }), "{error}");
        let info = device.memory_info().expect("memory info");
        assert_eq!(info.free_bytes, info.total_bytes, "nothing is left of it");
    }
}

#[test]
fn what_fails_on_the_way_is_undone() {
    let Some(said) = run("maps_nothing", &["REFUSES_MAPPING"]) else { return };
    assert!(!said.contains("unmapped") && said.contains("addresses are free"), "{said}");
    let Some(said) = run("maps_nothing", &["REFUSES_ACCESS"]) else { return };
    assert_eq!(said.matches("unmapped 2").count(), 3, "{said}");
    assert!(said.contains("addresses are free"), "{said}");
}

#[test]
#[ignore = "another test starts it"]
fn drops_what_is_mapped() {
    let device = CudaDevice::open(0).expect("a device");
    let reservation = device.reserve(16 * PAGE).expect("addresses");
    for (page, pages) in [(1, 2), (3, 1), (8, 4)] {
        device.create_and_map(&reservation, page * PAGE, pages * PAGE, kind()).expect("memory");
    }
    assert_eq!(device.memory_info().map(|info| info.total_bytes - info.free_bytes), Ok(7 * PAGE));
    drop(reservation);
    assert_eq!(device.memory_info().map(|info| info.total_bytes - info.free_bytes), Ok(0));
}

#[test]
fn a_reservation_is_unmapped_before_its_addresses_go() {
    let Some(said) = run("drops_what_is_mapped", &[]) else { return };
    let calls: Vec<_> =
        said.lines().filter(|line| line.starts_with("unmapped") || line.starts_with("addresses")).collect();
    assert_eq!(calls, ["unmapped 3", "unmapped 4", "addresses are free"]);
}

#[test]
#[ignore = "another test starts it"]
fn imports_what_is_elsewhere() {
    let device = CudaDevice::open(0).expect("a device");
    let physical = device.create_shareable(PAGE, kind(), ShareableKind::FileDescriptor).expect("memory");
    let error = device.import(device.export(&physical).expect("a handle"), PAGE).expect_err("elsewhere");
    assert!(matches!(error, BackendError::InvalidArgument { argument: "handle", .. }), "{error}");
    drop(physical);
    let info = device.memory_info().expect("memory info");
    assert_eq!(info.free_bytes, info.total_bytes, "nothing is left of it");
}

#[test]
fn memory_of_another_device_is_not_imported() {
    run("imports_what_is_elsewhere", &["IMPORTS_FROM_ANOTHER_DEVICE"]);
}
