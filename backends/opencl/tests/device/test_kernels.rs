//! The kernels for tests find every wrong byte, on regions anywhere.

use crate::all_devices;
use std::ops::Range;
use vrampool_backend::AllocationRequest;
use vrampool_opencl::{
    Backend, BackendError, DeviceKind, OpenClDevice, OpenClMemory, OpenClStream, Placement, Region,
    RegionMut, TestKernels,
};

/// Where in its memory a region of values begins, bytes, so that an offset that is forgotten is seen.
const BEFORE: u64 = 24;

struct Setup {
    device: OpenClDevice,
    stream: OpenClStream,
    kernels: TestKernels,
}

/// Values in the middle of a memory.
struct Values {
    memory: OpenClMemory,
    bytes: u64,
    stream: OpenClStream,
}

impl Values {
    fn region(&self) -> Region<'_, OpenClMemory> {
        self.region_mut().as_region()
    }

    fn region_mut(&self) -> RegionMut<'_, OpenClMemory> {
        RegionMut::new(&self.memory, BEFORE, self.bytes, &self.stream).expect("a region")
    }
}

/// Every device, as it is and as if it were discrete: memory is in other places then.
fn setups() -> Vec<Setup> {
    let setup = |device: OpenClDevice| Setup {
        stream: device.create_stream().expect("a stream"),
        kernels: TestKernels::load(&device).expect("kernels"),
        device,
    };
    let discrete = |device: &OpenClDevice| {
        let builder = OpenClDevice::builder(device.listed().ordinal).kind(DeviceKind::Discrete);
        builder.build().expect("a device")
    };
    all_devices().into_iter().flat_map(|device| [discrete(&device), device]).map(setup).collect()
}

impl Setup {
    fn bytes(&self, bytes: &[u8]) -> Values {
        let len = bytes.len() as u64;
        let memory = self
            .device
            .allocate(&AllocationRequest::new(BEFORE + len + 8, Placement::Device))
            .expect("memory");
        self.device.fill(&self.stream, RegionMut::whole(&memory, &self.stream), 0xA5).expect("a fill");
        let values = Values { memory, bytes: len, stream: self.stream.clone() };
        self.device.upload(&self.stream, bytes, values.region_mut()).expect("an upload");
        values
    }

    fn values(&self, values: &[f32]) -> Values {
        self.bytes(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<_>>())
    }

    /// Checks that the bytes around the values are unchanged.
    fn read_bytes(&self, values: &Values) -> Vec<u8> {
        let mut bytes = crate::read(&self.device, &self.stream, &values.memory);
        let inside: Range<usize> = BEFORE as usize..(BEFORE + values.bytes) as usize;
        assert!(bytes[..inside.start].iter().chain(&bytes[inside.end..]).all(|&byte| byte == 0xA5));
        bytes.drain(inside).collect()
    }
}

#[test]
fn a_pattern_is_found_whole_and_every_wrong_byte_is_counted() {
    for setup in setups() {
        let Setup { device, stream, kernels } = &setup;
        for bytes in [1usize, 3, 4, 5, 4099, 1 << 20] {
            let values = setup.bytes(&vec![0; bytes]);
            kernels.write_pattern(stream, values.region_mut(), 7).expect("queued");
            let mismatches = |seed, before: u64| {
                let count = setup.bytes(&before.to_ne_bytes());
                kernels.count_mismatches(stream, values.region(), seed, count.region_mut()).expect("queued");
                let bytes = setup.read_bytes(&count);
                u64::from_ne_bytes(bytes.try_into().expect("eight"))
            };
            assert_eq!(mismatches(7, 0), 0, "{bytes}");
            if bytes > 5 {
                let wrong = mismatches(8, 0);
                assert!(wrong > bytes as u64 * 9 / 10, "{bytes}");
                // It is a sum of 64 bits, made of additions of 32.
                let before = u64::from(u32::MAX) - 3;
                assert_eq!(mismatches(8, before), before + wrong);
            }
            let written = setup.read_bytes(&values);
            for place in [0, bytes / 2, bytes - 1] {
                let mut spoilt = written.clone();
                spoilt[place] ^= 0x40;
                device.upload(stream, &spoilt, values.region_mut()).expect("an upload");
                assert_eq!(mismatches(7, 0), 1, "{bytes}, {place}");
            }
        }
    }
}

#[test]
fn threads_share_kernels() {
    for setup in setups() {
        let Setup { device, kernels, .. } = &setup;
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                scope.spawn(move || {
                    let stream = device.create_stream().expect("a stream");
                    for round in 0..50 {
                        let bytes = 64 * (thread + 1);
                        let memory = device
                            .allocate(&AllocationRequest::new(bytes, Placement::Device))
                            .expect("memory");
                        let count =
                            device.allocate(&AllocationRequest::new(8, Placement::Device)).expect("memory");
                        device.fill(&stream, RegionMut::whole(&count, &stream), 0).expect("a fill");
                        let seed = thread * 1000 + round;
                        let whole = || RegionMut::whole(&memory, &stream);
                        kernels.write_pattern(&stream, whole(), seed).expect("queued");
                        let counted = RegionMut::whole(&count, &stream);
                        kernels
                            .count_mismatches(&stream, whole().as_region(), seed, counted)
                            .expect("queued");
                        let wrong = crate::read(device, &stream, &count);
                        assert_eq!(wrong, [0; 8], "another thread's arguments");
                    }
                });
            }
        });
    }
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    for setup in setups() {
        let Setup { device, stream, kernels } = &setup;
        let (small, large) = (setup.values(&[0.0; 4]), setup.values(&[0.0; 16]));
        let other = device.create_stream().expect("a stream");
        let odd = setup.bytes(&[0; 9]);
        let at_one = || odd.region_mut().slice(1..).expect("a region");
        let count = || small.region_mut().slice(..8).expect("a region");
        for refused in [
            kernels.write_pattern(stream, at_one(), 0),
            kernels.write_pattern(&other, large.region_mut(), 0),
            kernels.count_mismatches(stream, large.region(), 0, small.region_mut()),
            kernels.count_mismatches(stream, small.region(), 0, count()),
            kernels.count_mismatches(stream, at_one().as_region(), 0, count()),
            kernels.count_mismatches(&other, large.region(), 0, count()),
        ] {
            let error = refused.expect_err("it does not fit");
            assert!(matches!(error, BackendError::InvalidArgument { .. }), "{error}");
        }
        device.synchronize(stream).expect("no fault");
    }
}
