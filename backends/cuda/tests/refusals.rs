//! A driver that lacks, refuses or fails a part of virtual memory. Each case runs in a
//! separate process on the simulated driver, with the settings that the case needs; skipped where that driver
//! is not loaded.
#![cfg(target_os = "linux")]

use vrampool_backend::AllocationRequest;
use vrampool_cuda::cudarc::driver::{DriverError, sys};
use vrampool_cuda::{
    Backend, BackendError, Capabilities, CudaDevice, CudaMemory, CudaStream, DriverPool, Memory, MemoryKind,
    Placement, PoolHandle, Region, RegionMut, ShareableKind, SharedHandles, VirtualMemory,
};
use vrampool_cuda_simulator_control::Simulator;
use vrampool_test_support::{BackendExt, is_inside, passed, test_again};

const PAGE: u64 = 2 << 20;
/// Functions of virtual memory, one of which is missing in some cases.
const MISSING: &str = "cuMemSetAccess";

fn kind() -> MemoryKind {
    Placement::Device.into()
}

/// The output of the test `name` of this file in a process with these settings of the simulated driver.
fn run(name: &str, settings: &str) -> Option<String> {
    run_with(name, settings, &[])
}

fn run_with(name: &str, settings: &str, variables: &[(&str, &str)]) -> Option<String> {
    Simulator::or_skip()?;
    let mut test = test_again(name);
    test.env("VRAMPOOL_SIMULATOR", format!("strict=1,{settings}")).envs(variables.iter().copied());
    Some(passed(&mut test))
}

/// The device, in a process of [`run`]. `None` elsewhere, once the test has run so with each of these settings.
fn inside(test: &str, settings: &[&str]) -> Option<CudaDevice> {
    if is_inside() {
        return Some(CudaDevice::open(0).expect("a device"));
    }
    settings.iter().for_each(|settings| drop(run(test, settings)));
    None
}

fn simulator() -> &'static Simulator {
    Simulator::loaded().expect("the test that starts this one checked it")
}

/// Bytes of the device that are free.
fn free(device: &CudaDevice) -> u64 {
    device.memory_info().expect("memory info").free_bytes
}

/// Fails unless as much is free as `before`.
fn check_nothing_is_left(device: &CudaDevice, before: u64) {
    assert_eq!(free(device), before);
    assert_eq!(simulator().leaks().iter().filter(|line| line.contains("bytes")).count(), 0);
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
        device.create_physical(&AllocationRequest::new(PAGE, kind())).expect_err("no virtual memory"),
        device
            .create_shareable(&AllocationRequest::new(PAGE, kind()), ShareableKind::FileDescriptor)
            .expect_err("no handles"),
    ] {
        assert!(matches!(error, BackendError::Unsupported { .. }), "{error}");
    }
    assert!(device.shareable_kinds().is_empty());
}

