//! Memory of streams that no longer exist.

use vrampool::cuda::{CudaDevice, CudaStream};
use vrampool::{Backend, Pool, Source};
use vrampool_test_support::{require, streams};

const BYTES: u64 = 64 << 10;

/// A stream that others destroy is retired; what was on it is found again, and goes back, all the same.
#[test]
fn memory_of_a_retired_stream_is_reused_and_freed() {
    let Some(device) = require("cuda", || CudaDevice::open(0)) else { return };
    for &source in Source::ALL {
        let pool = Pool::builder(&device).source(source).limit(4 << 20).build().expect("a pool");
        let [dead, alive]: [CudaStream; 2] = streams(&device);
        let mut buffers = [(); 2].map(|()| pool.allocate(BYTES, &dead).expect("memory"));
        for buffer in &mut buffers {
            device.fill(&dead, buffer.on_mut(&dead).expect("a region"), 1).expect("queued");
            buffer.used_on(&alive).expect("a use");
        }
        dead.retire().expect("its work is done");
        drop(buffers);
        let mut reused = pool.allocate(BYTES, &alive).expect("memory");
        device.fill(&alive, reused.on_mut(&alive).expect("a region"), 2).expect("queued");
        drop(reused);
        assert_eq!(pool.trim().expect("a trim"), 2 * BYTES, "{source}");
        assert_eq!(pool.stats().held_bytes, 0, "{source}");
        device.synchronize(&alive).expect("no fault");
    }
}
