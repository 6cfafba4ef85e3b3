//! Memory is never reused while earlier work may still access it. Without the pool's waits it is, and the
//! bytes are wrong.

use std::time::Duration;
use vrampool::backend::AllocationRequest;
use vrampool::cuda::{CudaDevice, CudaStream, TestKernels};
use vrampool::{Amount, Backend, Placement, Pool, Region, RegionMut, Source};
use vrampool_cuda_simulator_control::{ExpectedReports, Simulator};
use vrampool_test_support::{AuditDevice, require, streams};

type Device = AuditDevice<CudaDevice>;

const ROUNDS: usize = 1000;
const BYTES: u64 = 64 << 10;
const BUSY: Duration = Duration::from_millis(1);

/// In how many rounds `a`, which wrote a buffer and reads it after a while, reads what `b` wrote, which
/// borrows the same memory in the meantime. `reader`: whether a third stream reads it, not `a`.
fn spoilt(device: &Device, kernels: &TestKernels, source: Source, with_reader: bool) -> usize {
    let pool = Pool::builder(device)
        .source(source)
        .limit(4 << 20)
        .overlap(Amount::Bytes(0))
        .build()
        .expect("a pool");
    let [a, b, c]: [CudaStream; 3] = streams(device.inner());
    let result = device.allocate(&AllocationRequest::new(BYTES, Placement::Device)).expect("memory");
    let reader = if with_reader { &c } else { &a };
    let mut bytes = vec![0; BYTES as usize];
    let mut wrong = 0;
    for _ in 0..ROUNDS {
        let mut buffer = pool.allocate(BYTES, &a).expect("memory");
        device.fill(&a, buffer.on_mut(&a).expect("a region"), 1).expect("queued");
        device.synchronize(&a).expect("no fault");
        kernels.delay(reader, BUSY).expect("queued");
        let region = buffer.on(reader).expect("a region");
        device.copy(reader, region, RegionMut::whole(&result, reader)).expect("queued");
        let address = vrampool::Memory::address(&*buffer.memory());
        drop(buffer);
        let mut borrowed = pool.allocate(BYTES, &b).expect("memory");
        assert_eq!(vrampool::Memory::address(&*borrowed.memory()), address, "the same memory at once");
        device.fill(&b, borrowed.on_mut(&b).expect("a region"), 2).expect("queued");
        drop(borrowed);
        device.download(reader, Region::whole(&result, reader), &mut bytes).expect("no fault");
        wrong += usize::from(bytes.iter().any(|&byte| byte != 1));
        // The next round begins with nothing under way.
        device.synchronize(&b).expect("no fault");
    }
    wrong
}

#[test]
fn another_streams_memory_is_spoilt_without_the_wait_and_never_with_it() {
    let Some(gpu) = require("cuda", || CudaDevice::open(0)) else { return };
    let kernels = TestKernels::load(&gpu).expect("kernels");
    for &source in Source::ALL {
        for with_reader in [false, true] {
            let device = Device::new(gpu.clone());
            assert_eq!(spoilt(&device, &kernels, source, with_reader), 0, "{source}, {with_reader}");
            device.remove_waits();
            let reports = Simulator::loaded().map(Simulator::expect_reports);
            let wrong = spoilt(&device, &kernels, source, with_reader);
            println!(
                "{source}, a reader: {with_reader}: {wrong} of {ROUNDS} rounds without waits are spoilt"
            );
            match reports.map(ExpectedReports::end) {
                // The detector sees each wait that is left out, whether or not the contents show it. In a round
                // whose delay is over before the host asks, there is none.
                Some(reports) => {
                    assert!(reports > ROUNDS as u64 / 2, "{source}, {with_reader}: {reports} reports")
                }
                None => assert!(wrong > ROUNDS / 2, "{source}, {with_reader}: {wrong} rounds"),
            }
        }
    }
}

/// Released memory gets no other owner before the work on it is complete, although no call waits.
#[test]
fn memory_goes_back_behind_the_streams_that_read_it() {
    let Some(device) = require("cuda", || CudaDevice::open(0)) else { return };
    let kernels = TestKernels::load(&device).expect("kernels");
    for &source in Source::ALL {
        // Nothing is kept, so that every buffer goes back to the source at once.
        let builder = Pool::builder(&device).source(source).limit(4 << 20);
        let pool = builder.max_cached_bytes(0).build().expect("a pool");
        let [a, b, c]: [CudaStream; 3] = streams(&device);
        let result = device.allocate(&AllocationRequest::new(BYTES, Placement::Device)).expect("memory");
        let mut bytes = vec![0; BYTES as usize];
        for round in 0..200 {
            let mut buffer = pool.allocate(BYTES, &a).expect("memory");
            device.fill(&a, buffer.on_mut(&a).expect("a region"), 1).expect("queued");
            kernels.delay(&b, BUSY).expect("queued");
            let region = buffer.on(&b).expect("a region");
            device.copy(&b, region, RegionMut::whole(&result, &b)).expect("queued");
            drop(buffer);
            for stream in [&a, &c] {
                let mut other = pool.allocate(BYTES, stream).expect("memory");
                device.fill(stream, other.on_mut(stream).expect("a region"), 2).expect("queued");
            }
            device.download(&b, Region::whole(&result, &b), &mut bytes).expect("no fault");
            assert!(bytes.iter().all(|&byte| byte == 1), "{source}, round {round}");
        }
    }
}

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
