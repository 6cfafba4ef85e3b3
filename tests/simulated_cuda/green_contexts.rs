//! Streams that other code made in a green context.

use crate::simulated::Simulated;
use vrampool::cuda::CudaDevice;
use vrampool::{Backend, Pool};

/// `CUDA_ERROR_NOT_SUPPORTED`, which the first version of `cuStreamGetCtx` answers to them.
const NOT_SUPPORTED: i32 = 801;

#[test]
fn a_stream_of_a_green_context_is_one_of_its_device() {
    let Some(simulated) = Simulated::open() else { return };
    let device: &CudaDevice = &simulated.device;
    let own = device.create_stream().expect("a stream");
    simulated.simulator.fail("cuStreamGetCtx", 1, NOT_SUPPORTED).expect("no zero in it");
    // SAFETY: the stream lives as long as `own`, which is dropped last.
    let wrapped = unsafe { device.wrap_raw_stream(own.cudarc().cu_stream()) }.expect("by its second version");
    let pool = Pool::builder(device).build().expect("a pool");
    drop(pool.allocate(1000, &wrapped).expect("memory"));
    drop(pool.allocate(1000, &own).expect("memory"));
    assert_eq!(pool.stats().stream_waits, 0, "both are one stream");
    simulated.simulator.fail("cuStreamGetCtx", 1, 0).expect("no zero in it");
    drop((pool, wrapped, own));
}
