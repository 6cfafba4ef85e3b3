//! Fields of a request beside its bytes and kind.

use super::support::{BYTES, Check, Outcome, kind, pattern, read, require};
use crate::{AllocationRequest, Backend, BackendError, Capabilities, Memory, MemoryKind, Placement};
use crate::{Priority, RegionMut};

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

/// Any label and any priority: they change neither the bytes nor their contents.
pub(super) fn labels_and_priorities_are_hints<B: Backend>(device: &B) -> Check {
    let stream = device.create_stream()?;
    let long = "long ".repeat(1000);
    let labels = [None, Some(""), Some("weights of layer 1"), Some("Größe ∑\0\n"), Some(&*long)];
    for kind in kinds(device) {
        for (seed, label) in labels.into_iter().enumerate() {
            for priority in [Priority::Low, Priority::Normal, Priority::High] {
                let mut request = AllocationRequest::new(BYTES, kind).with_priority(priority);
                request.label = label;
                let memory = device.allocate(&request)?;
                require!(memory.len() == BYTES, "{} bytes instead of {BYTES}: {request:?}", memory.len());
                let data = pattern(seed as u8, BYTES);
                device.upload(&stream, &data, RegionMut::whole(&memory, &stream))?;
                require!(read(device, &stream, &memory)? == data, "other contents: {request:?}");
            }
        }
    }
    let request =
        AllocationRequest::new(BYTES, kind(device)).with_label("weights").with_priority(Priority::High);
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

/// The device's own alignment and less is kept; more is kept or refused.
pub(super) fn alignments_are_kept_or_refused<B: Backend>(device: &B) -> Check {
    let own = device.properties().alignment;
    for kind in kinds(device) {
        for alignment in [1, 2, own, 2 * own, 64 << 10, 2 << 20] {
            match device.allocate(&AllocationRequest::new(BYTES, kind).with_alignment(alignment)) {
                Ok(memory) => require!(
                    memory.address().is_none_or(|address| address.is_multiple_of(alignment)),
                    "{:#x?} is not aligned to {alignment} bytes",
                    memory.address()
                ),
                Err(BackendError::Unsupported { .. }) if alignment > own => {}
                Err(other) => {
                    return Err(Outcome::Broken(format!(
                        "an alignment of {alignment} bytes, with the device's {own}: {other}"
                    )));
                }
            }
        }
        // Without addresses nothing sees an alignment, and a device may ignore it.
        for alignment in [0, 3, u64::MAX] {
            match device.allocate(&AllocationRequest::new(BYTES, kind).with_alignment(alignment)) {
                Err(BackendError::InvalidArgument { .. }) => {}
                Ok(memory) if memory.address().is_none() => {}
                other => {
                    return Err(Outcome::Broken(format!(
                        "an alignment of {alignment} bytes, no power of two, was not refused: {other:?}"
                    )));
                }
            }
        }
    }
    Ok(())
}
