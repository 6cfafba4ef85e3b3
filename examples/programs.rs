//! The programs that users write first, each a function of a few lines.

use std::error::Error;
use std::thread;
use std::time::Duration;
use vrampool::any::{self, AnyDevice};
use vrampool::host::{Call, HostDevice, HostStream};
use vrampool::{Backend, BackendError, Pool};

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let device = HostDevice::new();
    let stream = device.create_stream()?;
    let pool = Pool::new(&device)?;
    default(&device)?;
    step(&pool, &stream)?;
    typed(&pool, &stream)?;
    streams(&device, &pool)?;
    generic(&Pool::new(&any::open("host")?)?)?;
    split(&device, &pool, &stream)?;
    json(&pool)?;
    retry(&device)?;
    #[cfg(feature = "wgpu")]
    interop()?;
    faults(&device, &pool, &stream)
}

/// A pool with defaults.
fn default(device: &HostDevice) -> Outcome {
    let stream = device.create_stream()?;
    let pool = Pool::new(device)?;
    drop(pool.allocate(40_000, &stream)?);
    assert_eq!(pool.stats().idle_bytes, 65_536);
    Ok(())
}

/// Steps of a training loop: the second step allocates nothing from the device.
fn step(pool: &Pool<HostDevice>, stream: &HostStream) -> Outcome {
    for _ in 0..10 {
        let mut activations = pool.allocate_elements::<f32>(300_000, stream)?;
        let mut gradients = pool.allocate(activations.len(), stream)?;
        activations.fill(0, stream)?;
        gradients.copy_from(&activations, stream)?;
    }
    assert!(pool.stats().hit_rate() > 0.8);
    Ok(())
}

/// Numbers to the device and back.
fn typed(pool: &Pool<HostDevice>, stream: &HostStream) -> Outcome {
    let buffer = pool.upload(&[1.0f32, 2.0, 3.0], stream)?;
    assert_eq!(buffer.read_vec::<f32>(stream)?, [1.0, 2.0, 3.0]);
    Ok(())
}

/// Work on two streams: the pool inserts the waits.
fn streams(device: &HostDevice, pool: &Pool<HostDevice>) -> Outcome {
    let (copy, compute) = (device.create_stream()?, device.create_stream()?);
    let batch = pool.upload(&[7u32; 1000], &copy)?;
    let mut result = pool.allocate(batch.len(), &compute)?;
    result.copy_from(&batch, &compute)?; // behind the upload
    drop(batch); // the next borrower waits for the copy
    assert_eq!(result.read_vec::<u32>(&copy)?, [7; 1000]);
    Ok(())
}

/// Code for any device, and a device that is chosen at run time.
fn generic(pool: &Pool<AnyDevice>) -> Outcome {
    fn zeros<B: Backend>(pool: &Pool<B>, count: u64) -> Result<Vec<u64>, vrampool::Error> {
        let stream = pool.device().create_stream()?;
        let mut buffer = pool.allocate_elements::<u64>(count, &stream)?;
        buffer.fill(0, &stream)?;
        buffer.read_vec(&stream)
    }
    assert_eq!(zeros(pool, 3)?, [0; 3]);
    Ok(())
}

/// Two halves of one buffer, each written by its own call.
fn split(device: &HostDevice, pool: &Pool<HostDevice>, stream: &HostStream) -> Outcome {
    let mut buffer = pool.allocate(2000, stream)?;
    let (first, second) = buffer.on_mut(stream)?.split_at(1000)?;
    device.fill(stream, first, 1)?;
    device.fill(stream, second, 2)?;
    assert_eq!(buffer.read_vec::<u8>(stream)?[999..1001], [1, 2]);
    Ok(())
}

/// A buffer with usages that the program chooses, in a command that the program records.
#[cfg(feature = "wgpu")]
fn interop() -> Outcome {
    use vrampool::wgpu::{WgpuDevice, WgpuMemory, wgpu::BufferUsages};
    let Ok(device) = WgpuDevice::open(0) else { return Ok(()) };
    let (stream, pool) = (device.create_stream()?, Pool::new(&device)?);
    let kind = WgpuMemory::kind_for(WgpuMemory::DEFAULT_USAGES | BufferUsages::VERTEX);
    let mut vertices = pool.allocate_kind(4096, kind, &stream)?;
    vertices.fill(7, &stream)?;
    {
        let view = stream.view_mut(vertices.on_mut(&stream)?)?;
        let view = view.as_view(); // in use on the stream while it exists
        stream.encode(|encoder| encoder.clear_buffer(view.buffer(), view.offset(), Some(view.len())))?;
    }
    assert_eq!(vertices.read_vec::<u8>(&stream)?, [0; 4096]);
    Ok(())
}

/// Statistics as JSON.
fn json(pool: &Pool<HostDevice>) -> Outcome {
    let stats = serde_json::to_value(pool.stats())?;
    assert_eq!(stats["source"], "direct");
    println!("{}\n{stats:#}", pool.report());
    Ok(())
}

/// Workers that share few slots, and wait for one another's memory.
fn retry(device: &HostDevice) -> Outcome {
    let (stream, pool) = (device.create_stream()?, Pool::builder(device).limit(1 << 20).build()?);
    let work = || pool.allocate_timeout(256 << 10, &stream, Duration::from_secs(60)).map(drop);
    thread::scope(|scope| {
        let workers: Vec<_> = (0..16).map(|_| scope.spawn(work)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().expect("no panic"))
    })?;
    pool.close(); // requests that still wait fail
    Ok(())
}

/// A test of a program's own way out of a device without memory.
fn faults(device: &HostDevice, pool: &Pool<HostDevice>, stream: &HostStream) -> Outcome {
    device.faults().fail_all(Call::Allocate, BackendError::out_of_memory(1 << 20, Some(0)));
    assert!(pool.allocate(300 << 20, stream).is_err_and(|error| error.is_out_of_memory()));
    device.faults().clear();
    assert!(pool.allocate(300 << 20, stream).is_ok());
    Ok(())
}
