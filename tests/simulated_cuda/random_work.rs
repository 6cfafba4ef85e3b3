//! A million random operations of pools on two devices and four streams: no race, and no wrong contents.

use crate::Simulated;
use fastrand::Rng;
use vrampool::cuda::{CudaDevice, CudaStream};
use vrampool::{Backend, Buffer, Pool, Source};

const OPERATIONS: usize = 1_000_000;

struct Side {
    device: CudaDevice,
    pool: Pool<CudaDevice>,
    streams: Vec<CudaStream>,
    kept: Vec<(u8, Buffer<CudaDevice>)>,
}

impl Side {
    fn new(device: CudaDevice, source: Source) -> Self {
        let pool = Pool::builder(&device).source(source).limit(16 << 20).build().expect("a pool");
        let streams = (0..2).map(|_| device.create_stream().expect("a stream")).collect();
        Self { device, pool, streams, kept: Vec::new() }
    }

    fn step(&mut self, rng: &mut Rng) {
        let stream = &self.streams[rng.usize(..self.streams.len())];
        match rng.u8(..100) {
            0..40 => {
                if self.kept.len() > 24 {
                    self.kept.swap_remove(rng.usize(..self.kept.len()));
                }
                let value = rng.u8(..);
                let mut buffer = self.pool.allocate(rng.u64(1..=64 << 10), stream).expect("memory");
                self.device.fill(stream, buffer.on_mut(stream).expect("a region"), value).expect("queued");
                self.kept.push((value, buffer));
            }
            40..70 if !self.kept.is_empty() => {
                self.kept.swap_remove(rng.usize(..self.kept.len()));
            }
            70..80 if self.kept.len() > 1 => {
                let (value, from) = self.kept.swap_remove(rng.usize(..self.kept.len()));
                let mut to = self.pool.allocate(from.len(), stream).expect("memory");
                let (source, target) =
                    (from.on(stream).expect("a region"), to.on_mut(stream).expect("a region"));
                self.device.copy(stream, source, target).expect("queued");
                self.kept.push((value, to));
            }
            80..95 if !self.kept.is_empty() => {
                let (_, buffer) = &self.kept[rng.usize(..self.kept.len())];
                buffer.used_on(stream).expect("a use");
            }
            95..98 if !self.kept.is_empty() => {
                let (value, buffer) = &self.kept[rng.usize(..self.kept.len())];
                let mut bytes = vec![0; buffer.len() as usize];
                buffer.read(&mut bytes, stream).expect("no fault");
                assert!(bytes == vec![*value; bytes.len()]);
            }
            98 => {
                self.pool.trim().expect("a trim");
            }
            _ => self.device.synchronize(stream).expect("no fault"),
        }
    }
}

#[test]
fn random_work_on_two_devices_is_free_of_races() {
    let Some(simulated) = Simulated::open() else { return };
    let Ok(second) = CudaDevice::open(1) else {
        eprintln!("skipped: the driver simulates one device (VRAMPOOL_SIMULATOR=devices=2)");
        return;
    };
    for (seed, source) in (1..).zip(Source::ALL.iter().copied()) {
        let mut rng = Rng::with_seed(seed);
        let mut sides = [simulated.device.clone(), second.clone()].map(|device| Side::new(device, source));
        for _ in 0..OPERATIONS / Source::ALL.len() {
            let side = rng.usize(..2);
            sides[side].step(&mut rng);
        }
    }
    assert_eq!(simulated.simulator.reports(), (0, String::new()));
}
