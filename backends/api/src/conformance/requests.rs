//! Fields of a request beside its bytes and kind.

use super::support::{BYTES, Check, Outcome, kind, pattern, read, require};
use crate::{AllocationRequest, Backend, Capabilities, Memory, MemoryKind, Placement, RegionMut};

/// The kinds of memory that the device has.
pub(super) fn kinds<B: Backend>(device: &B) -> Vec<MemoryKind> {
    let capabilities = device.properties().capabilities;
    let mut kinds = vec![kind(device)];
    let others =
        [(Capabilities::HOST_VISIBLE, Placement::HostVisible), (Capabilities::MANAGED, Placement::Managed)];
    kinds.extend(
        others
            .into_iter()
            .filter(|(needs, _)| capabilities.contains(*needs))
            .map(|(_, placement)| MemoryKind::from(placement)),
    );
    kinds
}

/// A label changes neither the bytes nor their contents.
pub(super) fn labels_are_hints<B: Backend>(device: &B) -> Check {
    let stream = device.create_stream()?;
    let long = "long ".repeat(1000);
    let labels = [None, Some(""), Some("weights of layer 1"), Some("Größe ∑\0\n"), Some(&*long)];
    for kind in kinds(device) {
        for (seed, label) in labels.into_iter().enumerate() {
            let request = AllocationRequest { label, ..AllocationRequest::new(BYTES, kind) };
            let memory = device.allocate(&request)?;
            require!(memory.len() == BYTES, "{} bytes instead of {BYTES}: {request:?}", memory.len());
            let data = pattern(seed as u8, BYTES);
            device.upload(&stream, &data, RegionMut::whole(&memory, &stream))?;
            require!(read(device, &stream, &memory)? == data, "other contents: {request:?}");
        }
    }
    let request = AllocationRequest::new(BYTES, kind(device)).with_label("weights");
    if device.properties().capabilities.contains(Capabilities::STREAM_ORDERED) {
        drop(device.allocate_on(&request, &stream)?);
        device.synchronize(&stream)?;
    }
    if let Some(mapping) = device.virtual_memory() {
        let bytes = mapping.granularity(request.kind)?;
        let physical = mapping.create_physical(&AllocationRequest { bytes, ..request })?;
        require!(physical.len() == bytes, "{} physical bytes instead of {bytes}", physical.len());
    }
    Ok(())
}
