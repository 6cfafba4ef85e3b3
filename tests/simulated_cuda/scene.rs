//! A scripted scene and the parts of one. Tests of other crates include this file.

use std::error::Error;
use vrampool::cuda::{CudaDevice, CudaStream};
use vrampool::{Backend, Placement, Pool};

pub(crate) const KIB: u64 = 1 << 10;

/// Whether all contents were right.
pub(crate) type Outcome = Result<bool, Box<dyn Error>>;

pub(crate) struct Scene {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&CudaDevice) -> Outcome,
}

pub(crate) fn streams<const N: usize>(device: &CudaDevice) -> Result<[CudaStream; N], Box<dyn Error>> {
    let streams: Vec<_> = (0..N).map(|_| device.create_stream()).collect::<Result<_, _>>()?;
    streams.try_into().map_err(|_| "another number of streams".into())
}

/// The unit of virtual memory, which the simulator is set to keep small.
pub(crate) fn page(device: &CudaDevice) -> Result<u64, Box<dyn Error>> {
    let memory = device.virtual_memory().ok_or("no virtual memory")?;
    Ok(memory.granularity(Placement::Device.into())?)
}

/// Compares as the C library does, because these tests are built without optimisation.
pub(crate) fn is_all(bytes: &[u8], value: u8) -> bool {
    bytes == vec![value; bytes.len()]
}

/// Runs a part of a scene with a pool and streams. Where a call failed in it, nothing of the pool is live, and
/// it serves the next request.
pub(crate) fn on_pool<const N: usize>(
    pool: &Pool<CudaDevice>,
    part: impl FnOnce([CudaStream; N]) -> Outcome,
) -> Outcome {
    let outcome = streams(pool.device()).and_then(part);
    let accounts = || {
        let stats = pool.stats();
        let idle = (stats.live_bytes, stats.in_transit_bytes, stats.held_bytes - stats.idle_bytes);
        assert_eq!(idle, (0, 0, 0), "{outcome:?}: {stats:?}");
    };
    accounts();
    if outcome.is_err() {
        let [stream] = after_a_fault(pool.device());
        let mut next = pool.allocate(4 * KIB, &stream).expect("the pool serves on");
        let mut read = vec![0; 4 * KIB as usize];
        next.write(&vec![3; read.len()], &stream).expect("queued");
        next.read(&mut read, &stream).expect("no fault");
        assert!(is_all(&read, 3));
        drop(next);
        accounts();
    }
    outcome
}

/// A stream for what comes after a call that failed.
pub(crate) fn after_a_fault(device: &CudaDevice) -> [CudaStream; 1] {
    // `cudarc` keeps an error of a destructor for its next call.
    let _ = device.context().check_err();
    streams(device).expect("the fault is over")
}
