//! Scripted scenes: each goes one way through the pool and the driver, checks what it wrote, and leaves
//! nothing behind.

use std::error::Error;
use vrampool::arena::DeviceArena;
use vrampool::backend::AllocationRequest;
use vrampool::broker::{ArrayRequest, Broker, Client, Share};
use vrampool::cuda::cudarc::driver::sys::{CUgraphInstantiate_flags_enum, CUstreamCaptureMode};
use vrampool::cuda::{CudaDevice, CudaStream};
use vrampool::sleep::{Sleeper, Wake};
use vrampool::{Backend, GraphMemory, Placement, Pool, SizeClasses, Source, Stager};

/// Whether all contents were right.
pub(crate) type Outcome = Result<bool, Box<dyn Error>>;

pub(crate) struct Scene {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&CudaDevice) -> Outcome,
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// All scenes.
pub(crate) const SCENES: [Scene; 11] = [
    Scene { name: "pool hit and miss", run: hit_and_miss },
    Scene { name: "fixed arena", run: fixed_arena },
    Scene { name: "virtual growth", run: virtual_growth },
    Scene { name: "stitching", run: stitching },
    Scene { name: "cross-stream reuse", run: |device| cross_stream(device, Source::Direct) },
    Scene {
        name: "cross-stream reuse in virtual memory",
        run: |device| cross_stream(device, Source::Virtual),
    },
    Scene { name: "sleep and wake", run: sleep_and_wake },
    Scene { name: "capture", run: capture },
    Scene { name: "driver pool", run: |device| cross_stream(device, Source::Driver) },
    Scene { name: "stager", run: stager },
    Scene { name: "broker run", run: broker_run },
];

fn streams<const N: usize>(device: &CudaDevice) -> Result<[CudaStream; N], Box<dyn Error>> {
    let streams: Vec<_> = (0..N).map(|_| device.create_stream()).collect::<Result<_, _>>()?;
    streams.try_into().map_err(|_| "another number of streams".into())
}

/// The unit of virtual memory, which the simulator is told to keep small.
fn page(device: &CudaDevice) -> Result<u64, Box<dyn Error>> {
    let memory = device.virtual_memory().ok_or("no virtual memory")?;
    Ok(memory.granularity(Placement::Device.into())?)
}

/// Compares as the C library does, because these tests are built without optimisation.
fn is_all(bytes: &[u8], value: u8) -> bool {
    bytes == vec![value; bytes.len()]
}

/// Runs a part of a scene with a pool and streams. Where a call failed in it, nothing of the pool is live, and
/// it serves the next request.
fn on_pool<const N: usize>(
    pool: &Pool<CudaDevice>,
    part: impl FnOnce([CudaStream; N]) -> Outcome,
) -> Outcome {
    let outcome = streams(pool.device()).and_then(part);
    let accounts = || {
        let stats = pool.stats();
        let idle = (stats.live_bytes, stats.source.in_transit_bytes, stats.held_bytes - stats.idle_bytes);
        assert_eq!(idle, (0, 0, 0), "{outcome:?}: {stats:?}");
    };
    accounts();
    if outcome.is_err() {
        let [stream] = after_a_fault(pool.device());
        let mut next = pool.allocate(4 * KIB, &stream).expect("the pool serves on");
        let mut read = vec![0; 4 * KIB as usize];
        next.write(&vec![3; read.len()], &stream).expect("queued");
        next.read(&mut read, &stream).expect("no fault");
        assert!(is_all(&read, 3));
        drop(next);
        accounts();
    }
    outcome
}

/// A stream for what comes after a call that failed.
fn after_a_fault(device: &CudaDevice) -> [CudaStream; 1] {
    // `cudarc` keeps an error of a destructor for its next call.
    let _ = device.context().check_err();
    streams(device).expect("the fault is over")
}

/// Fills a new buffer on one stream and reads it on another.
fn write_and_read(
    pool: &Pool<CudaDevice>,
    bytes: u64,
    value: u8,
    [writer, reader]: [&CudaStream; 2],
) -> Outcome {
    let mut buffer = pool.allocate(bytes, writer)?;
    pool.device().fill(writer, buffer.on_mut(writer)?, value)?;
    let mut read = vec![0; bytes as usize];
    buffer.read(&mut read, reader)?;
    Ok(is_all(&read, value))
}

