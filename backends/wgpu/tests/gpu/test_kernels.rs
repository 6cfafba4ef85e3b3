//! The kernels for tests find every wrong byte, wherever their operands lie.

use crate::first_device;
use std::cell::Cell;
use vrampool_backend::AllocationRequest;
use vrampool_test_support::pattern;
use vrampool_wgpu::{
    Backend, BackendError, Placement, Region, RegionMut, TestKernels, WgpuDevice, WgpuMemory, WgpuStream,
};

const SPACE: u64 = 4 << 20;
/// The byte between operands.
const GUARD: u8 = 0xA5;

/// All operands in one memory, each a few words behind the last, as an arena may put them.
struct Setup {
    device: WgpuDevice,
    stream: WgpuStream,
    kernels: TestKernels,
    memory: WgpuMemory,
    end: Cell<u64>,
}

#[derive(Clone, Copy)]
struct Place {
    offset: u64,
    len: u64,
}

impl Setup {
    fn new() -> Option<Self> {
        let device = first_device()?;
        let stream = device.create_stream().expect("a stream");
        let kernels = TestKernels::load(&device).expect("kernels");
        let memory = device.allocate(&AllocationRequest::new(SPACE, Placement::Device)).expect("memory");
        device.fill(&stream, RegionMut::whole(&memory, &stream), GUARD).expect("a fill");
        Some(Self { device, stream, kernels, memory, end: Cell::new(4) })
    }

    fn place(&self, len: u64) -> Place {
        let offset = self.end.get();
        self.end.set((offset + len).next_multiple_of(4) + 12);
        Place { offset, len }
    }

    fn put(&self, bytes: &[u8]) -> Place {
        let place = self.place(bytes.len() as u64);
        self.device.upload(&self.stream, bytes, self.at_mut(place)).expect("a copy");
        place
    }

    fn words(&self, values: &[u32]) -> Place {
        self.put(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())
    }

    fn at(&self, place: Place) -> Region<'_, WgpuMemory> {
        Region::new(&self.memory, place.offset, place.len, &self.stream).expect("a region")
    }

    fn at_mut(&self, place: Place) -> RegionMut<'_, WgpuMemory> {
        RegionMut::new(&self.memory, place.offset, place.len, &self.stream).expect("a region")
    }

    fn bytes(&self, place: Place) -> Vec<u8> {
        let mut bytes = vec![0; place.len as usize];
        self.device.download(&self.stream, self.at(place), &mut bytes).expect("a copy");
        bytes
    }
}

/// Nothing was written outside of any operand.
impl Drop for Setup {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let all = self.bytes(Place { offset: 0, len: SPACE });
            assert_eq!(all[..4], [GUARD; 4]);
            assert!(all[self.end.get() as usize - 8..].iter().all(|&byte| byte == GUARD));
        }
    }
}

#[test]
fn a_pattern_is_found_whole_and_every_wrong_byte_is_counted() {
    let Some(setup) = Setup::new() else { return };
    let Setup { stream, kernels, .. } = &setup;
    for (bytes, seed) in
        [(1u64, 7u64), (3, 8), (4, 0), (5, u64::MAX), (4099, 1 << 63), (1 << 20, 0xFFFF_FFFF)]
    {
        let place = setup.place(bytes);
        kernels.write_pattern(stream, setup.at_mut(place), seed).expect("queued");
        let written = setup.bytes(place);
        assert!(written == pattern(seed, bytes), "{bytes}, {seed}");
        let count = setup.words(&[0, 0]);
        let mismatches = |seed| {
            setup.device.fill(stream, setup.at_mut(count), 0).expect("a fill");
            kernels.count_mismatches(stream, setup.at(place), seed, setup.at_mut(count)).expect("queued");
            u64::from_le_bytes(setup.bytes(count).try_into().expect("8 bytes"))
        };
        assert_eq!(mismatches(seed), 0, "{bytes}");
        let wrong = pattern(9, bytes).iter().zip(&written).filter(|(one, other)| one != other).count();
        assert_eq!(mismatches(9), wrong as u64, "{bytes}");
        // The rest of the last word is unchanged.
        let end = Place { offset: place.offset, len: (bytes + 8).next_multiple_of(4) };
        assert!(setup.bytes(end)[bytes as usize..][..8].iter().all(|&byte| byte == GUARD), "{bytes}");
    }
}

/// The count has 64 bits, and the device adds 32 at a time.
#[test]
fn a_count_is_carried() {
    let Some(setup) = Setup::new() else { return };
    let count = setup.words(&[u32::MAX - 3, 1]);
    let bytes = setup.put(&[0; 64]);
    let wrong = pattern(5, 64).iter().filter(|&&byte| byte != 0).count() as u64;
    setup.kernels.count_mismatches(&setup.stream, setup.at(bytes), 5, setup.at_mut(count)).expect("queued");
    let found = u64::from_le_bytes(setup.bytes(count).try_into().expect("8 bytes"));
    assert_eq!(found, (1 << 32) + u64::from(u32::MAX - 3) + wrong);
}

#[test]
fn more_dispatches_than_one_submission_has() {
    let Some(setup) = Setup::new() else { return };
    let (bytes, count) = (setup.put(&[0; 4]), setup.words(&[0, 0]));
    let wrong = pattern(5, 4).iter().filter(|&&byte| byte != 0).count() as u64;
    for _ in 0..1000 {
        let counted = setup.at_mut(count);
        setup.kernels.count_mismatches(&setup.stream, setup.at(bytes), 5, counted).expect("queued");
    }
    let found = u64::from_le_bytes(setup.bytes(count).try_into().expect("8 bytes"));
    assert!(wrong > 0 && found == 1000 * wrong, "{found}");
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    let Some(setup) = Setup::new() else { return };
    let Setup { device, stream, kernels, .. } = &setup;
    let (small, large) = (setup.words(&[0; 2]), setup.words(&[0; 16]));
    let other = device.create_stream().expect("a stream");
    let odd = Place { offset: small.offset + 1, len: 8 };
    let elsewhere = WgpuDevice::open(0).expect("a device");
    let foreign = elsewhere.create_stream().expect("a stream");
    for refused in [
        kernels.count_mismatches(stream, setup.at(small), 0, setup.at_mut(large)),
        kernels.count_mismatches(stream, setup.at(small), 0, setup.at_mut(small)),
        kernels.count_mismatches(&other, setup.at(large), 0, setup.at_mut(small)),
        kernels.count_mismatches(&foreign, setup.at(large), 0, setup.at_mut(small)),
        kernels.write_pattern(stream, setup.at_mut(odd), 0),
        kernels.write_pattern(&other, setup.at_mut(large), 0),
        kernels.occupy(stream, setup.at_mut(odd), 1),
        kernels.occupy(&foreign, setup.at_mut(large), 1),
    ] {
        let error = refused.expect_err("it does not fit");
        assert!(matches!(error, BackendError::InvalidArgument { .. }), "{error}");
    }
    device.synchronize(stream).expect("no fault");
}
