//! Promises of memory that the tests of several backends check on their own kinds.

use vrampool_backend::{
    AllocationRequest, Backend, BackendError, Memory, MemoryKind, Placement, Region, RegionMut,
};

/// What tests ask of a device that works.
pub trait BackendExt: Backend {
    /// Creates a stream.
    #[must_use]
    #[track_caller]
    fn stream(&self) -> Self::Stream {
        self.create_stream().expect("a stream")
    }

    /// Allocates memory.
    #[must_use]
    #[track_caller]
    fn memory(&self, bytes: u64, kind: impl Into<MemoryKind>) -> Self::Memory {
        self.allocate(&AllocationRequest::new(bytes, kind)).expect("memory")
    }
}

impl<B: Backend> BackendExt for B {}

/// Fills all of a memory.
pub fn fill<B: Backend>(device: &B, stream: &B::Stream, memory: &B::Memory, value: u8) {
    device.fill(stream, RegionMut::whole(memory, stream), value).expect("a fill");
}

/// Copies all of a memory to another one.
pub fn copy<B: Backend>(device: &B, stream: &B::Stream, from: &B::Memory, to: &B::Memory) {
    device.copy(stream, Region::whole(from, stream), RegionMut::whole(to, stream)).expect("a copy");
}

/// Reads all of a memory.
pub fn read<B: Backend>(device: &B, stream: &B::Stream, memory: &B::Memory) -> Vec<u8> {
    let mut bytes = vec![0; memory.len() as usize];
    device.download(stream, Region::whole(memory, stream), &mut bytes).expect("a download");
    bytes
}

/// Memory of each of these kinds is filled, copied to each other one and read, also by the host where that sees it;
/// `check` looks at each.
pub fn every_kind_is_filled_copied_and_read<B: Backend>(
    device: &B,
    kinds: &[MemoryKind],
    bytes: u64,
    check: impl Fn(&B::Memory, MemoryKind),
) {
    let stream = device.create_stream().expect("a stream");
    let pattern: Vec<u8> = (0..bytes).map(|i| (i * 7 + (i >> 8)) as u8).collect();
    for &from in kinds {
        for &to in kinds {
            let one = device.allocate(&AllocationRequest::new(bytes, from)).expect("memory");
            let two = device.allocate(&AllocationRequest::new(bytes, to)).expect("memory");
            assert_eq!(one.len(), bytes);
            check(&one, from);
            fill(device, &stream, &two, 9);
            device.upload(&stream, &pattern, RegionMut::whole(&one, &stream)).expect("an upload");
            let (source, target) = (Region::whole(&one, &stream), RegionMut::whole(&two, &stream));
            device.copy(&stream, source, target).expect("a copy");
            assert_eq!(read(device, &stream, &two), pattern, "{from:?} to {to:?}");
        }
    }
    for &kind in kinds {
        let memory = device.allocate(&AllocationRequest::new(bytes, kind)).expect("memory");
        let mut last = [0; 4];
        if kind.placement == Placement::Device {
            for error in [device.write_mapped(&memory, 0, &[1]), device.read_mapped(&memory, 0, &mut last)] {
                assert!(matches!(error, Err(BackendError::Unsupported { .. })), "{error:?}");
            }
            continue;
        }
        // Before any work, and at an odd offset.
        device.write_mapped(&memory, 1, &[1, 2, 3]).expect("a write");
        assert_eq!(read(device, &stream, &memory)[1..4], [1, 2, 3]);
        fill(device, &stream, &memory, 5);
        device.synchronize(&stream).expect("a wait");
        device.read_mapped(&memory, bytes - 4, &mut last).expect("a read");
        assert_eq!(last, [5; 4]);
        let error = device.read_mapped(&memory, bytes - 3, &mut last).expect_err("it ends before");
        assert!(matches!(error, BackendError::InvalidArgument { .. }), "{error}");
    }
}

/// Eight threads allocate, fill, read and drop memory at the same time.
pub fn memory_is_allocated_and_dropped_on_many_threads<B: Backend>(device: &B, bytes: u64) {
    std::thread::scope(|scope| {
        for thread in 0..8u8 {
            scope.spawn(move || {
                let stream = device.create_stream().expect("a stream");
                for round in 0..20u8 {
                    let request = AllocationRequest::new(bytes, Placement::Device);
                    let memory = device.allocate(&request).expect("memory");
                    fill(device, &stream, &memory, thread ^ round);
                    let bytes = read(device, &stream, &memory);
                    assert!(bytes.iter().all(|&byte| byte == thread ^ round));
                }
            });
        }
    });
}

/// Each of four threads holds one block at a time, so that memory is available as soon as its work is done, also when
/// another thread takes it first. The device has room for five.
pub fn threads_that_drop_memory_in_use_are_not_refused<B: Backend>(
    device: &B,
    bytes: u64,
    placements: [Placement; 2],
) {
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                let stream = device.create_stream().expect("a stream");
                for round in 0..200 {
                    let request = AllocationRequest::new(bytes, placements[thread % 2]);
                    let memory = device.allocate(&request).expect("there is room");
                    fill(device, &stream, &memory, round);
                }
            });
        }
    });
}
