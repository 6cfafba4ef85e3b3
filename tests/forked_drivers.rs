//! Objects of drivers in a forked child: every call fails with a typed error, drops do nothing, and nothing waits. A
//! program of its own, because other tests' children exit normally and run the drivers' exit handlers.
#![cfg(all(target_os = "linux", feature = "cuda", feature = "opencl", feature = "wgpu"))]

use std::mem::ManuallyDrop;
use vrampool::backend::AllocationRequest;
use vrampool::{Backend, Event, Placement, Pool, Region};
use vrampool_test_support::{assert_forked, end_at_once, in_child_that_ends};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A child with objects of a device and of a pool on it, whose driver has threads.
fn assert_objects_refuse_a_child<B: Backend>(device: B) {
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).build().expect("a pool");
    let mut buffer = pool.allocate(4 * KIB, &stream).expect("memory");
    buffer.write(&[1; 4], &stream).expect("queued");
    let memory = device.allocate(&AllocationRequest::new(4 * KIB, Placement::Device)).expect("memory");
    let event = device.record(&stream).expect("an event");
    let mut mine = ManuallyDrop::new((event, buffer, memory, pool, stream, device));
    for _ in 0..5 {
        let act = || {
            let (event, buffer, memory, pool, stream, device) = &mut *mine;
            assert_forked(pool.allocate(KIB, stream));
            assert_forked(buffer.read(&mut [1; 4], stream));
            assert_forked(event.is_complete());
            assert_forked(device.create_stream());
            assert_forked(device.synchronize(stream));
            assert_forked(device.record(stream));
            assert_forked(device.wait(stream, event));
            assert_forked(device.flush(stream).and_then(|()| device.reclaim()));
            assert_forked(device.memory_info());
            assert_forked(device.allocate(&AllocationRequest::new(KIB, Placement::Device)));
            assert_forked(device.write_mapped(memory, 0, &[1]));
            assert_forked(device.read_mapped(memory, 0, &mut [1]));
            assert_forked(device.mapped(memory));
            assert_forked(device.download(stream, Region::whole(&*memory, stream), &mut vec![0; 4096]));
            // SAFETY: this process drops them here and ends, and the parent drops its own.
            unsafe { ManuallyDrop::drop(&mut mine) };
        };
        in_child_that_ends(act, end_at_once);
    }
    let (_, buffer, .., stream, device) = ManuallyDrop::into_inner(mine);
    let mut read = [0; 4];
    buffer.read(&mut read, &stream).expect("the parent's works");
    assert_eq!(read, [1; 4]);
    device.synchronize(&stream).expect("no fault");
}

#[test]
fn objects_of_an_opencl_driver_refuse_a_child() {
    match vrampool::opencl::OpenClDevice::open(0) {
        Ok(device) => assert_objects_refuse_a_child(device),
        Err(error) => vrampool_test_support::skipped(format_args!("{error}")),
    }
}

#[test]
fn objects_of_wgpu_refuse_a_child() {
    match vrampool::wgpu::WgpuDevice::open(0) {
        Ok(device) => assert_objects_refuse_a_child(device),
        Err(error) => vrampool_test_support::skipped(format_args!("{error}")),
    }
}

/// On the simulated driver, which counts its calls.
#[test]
fn objects_of_the_cuda_driver_refuse_a_child_without_a_call_of_the_driver() {
    use vrampool::backend::VirtualMemory;
    use vrampool::cuda::{CudaDevice, DriverPool, PoolHandle, TestKernels};
    use vrampool::{Event, Placement, Pool, Region, Source};
    use vrampool_cuda_simulator_control::Simulator;

    let Some(simulator) = Simulator::or_skip() else { return };
    let device = CudaDevice::open(0).expect("the simulated driver has a device");
    let stream = device.create_stream().expect("a stream");
    let pool = Pool::builder(&device).source(Source::Virtual).limit(64 * MIB).build().expect("a pool");
    let driver_pool = DriverPool::new(&device, PoolHandle::Current).expect("a pool");
    let mut buffer = pool.allocate(3 * MIB, &stream).expect("memory");
    buffer.write(&[1], &stream).expect("queued");
    let memory = device.allocate(&AllocationRequest::new(4 * KIB, Placement::HostVisible)).expect("memory");
    let charged = driver_pool.allocate_on(KIB, &stream).expect("memory");
    let kernels = TestKernels::load(&device).expect("kernels");
    let range = device.reserve(2 * MIB).expect("addresses");
    let physical =
        device.create_physical(&AllocationRequest::new(2 * MIB, Placement::Device)).expect("memory");
    let event = device.record(&stream).expect("an event");
    device.synchronize(&stream).expect("no fault");
    let own = (event, buffer, memory, charged, kernels, range, physical, driver_pool, pool, stream, device);
    let mut mine = ManuallyDrop::new(own);
    let act = || {
        let calls = simulator.calls();
        let (event, buffer, memory, _, _, range, physical, driver_pool, pool, stream, device) = &mut *mine;
        assert_forked(pool.allocate(KIB, stream));
        assert_forked(buffer.read(&mut [1], stream));
        assert_forked(event.is_complete());
        assert_forked(device.create_stream());
        assert_forked(device.null_stream());
        assert_forked(device.per_thread_stream());
        assert_forked(device.synchronize(stream));
        assert_forked(device.synchronize_all());
        assert_forked(device.record(stream));
        assert_forked(device.wait(stream, event));
        assert_forked(device.is_capturing(stream));
        assert_forked(device.capture_of(stream));
        assert_forked(device.memory_info());
        assert_forked(device.ensure_context());
        assert_forked(device.allocate(&AllocationRequest::new(KIB, Placement::Device)));
        assert_forked(device.allocate_on(&AllocationRequest::new(KIB, Placement::Device), stream));
        assert_forked(device.write_mapped(memory, 0, &[1]));
        assert_forked(device.read_mapped(memory, 0, &mut [1]));
        assert_forked(device.mapped(memory));
        assert_forked(device.reserve(2 * MIB));
        assert_forked(device.create_physical(&AllocationRequest::new(2 * MIB, Placement::Device)));
        assert_forked(device.map(range, 0, physical));
        assert_forked(device.unmap(range, 0, 2 * MIB));
        assert_forked(stream.view::<u8>(Region::whole(&*memory, stream)).map(drop));
        assert_forked(driver_pool.used_bytes());
        assert_forked(driver_pool.trim_to(0));
        assert_forked(driver_pool.allocate_on(KIB, stream));
        assert_forked(CudaDevice::open(0));
        assert_forked(stream.retire());
        // SAFETY: this process drops them here and ends, and the parent drops its own.
        unsafe { ManuallyDrop::drop(&mut mine) };
        assert_eq!(simulator.calls(), calls, "calls of the driver");
    };
    in_child_that_ends(act, end_at_once);
    let (_, buffer, .., stream, device) = ManuallyDrop::into_inner(mine);
    let mut read = [0];
    buffer.read(&mut read, &stream).expect("the parent's works");
    assert_eq!(read, [1]);
    device.synchronize(&stream).expect("no fault");
}
