//! The simulator exports every function that its users look up.
//!
//! Cargo does not build a `cdylib` for its tests: `run.sh` does, or `cargo build` in the simulator's folder.

use libloading::Library;
use std::collections::BTreeSet;

/// The functions that the driver crate looks up.
const LOOKED_UP: &str = include_str!("../../src/driver/library.rs");

/// Functions that the `cudarc` crate calls in those of its methods that this project uses. It panics without
/// them.
const OF_CUDARC: [&str; 45] = [
    "cuCtxGetCurrent",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuDeviceGet",
    "cuDeviceGetAttribute",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetUuid",
    "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRelease_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDeviceTotalMem_v2",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventElapsedTime",
    "cuEventElapsedTime_v2",
    "cuEventQuery",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuFuncGetAttribute",
    "cuGraphDestroy",
    "cuGraphExecDestroy",
    "cuGraphInstantiateWithFlags",
    "cuGraphLaunch",
    "cuGraphUpload",
    "cuInit",
    "cuLaunchHostFunc",
    "cuLaunchKernel",
    "cuMemAllocAsync",
    "cuMemAlloc_v2",
    "cuMemFreeAsync",
    "cuMemFree_v2",
    "cuMemGetInfo_v2",
    "cuMemcpyDtoDAsync_v2",
    "cuMemcpyDtoHAsync_v2",
    "cuMemcpyHtoDAsync_v2",
    "cuMemsetD8Async",
    "cuModuleGetFunction",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuStreamBeginCapture_v2",
    "cuStreamCreate",
    "cuStreamEndCapture",
    "cuStreamIsCapturing",
    "cuStreamSynchronize",
];

#[test]
fn all_functions_that_are_looked_up() {
    let names: BTreeSet<&str> = looked_up().chain(OF_CUDARC).collect();
    let Some(simulator) = simulator() else {
        let required = std::env::var("VRAMPOOL_REQUIRE").unwrap_or_default();
        assert!(!required.split(',').any(|name| name == "cuda"), "the simulator is not built");
        eprintln!("skipped: the simulator is not built: cargo build in its folder");
        return;
    };
    let missing: Vec<_> = names.into_iter().filter(|name| !exports(&simulator, name)).collect();
    assert_eq!(missing, [""; 0], "functions that the simulator does not export");
}

#[test]
fn both_tables_and_the_list_are_read() {
    let names: BTreeSet<&str> = looked_up().collect();
    for name in ["cuInit", "cuMemcpyAsync", "cuMemGetAllocationGranularity", "cuStreamDestroy_v2"] {
        assert!(names.contains(name), "{name} is looked up");
    }
    assert!(names.len() > 50, "{} names", names.len());
}

/// Names in the tables, which are `cuName(types);`, and in the lists, which are `"cuName"`.
fn looked_up() -> impl Iterator<Item = &'static str> {
    LOOKED_UP.lines().map(str::trim).filter(|line| !line.starts_with("//")).flat_map(|line| {
        let of_table = line.split_once('(').filter(|_| line.ends_with(';')).map(|(name, _)| name);
        of_table.into_iter().chain(line.split('"').skip(1).step_by(2)).filter(|name| is_function(name))
    })
}

fn is_function(name: &str) -> bool {
    let after = name.strip_prefix("cu").and_then(|rest| rest.chars().next());
    after.is_some_and(char::is_uppercase) && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The driver that the loader finds, if it is the simulator; or the library beside this test's folder.
fn simulator() -> Option<Library> {
    let program = std::env::current_exe().ok()?;
    let beside = program.parent()?.parent()?.join("libvrampool_cuda_simulator.so");
    let open = |path: &std::ffi::OsStr| {
        // SAFETY: loading a driver runs nothing that outlives it; neither NVIDIA's nor the simulated one does
        // more when it is loaded than what its own loader needs.
        unsafe { Library::new(path) }.ok()
    };
    let found = ["libcuda.so.1".as_ref(), beside.as_os_str()].into_iter().filter_map(open);
    found.into_iter().find(|library| exports(library, "simulator_hold"))
}

fn exports(library: &Library, name: &str) -> bool {
    // SAFETY: the symbol is looked up, and not used.
    unsafe { library.get::<*const std::ffi::c_void>(name.as_bytes()) }.is_ok()
}
