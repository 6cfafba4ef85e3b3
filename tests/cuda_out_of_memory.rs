//! The device runs out of memory: the ladder runs, the error explains, all memory is released, and work continues.
//! Alone in its process, because it takes everything.
#![cfg(feature = "cuda")]

use std::sync::Mutex;
use vrampool::backend::AllocationRequest;
use vrampool::cuda::{CudaDevice, CudaStream, DriverPool, PoolHandle, TestKernels};
use vrampool::{Backend, Error, Placement, Pool, Shortage, SizeClasses, Source};
use vrampool_test_support::{Count, require, streams};

/// Each test here takes everything.
static ALONE: Mutex<()> = Mutex::new(());

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

#[test]
fn the_last_gib_is_shared_out_and_more_is_an_error_that_explains() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(device) = require("cuda", || CudaDevice::open(0)) else { return };
    let kernels = TestKernels::load(&device).expect("kernels");
    let [stream]: [CudaStream; 1] = streams(&device);
    let before = device.memory_info().expect("memory info");
    let held = device
        .allocate(&AllocationRequest::new(before.free_bytes - GIB, Placement::Device))
        .expect("all but a GiB");
    for source in [Source::Direct, Source::Driver] {
        let builder = Pool::builder(&device).source(source).size_classes(SizeClasses::Multiple(2 * MIB));
        let pool = builder.budget(None).build().expect("a pool");
        let mut precious = pool.allocate(64 * MIB, &stream).expect("memory");
        kernels.write_pattern(&stream, precious.on_mut(&stream).expect("a region"), 9).expect("queued");
        // Idle memory that is in the way of what comes next.
        drop([(); 4].map(|()| pool.allocate(150 * MIB, &stream).expect("memory")));
        assert_eq!(pool.stats().idle_bytes, 600 * MIB, "{source}");
        let large = pool.allocate(700 * MIB, &stream).expect("after idle memory was released");
        assert!(pool.stats().rungs.trim > 0, "{source}");

        let earlier = pool.stats();
        let error = pool.allocate(4 * GIB, &stream).expect_err("there is no more");
        assert!(error.is_out_of_memory(), "{error}");
        let text = error.to_string();
        println!("{source}: {text}");
        assert!(text.contains("4294967296 bytes were requested") && text.contains("are free"), "{text}");
        assert!(text.contains("drop live buffers"), "{text}");
        let Error::OutOfMemory(error) = error else { panic!("{text}") };
        assert!(matches!(error.shortage, Shortage::Device(_)), "{error:?}");
        let stats = pool.stats();
        assert_eq!((stats.live_bytes, stats.rungs.fail), (earlier.live_bytes, 1), "{source}");
        assert_eq!(stats.held_bytes, stats.live_bytes, "{source}: nothing idle is kept back");

        // Work goes on, and no data was touched.
        drop(large);
        let mut next = pool.allocate(700 * MIB, &stream).expect("memory");
        kernels.write_pattern(&stream, next.on_mut(&stream).expect("a region"), 10).expect("queued");
        let count = Count::new(&device, &stream);
        for (buffer, seed) in [(&precious, 9), (&next, 10)] {
            let region = buffer.on(&stream).expect("a region");
            kernels.count_mismatches(&stream, region, seed, count.on(&stream)).expect("queued");
        }
        assert_eq!(count.read(&stream), 0, "{source}");
        drop((precious, next));
        pool.trim().expect("a trim");
        assert_eq!(pool.stats().held_bytes, 0, "{source}");
        device.synchronize(&stream).expect("no fault");
    }
    drop(held);
    let after = device.memory_info().expect("memory info");
    assert!(after.free_bytes + GIB / 4 >= before.free_bytes, "{before:?} {after:?}");
}

/// CuPy's test_alloc_large_chunk and test_free_all_blocks_large_chunk: memory that the driver's pool keeps is
/// not available to others until it is released, and a pool releases it before it fails.
#[test]
fn idle_memory_of_one_pool_is_released_for_others() {
    let _alone = ALONE.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let Some(device) = require("cuda", || CudaDevice::open(0)) else { return };
    let [stream]: [CudaStream; 1] = streams(&device);
    let pool = DriverPool::new(&device, PoolHandle::Created).expect("a pool");
    pool.set_release_threshold(u64::MAX).expect("a threshold");
    let free = device.memory_info().expect("memory info").free_bytes;
    drop(pool.allocate_on(free / 10 * 7, &stream).expect("memory"));
    device.synchronize(&stream).expect("no fault");
    // The 70 % lie in the way of the 80 %, unless the pool trims itself.
    drop(pool.allocate_on(free / 10 * 8, &stream).expect("the kept memory is released first"));
    device.synchronize(&stream).expect("no fault");
    // (CuPy's users found that nothing else got what is kept; a driver of CUDA 13.0 gives it, and then the
    // pool has less.)
    assert!(pool.total_bytes().expect("figures") >= free / 10 * 8);
    pool.free_all_blocks(&stream).expect("a trim");
    assert_eq!(pool.total_bytes(), Ok(0));
    drop(
        device
            .allocate(&AllocationRequest::new(free / 10 * 9, Placement::Device))
            .expect("it is the device's again"),
    );

    let error = pool.allocate_on(free * 2, &stream).expect_err("more than there is");
    assert!(error.is_out_of_memory() && error.to_string().contains("are free"), "{error}");
    assert_eq!((pool.live_bytes(), pool.total_bytes()), (0, Ok(0)));
    drop(pool.allocate_on(1 << 20, &stream).expect("work goes on"));
}
