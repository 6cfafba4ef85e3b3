//! Marks that a device writes to identify memory are found whole, and every wrong byte is counted; without this
//! no test here could fail.

use crate::there::{self, There};
use vrampool::any::{AnyMemory, AnyStream};
use vrampool::backend::AllocationRequest;
use vrampool::{Backend, BackendError, Placement, Region, RegionMut};
use vrampool_test_support::pattern;

/// Where in its memory a region begins, bytes, so that an offset that is forgotten is seen.
const BEFORE: u64 = 24;
/// The bytes around a region.
const GUARD: u8 = 0xA5;

impl There {
    fn memory(&self, bytes: u64, stream: &AnyStream) -> AnyMemory {
        let request = AllocationRequest::new(self.rounded(bytes), Placement::Device);
        let memory = self.device.allocate(&request).expect("memory");
        self.device.fill(stream, RegionMut::whole(&memory, stream), GUARD).expect("a fill");
        memory
    }
}

#[test]
fn a_pattern_is_found_whole_and_every_wrong_byte_is_counted() {
    there::on_each(|there| {
        let (name, device) = (&there.name, &there.device);
        let [stream] = there.streams();
        let count = there.memory(8, &stream);
        let count = || RegionMut::whole(&count, &stream);
        for (bytes, seed) in
            [(1u64, 7u64), (3, 8), (4, 0), (5, u64::MAX), (4099, 1 << 63), (1 << 20, 0xFFFF_FFFF)]
        {
            let memory = there.memory(BEFORE + bytes + 8, &stream);
            let region = || RegionMut::new(&memory, BEFORE, bytes, &stream).expect("a region");
            there.write(&stream, region(), seed);
            let mismatches = |seed, before: u64| {
                device.upload(&stream, &before.to_le_bytes(), count()).expect("a copy");
                there.kernels.count_mismatches(&stream, region().as_region(), seed, count()).expect("queued");
                let mut found = [0; 8];
                device.download(&stream, count().as_region(), &mut found).expect("a copy");
                u64::from_le_bytes(found)
            };
            assert_eq!(mismatches(seed, 0), 0, "{name}, {bytes}");
            if bytes > 5 {
                let wrong = mismatches(9, 0);
                assert!(wrong > bytes * 9 / 10, "{name}, {bytes}");
                // It is a sum of 64 bits, made of additions of 32.
                let before = u64::from(u32::MAX) - 3;
                assert_eq!(mismatches(9, before), before + wrong, "{name}, {bytes}");
            }
            let mut written = vec![0; vrampool::Memory::len(&memory) as usize];
            device.download(&stream, Region::whole(&memory, &stream), &mut written).expect("a copy");
            let (before, behind) = written.split_at(BEFORE as usize);
            let (inside, behind) = behind.split_at(bytes as usize);
            assert!(before.iter().chain(behind).all(|&byte| byte == GUARD), "{name}, {bytes}");
            assert!(is_host(there) || inside == pattern(seed, bytes), "{name}, {bytes}");
            for place in [0, bytes / 2, bytes - 1] {
                let mut spoilt = written.clone();
                spoilt[(BEFORE + place) as usize] ^= 0x40;
                device.upload(&stream, &spoilt, RegionMut::whole(&memory, &stream)).expect("a copy");
                assert_eq!(mismatches(seed, 0), 1, "{name}, {bytes}, {place}");
            }
        }
    });
}

/// The host's kernels have a sequence of their own, and take bytes at any address.
fn is_host(there: &There) -> bool {
    there.device.properties().backend == "host"
}

#[test]
fn operands_that_do_not_fit_are_refused() {
    there::on_each(|there| {
        if is_host(there) {
            return;
        }
        let [stream, other] = there.streams();
        let (small, large) = (there.memory(16, &stream), there.memory(64, &stream));
        let small = |range| RegionMut::whole(&small, &stream).slice(range).expect("a region");
        let large = |range| RegionMut::whole(&large, &stream).slice(range).expect("a region");
        let kernels = &there.kernels;
        for (case, refused) in [
            kernels.write_pattern(&other, large(0..64), 0),
            kernels.write_pattern(&stream, large(1..9), 0),
            kernels.count_mismatches(&stream, large(0..64).as_region(), 0, small(0..16)),
            kernels.count_mismatches(&stream, large(0..64).as_region(), 0, large(8..16)),
            kernels.count_mismatches(&stream, large(1..9).as_region(), 0, small(0..8)),
            kernels.count_mismatches(&other, large(0..64).as_region(), 0, small(0..8)),
        ]
        .into_iter()
        .enumerate()
        {
            let is_refused = matches!(refused, Err(BackendError::InvalidArgument { .. }));
            assert!(is_refused, "{}, case {case}: {refused:?}", there.name);
        }
        there.device.synchronize(&stream).expect("no fault");
    });
}
