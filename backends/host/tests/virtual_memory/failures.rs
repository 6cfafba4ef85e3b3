//! A fault at every call, and the device's loss: what failed has done nothing.

use crate::laws::{CAPACITY, PAGE, Real};
use vrampool_backend::AllocationRequest;
use vrampool_host::{
    Backend, BackendError, Call, HostDevice, HostMemory, Physical, Placement, RegionMut, VirtualMemory,
};

/// Grows by a page, as a pool does.
fn grow(device: &HostDevice, reservation: &HostMemory) -> Result<Physical, BackendError> {
    device.create_and_map(reservation, PAGE, &AllocationRequest::new(PAGE, Placement::Device))
}

#[test]
fn a_call_that_fails_has_done_nothing() {
    let errors = [None, Some(BackendError::out_of_memory(PAGE, Some(0))), Some(BackendError::lost("a test"))];
    for (call, error) in [Call::CreatePhysical, Call::Map, Call::SetAccess]
        .into_iter()
        .flat_map(|call| errors.clone().map(|error| (call, error)))
    {
        let real = Real::new();
        let device = &real.device;
        let reservation = device.reserve(3 * PAGE).expect("addresses");
        let kept = device.create_physical(&AllocationRequest::new(PAGE, Placement::Device)).expect("memory");
        device.map(&reservation, 0, &kept).expect("room");
        device.set_access(&reservation, 0, PAGE).expect("mapped");
        match &error {
            Some(error) => device.faults().fail_nth_with(call, 1, error.clone()),
            None => device.faults().fail_nth(call, 1),
        }
        let answer = grow(device, &reservation).expect_err("it was made to fail");
        assert!(error.is_none_or(|error| error == answer), "{answer}");
        let free = device.memory_info().expect("no fault").free_bytes;
        assert_eq!(free, (CAPACITY - 1) * PAGE, "{call:?} took memory");
        grow(device, &reservation).expect("nothing is in the way");
        device.faults().fail_nth(Call::Unmap, 1);
        assert!(device.unmap(&reservation, 0, 2 * PAGE).is_err());
        real.work(|stream| device.fill(stream, RegionMut::new(&reservation, 0, 2 * PAGE, stream)?, 1))
            .expect("it is mapped still");
        device.unmap(&reservation, 0, 2 * PAGE).expect("mapped");
    }
}

#[test]
fn a_lost_device_answers_that_and_gives_memory_back() {
    let real = Real::new();
    let device = &real.device;
    let reservation = device.reserve(2 * PAGE).expect("addresses");
    grow(device, &reservation).expect("room");
    let other = device.create_physical(&AllocationRequest::new(PAGE, Placement::Device)).expect("memory");
    device.faults().lose_device();
    let answers = [
        device.reserve(PAGE).map(drop),
        device.create_physical(&AllocationRequest::new(PAGE, Placement::Device)).map(drop),
        device.map(&reservation, 0, &other),
        device.set_access(&reservation, PAGE, PAGE),
        device.unmap(&reservation, PAGE, PAGE),
    ];
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(BackendError::is_device_lost)));
    drop((reservation, other));
    assert_eq!(device.faults().calls(Call::ReleasePhysical), 2);
}
