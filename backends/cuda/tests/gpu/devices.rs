//! Devices by number and name, one handle to each, and several at once.

use crate::{BYTES, fill, first_device, memory, read};
use vrampool_backend::AllocationRequest;
use vrampool_cuda::cudarc::driver::{CudaContext, result, sys};
use vrampool_cuda::{Backend, BackendError, Capabilities, CudaDevice, Placement, RegionMut, list};
use vrampool_test_support::BackendExt;

#[test]
fn a_device_is_found_by_number_and_by_uuid() {
    let Some(device) = first_device() else { return };
    let listed = &list().expect("a list")[0];
    assert_eq!((listed.ordinal, listed), (0, device.listed()));
    let uuid = listed.uuid_text().expect("GPUs have one");
    eprintln!("{listed:?} {uuid} {:?}", device.properties());
    for name in ["cuda", "cuda:0", "0", &uuid, &uuid[..20], &uuid.replace("GPU", "MIG")] {
        assert_eq!(CudaDevice::open_by_name(name).expect(name).id(), device.id());
    }
    let refused = |answer: Result<CudaDevice, BackendError>| {
        let error = answer.expect_err("there is no such device");
        assert!(matches!(error, BackendError::InvalidArgument { argument: "device", .. }), "{error}");
        error.to_string()
    };
    assert!(refused(CudaDevice::open_by_name("opencl:0")).contains(&uuid));
    refused(CudaDevice::open(10_000));
    refused(CudaDevice::open(usize::MAX));
}

#[test]
fn properties_are_those_that_the_driver_reports() {
    let Some(device) = first_device() else { return };
    let properties = device.properties();
    assert_eq!(properties.backend, "cuda");
    assert_eq!(properties.kind, list().expect("a list")[0].kind);
    assert!(properties.capabilities.contains(Capabilities::HOST_VISIBLE | Capabilities::COPY_WITHIN_MEMORY));
    assert_eq!(properties.total_bytes, device.context().total_mem().expect("a size") as u64);
    assert!(device.memory_info().expect("memory info").free_bytes > 0);
}

#[test]
fn opening_a_device_again_gives_the_same_device() {
    let Some(device) = first_device() else { return };
    let again = CudaDevice::open(0).expect("a device");
    let wrapped = CudaDevice::from_context(CudaContext::new(0).expect("a context")).expect("a device");
    assert!(device.id() == again.id() && device.id() == wrapped.id());
    // One handle's memory and streams are the other's.
    let stream = again.stream();
    let memory = wrapped.memory(BYTES, Placement::Device);
    fill(&device, &stream, &memory, 3);
    assert_eq!(read(&device, &stream, &memory), vec![3; BYTES as usize]);
    let null = device.null_stream().expect("a stream");
    assert_eq!(null.cudarc().context(), device.context());
}

/// Not the primary context, made as another library would make it. The bindings of CUDA 13.2 and newer have
/// no call for it.
fn other_context() -> Option<std::sync::Arc<CudaContext>> {
    type Create = unsafe extern "system" fn(*mut sys::CUcontext, u32, sys::CUdevice) -> i32;
    // SAFETY: the driver's own library, which is loaded already.
    let library = unsafe { libloading::Library::new("libcuda.so.1") }.ok()?;
    // SAFETY: the type that CUDA's header gave the function of this name.
    let create = unsafe { library.get::<Create>("cuCtxCreate_v2") }.ok()?;
    let device = result::device::get(0).expect("a device");
    let mut context = std::ptr::null_mut();
    // SAFETY: the driver is initialised; the call writes one handle, which lives here.
    assert_eq!(unsafe { create(&raw mut context, 0, device) }, 0);
    // SAFETY: the context was created for this device, and nothing else destroys it.
    let context = unsafe { CudaContext::from_raw_context(0, device, context) }.expect("a context");
    // SAFETY: no context need be current.
    unsafe { result::ctx::set_current(std::ptr::null_mut()) }.expect("creating it has made it current");
    Some(context)
}

#[test]
fn a_context_beside_the_primary_one_is_a_device_of_its_own() {
    let Some(primary) = first_device() else { return };
    let Some(context) = other_context() else {
        vrampool_test_support::skipped("this driver creates no contexts in the old way");
        return;
    };
    let device = CudaDevice::from_context(context.clone()).expect("a device");
    assert_eq!(CudaDevice::from_context(context).expect("a device").id(), device.id());
    assert_ne!(device.id(), primary.id());
    assert_eq!(device.listed(), primary.listed());
    vrampool_backend::conformance::check(&device).expect("conforms");
    let (stream, memory) = (primary.stream(), memory(&device));
    let error = primary.fill(&stream, RegionMut::whole(&memory, &stream), 1).expect_err("another context's");
    assert!(matches!(error, BackendError::InvalidArgument { .. }), "{error}");
    assert!(device.wrap_stream(stream.cudarc().clone()).is_err());
    if let (Some(one), Some(two)) = (primary.virtual_memory(), device.virtual_memory()) {
        let kind = Placement::Device.into();
        let page = one.granularity(kind).expect("a granularity");
        let (reservation, physical) = (
            one.reserve(page).expect("addresses"),
            two.create_physical(&AllocationRequest::new(page, kind)).expect("memory"),
        );
        for refused in [one.map(&reservation, 0, &physical), two.map(&reservation, 0, &physical)] {
            let error = refused.expect_err("they are of two contexts");
            assert!(matches!(error, BackendError::InvalidArgument { .. }), "{error}");
        }
    }
    // The last handles go on the thread on which the context is current, and then on one on which it is not.
    drop(memory);
    device.context().bind_to_thread().expect("a context");
    drop(device);
    assert_eq!(result::ctx::get_current().expect("a context or none"), None);
    assert!(primary.memory_info().is_ok());
    let device = CudaDevice::from_context(other_context().expect("a context")).expect("a device");
    let stream = device.stream();
    let thread = std::thread::spawn(move || {
        drop((device, stream));
        assert_eq!(result::ctx::get_current().expect("a context or none"), None);
    });
    thread.join().expect("no panic");
}

#[test]
fn a_call_leaves_the_threads_context_as_it_was() {
    let Some(device) = first_device() else { return };
    let current = || result::ctx::get_current().expect("a context or none");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(current(), None);
            let stream = device.stream();
            let memory = memory(&device);
            fill(&device, &stream, &memory, 1);
            let event = device.record(&stream).expect("an event");
            device.wait(&stream, &event).expect("a wait");
            assert_eq!(read(&device, &stream, &memory)[0], 1);
            drop((memory, event, stream));
            device.memory_info().expect("memory info");
            CudaDevice::open(0).expect("a device");
            assert_eq!(current(), None);
        });
    });
}

#[test]
fn two_devices_work_side_by_side() {
    let Some(one) = first_device() else { return };
    let Ok(two) = CudaDevice::open(1) else {
        vrampool_test_support::skipped("there is one device");
        return;
    };
    assert_ne!(one.id(), two.id());
    let (first, second) = (one.stream(), two.stream());
    let (here, there) = (memory(&one), memory(&two));
    fill(&one, &first, &here, 1);
    fill(&two, &second, &there, 2);
    assert_eq!(read(&one, &first, &here), vec![1; BYTES as usize]);
    assert_eq!(read(&two, &second, &there), vec![2; BYTES as usize]);
    // A stream of one device may wait for an event of another.
    two.wait(&second, &one.record(&first).expect("an event")).expect("a wait");
    two.synchronize(&second).expect("a wait of the host");
}
