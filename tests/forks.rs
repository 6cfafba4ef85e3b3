//! Children of a process that uses pools, forked while its threads are inside the pool: every call fails
//! typed, dropping does nothing, nothing waits, and no memory is shared.
#![cfg(all(feature = "host", target_os = "linux"))]

use std::mem::ManuallyDrop;
use std::panic::Location;
use std::sync::Mutex;
use std::time::Duration;
use vrampool::arena::DeviceArena;
use vrampool::backend::AllocationRequest;
use vrampool::backend::VirtualMemory;
use vrampool::hooks::{Holder, Hook, HookEvent};
use vrampool::host::HostDevice;
use vrampool::{Backend, Memory, Placement, Pool, PoolStats, Source};
use vrampool_test_support::{assert_forked, in_child, while_busy};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Is called under a lock, by threads that a child does not have.
#[derive(Debug, Default)]
struct Locking(Mutex<u64>);

impl Hook for Locking {
    fn name(&self) -> &str {
        "locking"
    }

    fn after_request(&self, _: &HookEvent<'_>) {
        *self.0.lock().expect("no panic") += 1;
    }

    fn holders(&self) -> Vec<Holder> {
        let requests = *self.0.lock().expect("no panic");
        vec![Holder::new(Location::caller(), requests, requests)]
    }
}

#[test]
fn a_child_fails_typed_without_waiting_and_shares_nothing() {
    // A child of a process that opened nothing starts afresh.
    in_child(|| {
        let device = HostDevice::builder().memory_limit(MIB).build();
        let stream = device.create_stream().expect("a stream");
        let pool = Pool::builder(&device).build().expect("a pool");
        let mut buffer = pool.allocate(100, &stream).expect("memory");
        buffer.write(&[1; 100], &stream).expect("queued");
        device.synchronize(&stream).expect("no fault");
    });
    for source in [Source::Direct, Source::Arena, Source::Virtual] {
        let device = HostDevice::builder().memory_limit(256 * MIB).build();
        let stream = device.create_stream().expect("a stream");
        let builder = Pool::builder(&device).source(source).limit(64 * MIB).hook(Locking::default());
        let pool = builder.build().expect("a pool");
        let arena = DeviceArena::builder(&device).limit(16 * MIB).growing().build().expect("an arena");
        let mut live = pool.allocate(3 * MIB, &stream).expect("memory");
        let mut block = arena.allocate(MIB, &stream).expect("memory");
        let contents: Vec<u8> = (0..3 * MIB).map(|byte| (byte * 7 + (byte >> 9)) as u8).collect();
        live.write(&contents, &stream).expect("queued");
        block.write(&contents[..MIB as usize], &stream).expect("queued");
        // This thread has idle memory of its own.
        drop([(); 10].map(|()| pool.allocate(KIB, &stream).expect("memory")));
        let memory =
            device.allocate(&AllocationRequest::new(4 * KIB, Placement::HostVisible)).expect("memory");
        let physical =
            device.create_physical(&AllocationRequest::new(2 * MIB, Placement::Device)).expect("memory");
        // A child drops its copies; this process keeps its own.
        let streams = [(); 3].map(|()| device.create_stream().expect("a stream"));
        let (busy_pool, busy_device) = (pool.clone(), device.clone());
        let work = |thread| {
            let stream = &streams[thread as usize];
            let mut buffer = busy_pool.allocate(fastrand::u64(1..MIB), stream).expect("memory");
            busy_device.fill(stream, buffer.on_mut(stream).expect("a region"), 1).expect("queued");
            drop(buffer);
            if fastrand::u8(..32) == 0 {
                busy_pool.trim().expect("a trim");
            }
        };
        let mut mine = ManuallyDrop::new((live, block, memory, physical, pool, arena, stream, device));
        while_busy(work, 40, || {
            in_child(|| {
                let (live, block, memory, _, pool, arena, stream, device) = &mut *mine;
                for bytes in [100, KIB, 3 * MIB, 32 * MIB] {
                    assert_forked(pool.allocate(bytes, stream));
                    assert_forked(pool.allocate_zeroed(bytes, stream));
                    assert_forked(pool.allocate_kind(bytes, Placement::HostVisible, stream));
                    assert_forked(arena.allocate(bytes, stream));
                }
                assert_forked(live.on(stream).map(drop));
                assert_forked(live.on_mut(stream).map(drop));
                assert_forked(live.write(&[1], stream));
                assert_forked(live.read(&mut [1], stream));
                assert_forked(live.record_stream(stream));
                assert_forked(live.fill(1, stream));
                assert_forked(live.write_at(&[1], 1, stream));
                assert_forked(live.read_vec::<u8>(stream));
                assert_forked(pool.upload(&[1u32; 100], stream));
                assert_forked(pool.allocate_elements::<f32>(100, stream));
                assert!(pool.report().holders.is_empty(), "a thread may be in the hook");
                assert_forked(block.on(stream).map(drop));
                assert_forked(block.write(&[1], stream));
                assert_forked(pool.set_limit(1));
                assert_forked(pool.decay());
                assert_forked(pool.child("tenant").build());
                assert_forked(pool.set_share(1));
                assert_forked(pool.used_on(stream));
                assert_forked(pool.allocate_timeout(100, stream, Duration::MAX));
                assert_forked(arena.compact(1, stream, |_| {}));
                assert_forked(pool.synchronize_freed(stream));
                assert_forked(pool.compact(1, stream, |_| {}));
                assert_forked(arena.release(0));
                assert_forked(arena.reset());
                assert_forked(arena.detach(Duration::ZERO).map(drop));
                assert_forked(arena.attach().map(drop));
                assert_forked(Pool::builder(&HostDevice::new()).build());
                assert_forked(DeviceArena::builder(device).limit(MIB).build());
                assert_forked(pool.trim());
                assert_eq!((pool.stats(), pool.limit()), (PoolStats::default(), Some(64 * MIB)));
                assert_forked(device.allocate(&AllocationRequest::new(100, Placement::Device)));
                assert_forked(device.create_stream());
                assert_forked(device.synchronize(stream));
                assert_forked(device.record(stream));
                assert_forked(device.memory_info());
                assert_forked(device.write_mapped(memory, 0, &[1]));
                assert_forked(device.reserve(2 * MIB));
                // SAFETY: this process drops them here and ends, and the parent drops its own.
                unsafe { ManuallyDrop::drop(&mut mine) };
            });
        });
        drop((busy_pool, busy_device, streams));
        let (live, block, memory, physical, pool, arena, stream, device) = ManuallyDrop::into_inner(mine);
        let mut read = vec![0; 3 * MIB as usize];
        live.read(&mut read, &stream).expect("no fault");
        assert!(read == contents, "{source}");
        block.read(&mut read[..MIB as usize], &stream).expect("no fault");
        assert!(read[..MIB as usize] == contents[..MIB as usize], "{source}");
        assert_eq!((memory.len(), physical.len()), (4 * KIB, 2 * MIB));
        drop((live, block, memory, physical));
        pool.trim().expect("a trim");
        assert_eq!(pool.stats().live_buffers, 0, "{source}");
        drop((pool, arena));
        device.synchronize(&stream).expect("no fault");
    }
}
