//! The contract of the wgpu backend in a browser, checked in one.

use crate::thrown;
use std::time::Duration;
use vrampool::backend::AllocationRequest;
use vrampool::wgpu::WgpuDevice;
use vrampool::{Backend, BackendError, Error, Event, Placement, Pool, Region, RegionMut};
use wasm_bindgen::JsError;
use wasm_bindgen::prelude::wasm_bindgen;

const MIB: u64 = 1 << 20;

/// Checks that nothing blocks, that futures complete, and that asynchronous errors are reported. Throws the failed check.
///
/// # Errors
/// The first promise that is broken.
#[wasm_bindgen]
pub async fn check() -> Result<(), JsError> {
    expect("opening would block", would_block(WgpuDevice::open(0)))?;
    expect("listing would block", would_block(vrampool::wgpu::list()))?;
    let device = crate::device().await.map_err(thrown)?;
    let again = crate::device().await.map_err(thrown)?;
    expect("a request for the same device is another handle", device.id() == again.id())?;
    let stream = device.create_stream().map_err(thrown)?;

    let memory = device.allocate(&AllocationRequest::new(4 * MIB, Placement::Device)).map_err(thrown)?;
    device.fill(&stream, RegionMut::whole(&memory, &stream), 7).map_err(thrown)?;
    let event = device.record(&stream).map_err(thrown)?;
    let mut bytes = vec![0; 4 * MIB as usize];
    let whole = || Region::whole(&memory, &stream);
    expect("a download would block", would_block(device.download(&stream, whole(), &mut bytes)))?;
    expect("a wait would block", would_block(device.synchronize(&stream)))?;
    device.read(&stream, whole(), &mut bytes).await.map_err(thrown)?;
    expect("a read reads", bytes.iter().all(|&byte| byte == 7))?;
    expect("an event before it is complete", event.is_complete().map_err(thrown)?)?;
    expect("a wait for nothing ends", device.synchronize(&stream).is_ok())?;

    // More than 32 MiB of dropped memory that may be in use.
    for _ in 0..3 {
        let dropped =
            device.allocate(&AllocationRequest::new(16 * MIB, Placement::Device)).map_err(thrown)?;
        device.fill(&stream, RegionMut::whole(&dropped, &stream), 1).map_err(thrown)?;
    }
    let next = || device.allocate(&AllocationRequest::new(16 * MIB, Placement::Device));
    expect("an allocation after many drops would block", would_block(next()))?;
    device.finish(&stream).await.map_err(thrown)?;
    expect("it does not after a wait", next().is_ok())?;

    let pool = Pool::builder(&device).limit(MIB).build().map_err(thrown)?;
    let all = pool.allocate(MIB, &stream).map_err(thrown)?;
    let outcome = pool.allocate_timeout(MIB, &stream, Duration::from_secs(1));
    let is_refused = matches!(outcome, Err(Error::Backend(error)) if error.is_would_block());
    expect("waiting for another's memory would block", is_refused)?;
    drop(all);
    expect("a pool has its memory again", pool.allocate(MIB, &stream).is_ok())?;

    // The browser refuses it after the call.
    let encoded =
        stream.encode(|encoder| encoder.copy_buffer_to_buffer(memory.buffer(), 0, memory.buffer(), 0, 4));
    let outcome = device.finish(&stream).await;
    expect("a refused call is reported by a wait", encoded.is_ok() && outcome.is_err())?;
    device.finish(&stream).await.map_err(thrown)
}

fn would_block<T>(outcome: Result<T, BackendError>) -> bool {
    outcome.is_err_and(|error| error.is_would_block())
}

fn expect(promise: &str, holds: bool) -> Result<(), JsError> {
    if holds { Ok(()) } else { Err(JsError::new(promise)) }
}