fn hit_and_miss(device: &CudaDevice) -> Outcome {
    let pool = Pool::builder(device).build()?;
    on_pool(&pool, |[stream]| {
        let mut right = true;
        for value in 1..=3 {
            right &= write_and_read(&pool, 4 * KIB, value, [&stream, &stream])?;
            right &= write_and_read(&pool, 40 * KIB, value, [&stream, &stream])?;
        }
        pool.trim()?;
        Ok(right)
    })
}

fn fixed_arena(device: &CudaDevice) -> Outcome {
    let arena = DeviceArena::builder(device).limit(8 * MIB).build()?;
    let pool = Pool::builder(device).arena(&arena).build()?;
    on_pool(&pool, |[one, two]| {
        let mut right = true;
        for value in 1..=3 {
            right &= write_and_read(&pool, 40 * KIB, value, [&one, &two])?;
            right &= write_and_read(&pool, 24 * KIB, value, [&two, &one])?;
        }
        Ok(right)
    })
}

fn virtual_growth(device: &CudaDevice) -> Outcome {
    let page = page(device)?;
    let pool = Pool::builder(device).source(Source::Virtual).limit(32 * page).build()?;
    on_pool(&pool, |[stream]| {
        let mut kept = Vec::new();
        let mut right = true;
        for value in 1..=6 {
            let mut buffer = pool.allocate(7 * page / 2, &stream)?;
            device.fill(&stream, buffer.on_mut(&stream)?, value)?;
            kept.push((value, buffer));
        }
        for (value, buffer) in kept {
            let mut read = vec![0; (7 * page / 2) as usize];
            buffer.read(&mut read, &stream)?;
            right &= is_all(&read, value);
        }
        pool.trim()?;
        Ok(right)
    })
}

/// Holes that no request fits into by itself become one range.
fn stitching(device: &CudaDevice) -> Outcome {
    let page = page(device)?;
    let pool = Pool::builder(device).source(Source::Virtual).limit(32 * page);
    let pool = pool.size_classes(SizeClasses::Exact(512)).build()?;
    on_pool(&pool, |[one, two]| {
        let mut pieces = Vec::new();
        for value in 0..8u8 {
            let mut piece = pool.allocate(4 * page, &one)?;
            device.fill(&one, piece.on_mut(&one)?, value)?;
            pieces.push((value, piece));
        }
        let mut number = 0;
        pieces.retain(|_| {
            number += 1;
            number % 2 == 0
        });
        let mut right = write_and_read(&pool, 12 * page, 77, [&two, &one])?;
        for (value, piece) in pieces {
            let mut read = vec![0; (4 * page) as usize];
            piece.read(&mut read, &two)?;
            right &= is_all(&read, value);
        }
        pool.trim()?;
        Ok(right)
    })
}

/// Memory is written on one stream, read on a second, dropped, and written on a third.
fn cross_stream(device: &CudaDevice, source: Source) -> Outcome {
    let pool = Pool::builder(device).source(source).limit(8 * MIB).build()?;
    on_pool(&pool, |[one, two, three]| {
        let result = device.allocate(&AllocationRequest::new(16 * KIB, Placement::Device))?;
        let mut right = true;
        for value in 1..=4 {
            let mut buffer = pool.allocate(16 * KIB, &one)?;
            device.fill(&one, buffer.on_mut(&one)?, value)?;
            device.copy(&two, buffer.on(&two)?, vrampool::RegionMut::whole(&result, &two))?;
            drop(buffer);
            let mut next = pool.allocate(16 * KIB, &three)?;
            device.fill(&three, next.on_mut(&three)?, 99)?;
            let mut read = vec![0; 16 * KIB as usize];
            device.download(&two, vrampool::Region::whole(&result, &two), &mut read)?;
            right &= is_all(&read, value);
            next.read(&mut read, &one)?;
            right &= is_all(&read, 99);
        }
        pool.trim()?;
        device.synchronize(&three)?;
        Ok(right)
    })
}

