//! Several devices in one process: each reaches the virtual memory of the others, and none is left with work
//! on memory that is unmapped.

use crate::virtual_memory::{device, kind, mapped};
use vrampool_cuda::cudarc::driver::{result, sys};
use vrampool_cuda::{Backend, CudaDevice, CudaMemory, Memory, Region, RegionMut, VirtualMemory};
use vrampool_test_support::BackendExt;

/// Two devices, of which the second reaches the first one's memory, and the granularity. Others are skipped,
/// which says so.
fn two() -> Option<(CudaDevice, CudaDevice, u64)> {
    let (first, page) = device()?;
    let Ok(second) = CudaDevice::open(1) else {
        vrampool_test_support::skipped("there is one device");
        return None;
    };
    let mut can = 0;
    // SAFETY: the driver is initialised; the call writes one number. Ordinals are the driver's numbers here.
    let code = unsafe { sys::cuDeviceCanAccessPeer(&raw mut can, 1, 0) };
    if code != sys::CUresult::CUDA_SUCCESS || can == 0 {
        vrampool_test_support::skipped("the devices do not reach each other");
        return None;
    }
    Some((first, second, page))
}

/// As PyTorch copies from another device: by address, on the device's own stream.
fn copy_from(device: &CudaDevice, from: &CudaMemory, bytes: u64) -> (vrampool_cuda::CudaStream, CudaMemory) {
    let stream = device.stream();
    let to = device.memory(bytes, kind());
    device.ensure_context().expect("a context");
    let (source, destination) =
        (from.address().expect("CUDA has them"), to.address().expect("CUDA has them"));
    // SAFETY: as many bytes on both sides, which live until the copy is waited for.
    unsafe { result::memcpy_dtod_async(destination, source, bytes as usize, stream.cudarc().cu_stream()) }
        .expect("the device reaches it");
    (stream, to)
}

/// Under the simulated driver's detector, memory that is unmapped under work is a report, which ends the
/// process.
#[test]
fn the_work_of_other_devices_is_waited_for_before_memory_is_unmapped() {
    let Some((first, second, page)) = two() else { return };
    for round in 0..20 {
        let reservation = first.reserve(page).expect("addresses");
        let physical = mapped(&first, &reservation, 0, page);
        let stream = first.stream();
        first.fill(&stream, RegionMut::whole(&reservation, &stream), round).expect("a fill");
        first.synchronize(&stream).expect("done");
        let (theirs, copied) = copy_from(&second, &reservation, page);
        if round % 2 == 0 {
            first.synchronize_others().expect("done");
            first.unmap(&reservation, 0, page).expect("unmapped behind the copy");
            drop(physical);
        } else {
            drop((reservation, physical));
        }
        let mut bytes = vec![0; page as usize];
        second.download(&theirs, Region::whole(&copied, &theirs), &mut bytes).expect("the copy was made");
        assert!(bytes.iter().all(|&byte| byte == round), "round {round}");
    }
}

#[test]
fn waiting_for_a_device_waits_for_those_that_use_its_memory() {
    let Some((first, second, page)) = two() else { return };
    let reservation = first.reserve(page).expect("addresses");
    let _physical = mapped(&first, &reservation, 0, page);
    let (theirs, copied) = copy_from(&second, &reservation, page);
    first.synchronize_all().expect("done");
    // SAFETY: the stream exists; it is only asked whether its work is done.
    let done = unsafe { sys::cuStreamQuery(theirs.cudarc().cu_stream()) };
    assert_eq!(done, sys::CUresult::CUDA_SUCCESS);
    drop(copied);
}
