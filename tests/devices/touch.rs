//! Marks that a device writes to identify memory are found whole, and every wrong byte is counted; without this
//! no test here could fail.

use crate::there::{self, There};
use vrampool::any::{AnyMemory, AnyStream};
use vrampool::backend::AllocationRequest;
use vrampool::{Backend, Memory, Placement, RegionMut};
use vrampool_test_support::{fill, pattern, read};

/// Where in its memory a region begins, bytes, so that an offset that is forgotten is seen.
const BEFORE: u64 = 24;

/// The bytes around a region.
const GUARD: u8 = 0xA5;

/// Bytes in the middle of a memory.
struct Middle<'a> {
    there: &'a There,
    stream: &'a AnyStream,
    memory: AnyMemory,
    bytes: u64,
}

impl<'a> Middle<'a> {
    fn new(there: &'a There, stream: &'a AnyStream, bytes: &[u8]) -> Self {
        let request = there.rounded(BEFORE + bytes.len() as u64 + 8);
        let memory = there.device.allocate(&AllocationRequest::new(request, Placement::Device));
        let middle = Self { there, stream, memory: memory.expect("memory"), bytes: bytes.len() as u64 };
        fill(&there.device, stream, &middle.memory, GUARD);
        middle.write(bytes);
        middle
    }

    fn region(&self) -> RegionMut<'_, AnyMemory> {
        RegionMut::new(&self.memory, BEFORE, self.bytes, self.stream).expect("a region")
    }

    fn write(&self, bytes: &[u8]) {
        let mut all = vec![GUARD; self.memory.len() as usize];
        all[BEFORE as usize..][..bytes.len()].copy_from_slice(bytes);
        let whole = RegionMut::whole(&self.memory, self.stream);
        self.there.device.upload(self.stream, &all, whole).expect("a copy");
    }

    /// Checks that the bytes around them are unchanged.
    fn read(&self) -> Vec<u8> {
        let mut all = read(&self.there.device, self.stream, &self.memory);
        let bytes = all.drain(BEFORE as usize..(BEFORE + self.bytes) as usize).collect();
        assert!(all.iter().all(|&byte| byte == GUARD), "{}, {}", self.there.name, self.bytes);
        bytes
    }
}

#[test]
fn a_pattern_is_found_whole_and_every_wrong_byte_is_counted() {
    there::on_each(|there| {
        let [stream] = there.streams();
        let name = &there.name;
        for (bytes, seed) in
            [(1usize, 7u64), (3, 8), (4, 0), (5, u64::MAX), (4099, 1 << 63), (1 << 20, 0xFFFF_FFFF)]
        {
            let write = |seed| {
                let marked = Middle::new(there, &stream, &vec![0; bytes]);
                there.write(&stream, marked.region(), seed);
                (marked.read(), marked)
            };
            let ((written, marked), (others, _)) = (write(seed), write(9));
            // The host's kernels have a sequence of their own.
            if there.device.backend() != "host" {
                assert!(written == pattern(seed, bytes as u64), "{name}, {bytes}, {seed}");
            }
            let mismatches = |seed, before: u64| {
                let count = Middle::new(there, &stream, &before.to_le_bytes());
                let counted = there.kernels.count_mismatches(
                    &stream,
                    marked.region().as_region(),
                    seed,
                    count.region(),
                );
                counted.expect("queued");
                u64::from_le_bytes(count.read().try_into().expect("eight"))
            };
            assert_eq!(mismatches(seed, 0), 0, "{name}, {bytes}");
            let wrong = others.iter().zip(&written).filter(|(one, other)| one != other).count() as u64;
            assert!(bytes <= 5 || wrong > bytes as u64 * 9 / 10, "{name}, {bytes}");
            // It is a sum of 64 bits, made of additions of 32.
            for before in [0, (2 << 32) - 1] {
                assert_eq!(mismatches(9, before), before + wrong, "{name}, {bytes}");
            }
            for place in [0, bytes / 2, bytes - 1] {
                let mut spoilt = written.clone();
                spoilt[place] ^= 0x40;
                marked.write(&spoilt);
                assert_eq!(mismatches(seed, 0), 1, "{name}, {bytes}, {place}");
            }
        }
    });
}
