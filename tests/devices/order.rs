//! Memory is neither reused nor read while earlier work on another stream may still access it: random work
//! on several streams verifies every buffer. The same work without the pool's waits finds wrong bytes.

use crate::there::{self, There};
use crate::{KIB, MIB};
use fastrand::Rng;
use vrampool::any::{AnyDevice, AnyMemory, AnyStream};
use vrampool::backend::AllocationRequest;
use vrampool::{Backend, BackendError, Placement, Pool, Region, RegionMut, Source};
use vrampool_cuda_simulator_control::Simulator;
use vrampool_test_support::{AuditDevice, AuditMemory};

type Device = AuditDevice<AnyDevice>;

const BUFFERS: u64 = 300;
const STREAMS: usize = 2;

/// Memory that is filled to keep a stream busy.
struct Ballast<'a> {
    there: &'a There,
    memories: [AnyMemory; STREAMS],
}

impl<'a> Ballast<'a> {
    fn new(there: &'a There) -> Self {
        // As much as takes longer to fill than work takes to enqueue.
        let bytes = if there.is_fast() { 64 * MIB } else { MIB };
        let memory =
            |_| there.device.allocate(&AllocationRequest::new(bytes, Placement::Device)).expect("memory");
        Self { there, memories: std::array::from_fn(memory) }
    }

    fn load(&self, streams: &[AnyStream; STREAMS], nth: usize, fills: u8) {
        for value in 0..fills {
            let region = RegionMut::whole(&self.memories[nth], &streams[nth]);
            self.there.device.fill(&streams[nth], region, value).expect("queued");
        }
    }
}

/// The memory under the audit.
fn below<'a>(region: Region<'a, AuditMemory<AnyDevice>>) -> Result<Region<'a, AnyMemory>, BackendError> {
    region.project(|memory| Ok(&memory.inner))
}

/// How many bytes were read that nothing had written there: buffers are written on one stream and read on
/// another, with either busy now and then, and are dropped while work on them is under way.
fn wrong_bytes(there: &There, device: &Device, source: Source, max_cached: u64, seed: u64) -> u64 {
    let mut rng = Rng::with_seed(seed);
    let builder = Pool::builder(device).source(source).limit(4 * MIB).max_cached_bytes(max_cached);
    let pool = builder.max_buffers_per_bucket(2).build().expect("a pool");
    let streams: [AnyStream; STREAMS] = there.streams();
    let ballast = Ballast::new(there);
    let counts = streams.each_ref().map(|stream| there.count(stream));
    let mut kept = Vec::new();
    for number in 0..BUFFERS {
        let (writer, reader) = (rng.usize(..STREAMS), rng.usize(..STREAMS));
        let bytes = there.rounded(rng.u64(1..=64 * KIB));
        let mut buffer = pool.allocate(bytes, &streams[writer]).expect("memory");
        if rng.u8(..4) == 0 {
            ballast.load(&streams, writer, rng.u8(..8));
        }
        let region = buffer.on_mut(&streams[writer]).expect("a region");
        there.write(&streams[writer], region.project(|memory| Ok(&memory.inner)).expect("it fits"), number);
        if rng.u8(..8) == 0 {
            ballast.load(&streams, reader, rng.u8(..8));
        }
        let region = buffer.on(&streams[reader]).expect("a region");
        counts[reader].verify(below(region).expect("it fits"), number);
        if rng.u8(..3) == 0 {
            kept.push((number, buffer));
        }
        if kept.len() > 6 {
            let (number, buffer) = kept.swap_remove(rng.usize(..kept.len()));
            let last = rng.usize(..STREAMS);
            let region = buffer.on(&streams[last]).expect("a region");
            counts[last].verify(below(region).expect("it fits"), number);
        }
    }
    counts.iter().map(there::Count::read).sum()
}

#[test]
fn random_work_on_two_streams_never_sees_anothers_data() {
    there::on_each(|there| {
        for source in there.sources() {
            // With a cache, and with every buffer released to the source at once.
            for (seed, max_cached) in [(1, 2 * MIB), (2, 2 * MIB), (3, 0), (4, 0)] {
                let device = Device::new(there.device.clone());
                let wrong = wrong_bytes(there, &device, source, max_cached, seed);
                assert_eq!(wrong, 0, "{}, {source}, seed {seed}", there.name);
            }
        }
    });
}

/// The law above is able to fail.
#[test]
fn random_work_without_waits_sees_anothers_data() {
    there::on_each(|there| {
        if !there.has_concurrent_streams() {
            return;
        }
        // The simulated CUDA driver reports what this does.
        let _reports = Simulator::loaded().map(Simulator::expect_reports);
        for source in there.sources() {
            let rounds = (0..50).map(|seed| {
                let device = Device::new(there.device.clone());
                device.remove_waits();
                wrong_bytes(there, &device, source, 2 * MIB, seed)
            });
            let (round, wrong) = (1..).zip(rounds).find(|&(_, wrong)| wrong > 0).unwrap_or_default();
            println!("{}, {source}: {wrong} bytes are wrong in round {round}", there.name);
            assert!(wrong > 0, "{}, {source}: no wrong data in 50 rounds without waits", there.name);
        }
    });
}