/// A copy of the simulated driver in which the name of one function is another.
#[test]
fn a_driver_without_the_functions_serves_without_virtual_memory() {
    if Simulator::or_skip().is_none() {
        return;
    }
    let paths = std::env::var("LD_LIBRARY_PATH").unwrap_or_default();
    let driver = paths
        .split(':')
        .map(|path| format!("{path}/libcuda.so.1"))
        .find(|path| std::path::Path::new(path).exists());
    let mut bytes = std::fs::read(driver.expect("a path of the loader has it")).expect("the driver");
    let name = format!("\0{MISSING}\0").into_bytes();
    let places: Vec<usize> =
        (0..bytes.len() - name.len()).filter(|&at| bytes[at..].starts_with(&name)).collect();
    assert!(!places.is_empty(), "the driver exports {MISSING}");
    for at in places {
        bytes[at + 1] = b'x';
    }
    let folder = std::env::temp_dir().join(format!("vrampool-refusals-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    for name in ["libcuda.so.1", "libcuda.so"] {
        std::fs::write(folder.join(name), &bytes).expect("a copy");
    }
    let folder_name = folder.to_string_lossy().into_owned();
    let ran = run_with("is_there_and_has_none", "", &[("LD_LIBRARY_PATH", &folder_name)]);
    std::fs::remove_dir_all(&folder).expect("it was there");
    assert!(ran.is_some());
    // A device that has no virtual memory, although its driver does.
    run("is_there_and_has_none", "virtual_memory=0");
}

#[test]
#[ignore = "another test starts it"]
fn creates_twice() {
    let device = CudaDevice::open(0).expect("a device");
    let before = free(&device);
    assert_eq!(device.granularity(kind()).expect("a granularity"), PAGE);
    let calls = || simulator().calls_of("cuMemCreate").expect("a name");
    let so_far = calls();
    let pieces =
        [(); 2].map(|()| device.create_physical(&AllocationRequest::new(PAGE, kind())).expect("memory"));
    println!("created in {} calls", calls() - so_far);
    assert_eq!(pieces.map(|piece| piece.len()), [PAGE; 2]);
    assert_eq!(device.shareable_kinds(), [ShareableKind::FileDescriptor], "fabric handles were tried");
    device
        .create_shareable(&AllocationRequest::new(PAGE, kind()), ShareableKind::FileDescriptor)
        .expect("memory");
    let error = device
        .create_shareable(&AllocationRequest::new(PAGE, kind()), ShareableKind::Fabric)
        .expect_err("refused");
    assert!(matches!(error, BackendError::Unsupported { .. }), "{error}");
    check_nothing_is_left(&device, before);
}

#[test]
fn memory_is_for_network_cards_unless_that_is_refused_which_is_asked_once() {
    let Some(text) = run("creates_twice", "") else { return };
    assert!(text.contains("created in 2 calls"), "{text}");
    for code in [1, 800, 801] {
        let Some(text) = run("creates_twice", &format!("direct_rdma={code}")) else { return };
        assert!(text.contains("created in 3 calls"), "{code}: {text}");
    }
    // Out of memory is no refusal of the flag, and neither is any other error.
    let Some(text) = run("is_refused", "direct_rdma=2") else { return };
    assert!(text.contains("out of memory"), "{text}");
    let Some(text) = run("is_refused", "direct_rdma=999") else { return };
    assert!(text.contains("failed with code 999"), "{text}");
}

#[test]
#[ignore = "another test starts it"]
fn is_refused() {
    let device = CudaDevice::open(0).expect("a device");
    println!("{}", device.create_physical(&AllocationRequest::new(PAGE, kind())).expect_err("refused"));
}

#[test]
fn partial_failures_are_undone() {
    let fault = |function: &str, nth| format!("fail={function}:{nth}:801");
    let faults = |function| [1, 2, 3].map(|nth| fault(function, nth)).join(",");
    let Some(device) =
        inside("partial_failures_are_undone", &[&faults("cuMemMap"), &faults("cuMemSetAccess")])
    else {
        return;
    };
    let before = free(&device);
    let reservation = device.reserve(8 * PAGE).expect("addresses");
    for _ in 0..3 {
        let error = device
            .create_and_map(&reservation, PAGE, &AllocationRequest::new(2 * PAGE, kind()))
            .expect_err("refused");
        assert!(matches!(error, BackendError::Driver { code: 801, .. }), "{error}");
        assert_eq!(free(&device), before, "nothing is left of it");
    }
    drop(reservation);
    check_nothing_is_left(&device, before);
}

/// The driver refuses to free addresses with a mapping, which would be left.
#[test]
fn a_reservation_is_unmapped_before_its_addresses_go() {
    let Some(device) = inside("a_reservation_is_unmapped_before_its_addresses_go", &[""]) else { return };
    let before = free(&device);
    let reservation = device.reserve(16 * PAGE).expect("addresses");
    for (page, pages) in [(1, 2), (3, 1), (8, 4)] {
        device
            .create_and_map(&reservation, page * PAGE, &AllocationRequest::new(pages * PAGE, kind()))
            .expect("memory");
    }
    assert_eq!(before - free(&device), 7 * PAGE);
    let calls = simulator().calls_of("cuMemUnmap").expect("a name");
    drop(reservation);
    assert_eq!(simulator().calls_of("cuMemUnmap").expect("a name") - calls, 2, "neighbours go in one call");
    check_nothing_is_left(&device, before);
}

#[test]
fn memory_of_another_device_is_not_imported() {
    let Some(device) = inside("memory_of_another_device_is_not_imported", &["foreign_imports=1"]) else {
        return;
    };
    let before = free(&device);
    let physical = device
        .create_shareable(&AllocationRequest::new(PAGE, kind()), ShareableKind::FileDescriptor)
        .expect("memory");
    let error = device.import(device.export(&physical).expect("a handle"), PAGE).expect_err("elsewhere");
    assert!(matches!(error, BackendError::InvalidArgument { argument: "handle", .. }), "{error}");
    drop(physical);
    check_nothing_is_left(&device, before);
}

/// After these the driver's header demands a new process. After the others the device goes on.
const LOST: [i32; 18] =
    [4, 46, 201, 214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 810];
const HARMLESS: [i32; 8] = [1, 2, 225, 304, 400, 720, 801, 999];

type Attempt = fn(&CudaDevice, &CudaStream) -> Result<(), BackendError>;

/// Each result of the driver that ends a context is reported as a lost device, an error that the hardware
/// contained among them.
#[test]
fn results_that_end_a_context_are_a_lost_device() {
    let Some(device) = inside("results_that_end_a_context_are_a_lost_device", &[""]) else { return };
    let stream = device.stream();
    let calls: [(&str, Attempt); 3] = [
        ("cuStreamSynchronize", |device, stream| device.synchronize(stream)),
        ("cuMemAlloc_v2", |device, _| device.allocate(&AllocationRequest::new(PAGE, kind())).map(drop)),
        ("cuEventRecord", |device, stream| device.record(stream).map(drop)),
    ];
    for code in LOST.into_iter().chain(HARMLESS) {
        for (function, call) in calls {
            simulator().fail(function, 1, code).expect("a name");
            let error = call(&device, &stream).expect_err("the call fails once");
            assert_eq!(error.is_device_lost(), LOST.contains(&code), "{function} returns {code}: {error}");
            let is_allocation = function == "cuMemAlloc_v2";
            assert_eq!(
                error.is_out_of_memory(),
                is_allocation && code == 2,
                "{function} returns {code}: {error}"
            );
            assert!(error.is_out_of_memory() || error.to_string().contains(&code.to_string()), "{error}");
            call(&device, &stream).expect("as before");
        }
    }
}

/// `cudarc` keeps an error of a destructor for its next call. A wait for all work reports its own alone.
#[test]
fn a_wait_for_all_work_reports_no_error_of_another_call() {
    let Some(device) = inside("a_wait_for_all_work_reports_no_error_of_another_call", &[""]) else { return };
    let earlier = DriverError(sys::CUresult::CUDA_ERROR_INVALID_VALUE);
    device.context().record_err::<()>(Err(earlier));
    let waited = device.synchronize_all();
    assert!(waited.is_ok(), "{waited:?}");
    assert_eq!(device.context().check_err(), Err(earlier), "it is still the program's");
}

/// Fails unless memory has what was written to it.
fn check_it_serves(device: &CudaDevice, memory: &CudaMemory) {
    let stream = device.stream();
    let (data, mut read) = (vec![5; memory.len() as usize], vec![0; memory.len() as usize]);
    device.upload(&stream, &data, RegionMut::whole(memory, &stream)).expect("an upload");
    device.download(&stream, Region::whole(memory, &stream), &mut read).expect("a download");
    assert!(read == data);
}

#[test]
fn a_device_that_shares_the_hosts_memory_is_integrated() {
    let Some(device) = inside("a_device_that_shares_the_hosts_memory_is_integrated", &["integrated=1"])
    else {
        return;
    };
    assert!(device.properties().is_integrated());
    let before = free(&device);
    for placement in [Placement::Device, Placement::HostVisible, Placement::Managed] {
        check_it_serves(&device, &device.memory(PAGE, placement));
    }
    check_nothing_is_left(&device, before);
}

#[test]
#[ignore = "another test starts it"]
fn asks_peers() {
    let [first, second] = [0, 1].map(|ordinal| CudaDevice::open(ordinal).expect("two devices"));
    let before = free(&first);
    let reservation = first.reserve(PAGE).expect("addresses");
    let physical =
        first.create_and_map(&reservation, 0, &AllocationRequest::new(PAGE, kind())).expect("memory");
    check_it_serves(&first, &reservation);
    check_it_serves(&second, &second.memory(PAGE, kind()));
    let calls = || simulator().calls_of("cuDevicePrimaryCtxGetState").expect("a name");
    let so_far = calls();
    first.synchronize_others().expect("done");
    first.unmap(&reservation, 0, PAGE).expect("unmapped");
    drop(physical);
    println!("asked {} peers", calls() - so_far);
    drop(reservation);
    check_nothing_is_left(&first, before);
}

/// Memory is mapped for the devices that reach it, and unmapped when their work is done. Others are not asked.
#[test]
fn only_devices_that_reach_memory_are_asked_before_it_is_unmapped() {
    for (peers, asked) in [(1, "asked 1 peers"), (0, "asked 0 peers")] {
        let Some(text) = run("asks_peers", &format!("devices=2,peers={peers}")) else { return };
        assert!(text.contains(asked), "{peers}: {text}");
    }
}

#[test]
fn a_device_without_pools_says_so_and_serves_without() {
    let Some(device) = inside("a_device_without_pools_says_so_and_serves_without", &["pools=0"]) else {
        return;
    };
    let before = free(&device);
    assert!(!device.properties().capabilities.contains(Capabilities::STREAM_ORDERED));
    for handle in [PoolHandle::Default, PoolHandle::Current, PoolHandle::Created] {
        let error = DriverPool::new(&device, handle).expect_err("no pools");
        assert!(matches!(error, BackendError::Unsupported { .. }), "{error}");
    }
    let stream = device.stream();
    let error = device.allocate_on(&AllocationRequest::new(PAGE, kind()), &stream).map(drop);
    assert!(matches!(error, Err(BackendError::Unsupported { .. })), "{error:?}");
    check_it_serves(&device, &device.memory(PAGE, kind()));
    check_nothing_is_left(&device, before);
}

#[test]
#[ignore = "another test starts it"]
fn opens_or_not() {
    println!("{:?}", CudaDevice::open(0).map(drop));
}

#[test]
fn a_driver_that_is_too_old_is_unavailable_and_its_version_is_named() {
    let Some(text) = run("opens_or_not", "version=11080") else { return };
    assert!(text.contains("Unavailable") && text.contains("CUDA 11.8; install 12.0 or newer"), "{text}");
    for version in [12_000, 14_020] {
        let Some(text) = run("opens_or_not", &format!("version={version}")) else { return };
        assert!(text.contains("Ok(())"), "{version}: {text}");
    }
}
