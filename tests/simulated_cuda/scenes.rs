//! Scripted scenes: each goes one way through the pool and the driver, checks what it wrote, and leaves
//! nothing behind.

use crate::detached::{attach, detach};
use crate::scene::{KIB, Outcome, Scene, after_a_fault, is_all, on_pool, page, streams};
use vrampool::arena::DeviceArena;
use vrampool::backend::AllocationRequest;
use vrampool::cuda::cudarc::driver::sys::{CUgraphInstantiate_flags_enum, CUstreamCaptureMode};
use vrampool::cuda::{CudaDevice, CudaStream};
use vrampool::{Backend, Placement, Pool, SizeClasses, Source};

const MIB: u64 = 1 << 20;

/// All scenes.
pub(crate) const SCENES: [Scene; 9] = [
    Scene { name: "pool hit and miss", run: hit_and_miss },
    Scene { name: "fixed arena", run: fixed_arena },
    Scene { name: "virtual growth", run: virtual_growth },
    Scene { name: "stitching", run: stitching },
    Scene { name: "cross-stream reuse", run: |device| cross_stream(device, Source::Direct) },
    Scene {
        name: "cross-stream reuse in virtual memory",
        run: |device| cross_stream(device, Source::Virtual),
    },
    Scene { name: "detach and attach", run: detach_and_attach },
    Scene { name: "capture", run: capture },
    Scene { name: "driver pool", run: |device| cross_stream(device, Source::Driver) },
];

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
        pieces = pieces.into_iter().skip(1).step_by(2).collect();
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

fn detach_and_attach(device: &CudaDevice) -> Outcome {
    let page = page(device)?;
    let arena = DeviceArena::builder(device).growing().build()?;
    let one_round = |[one, two]: [CudaStream; 2]| -> Outcome {
        let mut block = arena.allocate(3 * page, &one)?;
        block.write(&vec![5; (3 * page) as usize], &one)?;
        let contents = detach(&arena)?.ok_or("it is attached")?;
        let mut attached = attach(&arena, &contents);
        if attached.is_err() {
            let _ = after_a_fault(device);
            // The contents outlive a failure.
            attach(&arena, &contents).expect("it is detached still");
            let mut read = vec![0; (3 * page) as usize];
            block.read(&mut read, &one).expect("no fault");
            assert!(is_all(&read, 5));
            attached = attached.map(|_| None);
        }
        attached?;
        let mut read = vec![0; (3 * page) as usize];
        block.read(&mut read, &two)?;
        Ok(is_all(&read, 5))
    };
    let outcome = streams(device).and_then(one_round);
    assert_eq!(arena.used(), 0, "{outcome:?}");
    if outcome.is_err() {
        let [stream] = after_a_fault(device);
        let _ = attach(&arena, &Vec::new()).expect("the arena serves on");
        let other = device.create_stream().expect("no fault");
        assert!(one_round([stream, other]).expect("the arena serves on"));
    }
    outcome
}

fn capture(device: &CudaDevice) -> Outcome {
    let pool = Pool::builder(device).build()?;
    on_pool(&pool, |[stream]| {
        let memory = pool.child("graph").private(true).build()?;
        let mut result = pool.allocate(16 * KIB, &stream)?;
        let mut step = || -> Result<(), vrampool::Error> {
            let mut first = memory.allocate(16 * KIB, &stream)?;
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
