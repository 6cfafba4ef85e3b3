//! The device's memory really runs out, and comes back. Alone in its process, because it takes everything.

use vrampool_backend::AllocationRequest;
use vrampool_test_support::{BackendExt, require};
use vrampool_wgpu::{Backend, BackendError, Capabilities, Placement, RegionMut, WgpuDevice};

#[test]
fn a_full_card_is_a_typed_error_and_what_is_dropped_comes_back() {
    let Some(device) = require("wgpu", || WgpuDevice::open(0)) else { return };
    if device.properties().is_integrated() {
        vrampool_test_support::skipped(format_args!(
            "{} has the host's memory, which it does not bound",
            device.properties().name
        ));
        return;
    }
    let stream = device.stream();
    let piece = device.properties().max_allocation.min(4 << 30);
    let mut held = Vec::new();
    let error = loop {
        match device.allocate(&AllocationRequest::new(piece, Placement::Device)) {
            Ok(memory) => held.push(memory),
            Err(error) => break error,
        }
        assert!((held.len() as u64) * piece <= device.properties().total_bytes, "more than there is");
    };
    assert!(
        matches!(error, BackendError::OutOfMemory { requested_bytes, .. } if requested_bytes == piece),
        "{error:?}"
    );
    // Work goes on, and the last is used by work that is not submitted when it is dropped.
    for memory in &held {
        let start = RegionMut::new(memory, 0, 1 << 20, &stream).expect("a region");
        device.fill(&stream, start, 3).expect("a fill");
    }
    drop(held.pop());
    held.push(
        device
            .allocate(&AllocationRequest::new(piece, Placement::Device))
            .expect("allocating waits for what was dropped"),
    );
    device.synchronize(&stream).expect("a wait");
    let error =
        device.allocate(&AllocationRequest::new(piece, Placement::Device)).expect_err("it is full again");
    assert!(error.is_out_of_memory(), "{error}");
    held.clear();
    device.allocate(&AllocationRequest::new(piece, Placement::Device)).expect("there is room again");
}

/// In a process of its own, whose address space is soon full. A mapped buffer that was not made cannot be
/// unmapped either, and that error must not hide the other.
#[test]
#[cfg(target_os = "linux")]
fn a_lack_of_host_visible_memory_is_out_of_memory_too() {
    use vrampool_test_support::{is_inside, passed, test_behind};
    let Some(device) = require("wgpu", || WgpuDevice::open(0)) else { return };
    if !device.properties().is_integrated() {
        vrampool_test_support::skipped(format_args!(
            "{} has memory of its own, which an address space does not limit",
            device.properties().name
        ));
        return;
    }
    if !device.properties().capabilities.contains(Capabilities::HOST_VISIBLE) {
        vrampool_test_support::skipped(format_args!(
            "{} has no host-visible memory by {}",
            device.properties().name,
            device.listed().interface
        ));
        return;
    }
    if is_inside() {
        return fill_the_address_space(&device);
    }
    let name = "a_lack_of_host_visible_memory_is_out_of_memory_too";
    // KiB: what the driver's compiler takes, and some buffers.
    let said = passed(&mut test_behind("ulimit -v 2200000", name));
    assert!(said.contains("ran out of host-visible memory"), "{said}");
}

#[cfg(target_os = "linux")]
fn fill_the_address_space(device: &WgpuDevice) {
    const PIECE: u64 = 128 << 20;
    for kind in [Placement::HostVisible, Placement::Device] {
        let mut held = Vec::new();
        let error = loop {
            match device.allocate(&AllocationRequest::new(PIECE, kind)) {
                Ok(memory) => held.push(memory),
                Err(error) => break error,
            }
            assert!(held.len() < 64, "the address space is not limited");
        };
        assert!(
            matches!(error, BackendError::OutOfMemory { requested_bytes: PIECE, .. }),
            "after {} pieces: {error:?}",
            held.len()
        );
        drop(held.pop().expect("at least one fits"));
        held.push(
            device.allocate(&AllocationRequest::new(PIECE, kind)).expect("what was dropped comes back"),
        );
    }
    println!("ran out of host-visible memory");
}
