//! The device's memory really runs out, and comes back. Alone in its process, because it takes everything.

#[path = "require/mod.rs"]
mod require;

use vrampool_wgpu::{Backend, BackendError, Placement, RegionMut};

#[test]
fn a_full_card_is_a_typed_error_and_what_is_dropped_comes_back() {
    let Some(device) = require::device() else { return };
    if device.properties().is_integrated() {
        eprintln!("skipped: {} has the host's memory, which it does not bound", device.properties().name);
        return;
    }
    let stream = device.create_stream().expect("a stream");
    let piece = device.properties().max_allocation.min(4 << 30);
    let mut held = Vec::new();
    let error = loop {
        match device.allocate(piece, Placement::Device.into()) {
            Ok(memory) => held.push(memory),
            Err(error) => break error,
        }
        assert!((held.len() as u64) * piece <= device.properties().total_bytes, "more than there is");
    };
    assert!(matches!(error, BackendError::OutOfMemory { requested, .. } if requested == piece), "{error:?}");
    // Work goes on, and the last is used by work that is not submitted when it is dropped.
    for memory in &held {
        let start = RegionMut::new(memory, 0, 1 << 20, &stream).expect("a region");
        device.fill(&stream, start, 3).expect("a fill");
    }
    drop(held.pop());
    held.push(
        device.allocate(piece, Placement::Device.into()).expect("allocating waits for what was dropped"),
    );
    device.synchronize(&stream).expect("a wait");
    let error = device.allocate(piece, Placement::Device.into()).expect_err("it is full again");
    assert!(error.is_out_of_memory(), "{error}");
    held.clear();
    device.allocate(piece, Placement::Device.into()).expect("there is room again");
}
