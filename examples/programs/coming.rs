//! Programs of cuArena and RMM, by this library.
use vrampool::arena::{DeviceArena, Zone};
use vrampool::{host::HostDevice, prelude::*};
pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = HostDevice::new();
    cuarena(&device)?;
    rmm(&device)
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
