//! Memory out of `cudarc`'s slices and into them, freed once.

use crate::{BYTES, first_device, memory, read};
use vrampool_backend::AllocationRequest;
use vrampool_cuda::{Backend, BackendError, CudaMemory, Memory, Placement, RegionMut, Rejected};

#[test]
fn a_slice_becomes_memory_and_a_slice_again() {
    let Some(device) = first_device() else { return };
    let stream = device.create_stream().expect("a stream");
    let numbers: Vec<u32> = (0..10_000).collect();
    for _ in 0..20 {
        let slice = stream.cudarc().clone_htod(&numbers).expect("a slice");
        let memory = CudaMemory::from_slice(&device, slice).expect("memory");
        assert_eq!(memory.len(), 40_000);
        assert_eq!(read(&device, &stream, &memory), bytemuck::cast_slice::<u32, u8>(&numbers));
        let slice = memory.into_slice::<u32>(&stream).expect("a slice");
        assert_eq!(stream.cudarc().clone_dtoh(&slice).expect("a copy"), numbers);
        drop(slice);
        // Once more, and dropped as memory.
        let slice = stream.cudarc().clone_htod(&numbers).expect("a slice");
        drop(CudaMemory::from_slice(&device, slice).expect("memory"));
    }
    device.synchronize(&stream).expect("a wait");
    device.context().check_err().expect("no destructor failed");
}

#[test]
fn memory_of_the_driver_becomes_a_slice() {
    let Some(device) = first_device() else { return };
    let stream = device.create_stream().expect("a stream");
    for _ in 0..20 {
        let memory = memory(&device);
        device.fill(&stream, RegionMut::whole(&memory, &stream), 6).expect("a fill");
        let slice = memory.into_slice::<u8>(&stream).expect("a slice");
        assert_eq!(stream.cudarc().clone_dtoh(&slice).expect("a copy"), vec![6; BYTES as usize]);
        drop(slice);
        device.synchronize(&stream).expect("a wait");
        device.context().check_err().expect("the slice freed what another call had allocated");
    }
}

#[test]
fn memory_that_cannot_become_a_slice_is_returned_unchanged() {
    let Some(device) = first_device() else { return };
    let stream = device.create_stream().expect("a stream");
    let refused =
        |error: &BackendError| assert!(matches!(error, BackendError::InvalidArgument { .. }), "{error}");
    let pinned = device.allocate(&AllocationRequest::new(16, Placement::HostVisible)).expect("memory");
    let Rejected { error, value: pinned, .. } =
        pinned.into_slice::<u32>(&stream).expect_err("it is the host's");
    refused(&error);
    device.write_mapped(&pinned, 0, &[1; 16]).expect("it is as it was");
    let odd = device.allocate(&AllocationRequest::new(17, Placement::Device)).expect("memory");
    let Rejected { error, value: odd, .. } =
        odd.into_slice::<u32>(&stream).expect_err("it is not a whole number");
    refused(&error);
    assert_eq!(odd.len(), 17);
    let Rejected { error, value: _odd, .. } =
        odd.into_slice::<[u8; 0]>(&stream).expect_err("the type has no size");
    refused(&error);
}