fn sleep_and_wake(device: &CudaDevice) -> Outcome {
    let page = page(device)?;
    let sleeper = Sleeper::builder(device).build()?;
    let slept = |[one, two]: [CudaStream; 2]| -> Outcome {
        let mut kept = sleeper.allocate_tagged(3 * page, "weights", &one)?;
        let lost = sleeper.allocate_tagged(2 * page, "kv_cache", &one)?;
        let written = vec![5; (3 * page) as usize];
        kept.write(&written, &one)?;
        let _ = sleeper.sleep(&["weights"])?;
        let _ = sleeper.wake_up(Wake::All)?;
        let mut read = vec![0; written.len()];
        kept.read(&mut read, &two)?;
        drop((kept, lost));
        Ok(read == written)
    };
    let assert_idle = || {
        while sleeper.usage().backup_bytes > 0 {
            // Another thread gives them back.
            std::thread::yield_now();
        }
        assert_eq!(sleeper.usage().live_bytes + sleeper.usage().asleep_bytes, 0, "{:?}", sleeper.usage());
    };
    let outcome = streams(device).and_then(slept);
    assert_idle();
    if outcome.is_err() {
        let _ = after_a_fault(device);
        let _ = sleeper.wake_up(Wake::All).expect("the sleeper serves on");
        assert!(streams(device).and_then(slept).expect("the sleeper serves on"));
        assert_idle();
    }
    outcome
}

fn capture(device: &CudaDevice) -> Outcome {
    let pool = Pool::builder(device).build()?;
    on_pool(&pool, |[stream]| {
        let memory = GraphMemory::new(&pool, &stream);
        let mut result = pool.allocate(16 * KIB, &stream)?;
        let mut step = || -> Result<(), vrampool::Error> {
            let mut first = memory.allocate(16 * KIB)?;
            device.fill(&stream, first.on_mut(&stream)?, 6)?;
            device.copy(&stream, first.on(&stream)?, result.on_mut(&stream)?)?;
            Ok(())
        };
        step()?;
        device.synchronize(&stream)?;
        stream.cudarc().begin_capture(CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_GLOBAL)?;
        let captured = step();
        // The capture ends whatever was captured.
        let flags = CUgraphInstantiate_flags_enum::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let graph = stream.cudarc().end_capture(flags);
        captured?;
        let graph = graph?.ok_or("an empty graph")?;
        let mut right = true;
        for _ in 0..3 {
            let mut other = pool.allocate(16 * KIB, &stream)?;
            device.fill(&stream, other.on_mut(&stream)?, 9)?;
            graph.launch()?;
            drop(other);
            let mut read = vec![0; 16 * KIB as usize];
            result.read(&mut read, &stream)?;
            right &= is_all(&read, 6);
        }
        Ok(right)
    })
}

fn stager(device: &CudaDevice) -> Outcome {
    let pool = Pool::builder(device).build()?;
    let stager = Stager::new(device);
    let staged = |value: u8, [one, two]: [&CudaStream; 2]| -> Outcome {
        let mut buffer = pool.allocate(32 * KIB, one)?;
        let bytes = vec![value; 32 * KIB as usize];
        let region = buffer.on_mut(one)?;
        let _ = stager.upload(&bytes, region, one)?;
        let mut read = vec![0; bytes.len()];
        buffer.read(&mut read, two)?;
        Ok(read == bytes)
    };
    let outcome = on_pool(&pool, |[one, two]| {
        let mut right = true;
        for value in 1..=4 {
            right &= staged(value, [&one, &two])?;
        }
        stager.trim();
        Ok(right)
    });
    if outcome.is_err() {
        let [stream] = after_a_fault(device);
        assert!(staged(5, [&stream, &stream]).expect("the stager serves on"));
    }
    outcome
}

fn broker_run(device: &CudaDevice) -> Outcome {
    let broker = Broker::builder(device).staging(16 * KIB, 64 * KIB).build()?;
    // A granule for each of two streams; and more than goes through at once.
    let share = 2 * broker.granularity();
    let runs = share * 2 / 5;
    let client = broker.register(Client::new("client").share(Share::Bytes(share)))?;
    let array = client.queue(ArrayRequest::in_out("x", [runs], 4))?;
    let run = || -> Outcome {
        broker.set_streams("default", 2)?;
        let plan = broker.commit("default")?;
        let mut bytes = vec![9; 4 * runs as usize];
        let execution = plan.execution().exchange(array, &mut bytes[..]);
        execution.run(|chunk, stream| Ok(device.fill(stream, chunk.region_mut(array)?, 7)?))?;
        Ok(is_all(&bytes, 7))
    };
    let outcome = run();
    if outcome.is_err() {
        let _ = after_a_fault(device);
        assert!(run().expect("the broker serves on"));
    }
    outcome
}
