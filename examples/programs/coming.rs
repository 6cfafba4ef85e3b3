//! Programs of netcl, cuArena, RMM and VMA, by this library.
use vrampool::arena::{DeviceArena, Zone};
use vrampool::{host::HostDevice, prelude::*};
pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = HostDevice::new();
    netcl(&device)?;
    cuarena(&device)?;
    rmm(&device)?;
    vma(&device)
}
fn netcl(device: &HostDevice) -> Result<(), Box<dyn std::error::Error>> {
    let stream = device.create_stream()?;
    let pool = Pool::builder(device).max_cached_bytes(1 << 30).max_buffers_per_bucket(16).build()?;
    let buffer = pool.allocate(3000, &stream)?; // the same bucket, 4096 bytes
    drop(buffer); // pool.release(buffer)
    let again = pool.allocate(4000, &stream)?; // a hit
    println!("{} bytes, hit rate {}", again.capacity(), pool.stats().bucket_hit_rate()); // get_stats()
    pool.trim()?; // pool.clear()
    assert_eq!((again.capacity(), pool.stats().served.by_bucket, pool.stats().idle_bytes), (4096, 1, 0));
    Ok(())
}
fn cuarena(device: &HostDevice) -> Result<(), Box<dyn std::error::Error>> {
    let stream = device.create_stream()?;
    let arena = DeviceArena::builder(device).limit(64 << 20).stable_bytes(16 << 20).build()?;
    let weights = arena.allocate_in(4 << 20, Zone::Stable, &stream)?; // never moves
    let before = arena.allocate(1 << 20, &stream)?;
    let mut batch = arena.allocate(1 << 20, &stream)?;
    batch.write(&[7; 1 << 20], &stream)?;
    drop(before); // leaves a hole
    let report = arena.compact(None, &stream, |moved| println!("{moved:?}"))?; // `batch` follows its data
    assert_eq!(report.moved_blocks, 1);
    assert_eq!(arena.used(), weights.capacity() + batch.capacity());
    Ok(())
}
fn rmm(device: &HostDevice) -> Result<(), Box<dyn std::error::Error>> {
    let stream = device.create_stream()?;
    let pool = Pool::builder(device).source(Source::Arena).limit(64 << 20).build()?;
    let numbers = pool.upload(&[1.0f32; 1000], &stream)?; // device_uvector
    let scratch = pool.allocate(1 << 20, &stream)?; // device_buffer
    drop(scratch); // idle, in the order of its stream
    println!("{} live, {} at the peak", pool.stats().live_bytes, pool.stats().peak.live_bytes);
    assert_eq!(numbers.read_vec::<f32>(&stream)?, [1.0; 1000]);
    Ok(())
}
fn vma(device: &HostDevice) -> Result<(), Box<dyn std::error::Error>> {
    let stream = device.create_stream()?;
    let pool = Pool::builder(device).source(Source::Arena).limit(64 << 20).build()?; // VmaPool
    let uniforms = pool.allocate(4 << 20, &stream)?; // vmaCreateBuffer
    let vertices = pool.upload(&[[1.0f32; 3]; 1_000_000], &stream)?; // and vmaCopyMemoryToAllocation
    drop(uniforms); // vmaDestroyBuffer, once the device is done with it
    let report = pool.compact(None, &stream, |moved| println!("{moved:?}"))?; // vmaBeginDefragmentation
    println!("{} moved; {:#}", report.moved_bytes, pool.stats()); // vmaCalculateStatistics
    assert_eq!(vertices.read_vec::<[f32; 3]>(&stream)?[999_999], [1.0; 3]);
    Ok(())
}
