//! The conformance suite: checks that a device fulfils the contract.
//!
//! ```
//! use vrampool_backend::{Backend, conformance};
//! fn print_report<B: Backend>(device: &B) -> Result<(), conformance::Failure> {
//!     println!("{}", conformance::check(device)?);
//!     Ok(())
//! }
//! ```

use crate::AllocationRequest;
use crate::{Backend, BackendError, Capabilities, Event, Memory, Region, RegionMut, Stream};
use std::fmt;

/// The checks that ran, and the features that the device lacks.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Report {
    /// Names of the checks that passed.
    pub passed: Vec<&'static str>,
    /// Names of the checks that do not apply, with the reason.
    pub skipped: Vec<(&'static str, &'static str)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for name in &self.passed {
            writeln!(f, "passed   {name}")?;
        }
        for (name, reason) in &self.skipped {
            writeln!(f, "skipped  {name}: {reason}")?;
        }
        Ok(())
    }
}

type Named<B> = (&'static str, fn(&B) -> Check);

mod foreign;
mod host_visible;
mod lengths;
mod requests;
mod support;
mod virtual_memory;
pub use foreign::check_foreign;
use host_visible::host_visible_memory_is_mapped;
use lengths::{any_length_goes_to_the_end, bytes_behind_any_length_stay};
use requests::{kinds, labels_are_hints};
pub use support::Failure;
use support::{BYTES, Check, Outcome, kind, memory, pattern, read, refused, require};
use virtual_memory::{
    mapped_memory_is_memory, mappings_that_cannot_be_are_refused,
    physical_memory_is_seen_wherever_it_is_mapped, shared_handles_are_to_the_same_memory,
    virtual_memory_goes_in_any_order,
};

/// Runs every check on `device`. Takes at most a few MiB of its memory (where it has
/// virtual memory 8 times its granularity) and releases all of it.
///
/// # Errors
/// The first [`Failure`]; the checks after it are not run.
pub fn check<B: Backend>(device: &B) -> Result<Report, Failure> {
    let checks: [Named<B>; 23] = [
        ("properties_are_consistent", properties_are_consistent),
        ("clones_are_the_same_device", clones_are_the_same_device),
        ("memory_has_the_size_asked_for", memory_has_the_size_asked_for),
        ("labels_are_hints", labels_are_hints),
        ("data_survives_a_round_trip", data_survives_a_round_trip),
        ("fill_stays_in_its_range", fill_stays_in_its_range),
        ("copy_between_memories", copy_between_memories),
        ("copy_within_one_memory", copy_within_one_memory),
        ("any_length_goes_to_the_end", any_length_goes_to_the_end),
        ("bytes_behind_any_length_stay", bytes_behind_any_length_stay),
        ("bad_copies_are_refused", bad_copies_are_refused),
        ("regions_of_another_stream_are_refused", regions_of_another_stream_are_refused),
        ("events_complete", events_complete),
        ("a_stream_waits_for_another", a_stream_waits_for_another),
        ("memory_may_drop_while_work_is_pending", memory_may_drop_while_work_is_pending),
        ("memory_comes_and_goes_in_the_order_of_a_stream", memory_comes_and_goes_in_the_order_of_a_stream),
        ("host_visible_memory_is_mapped", host_visible_memory_is_mapped),
        ("too_much_memory_is_a_typed_error", too_much_memory_is_a_typed_error),
        ("mapped_memory_is_memory", mapped_memory_is_memory),
        ("physical_memory_is_seen_wherever_it_is_mapped", physical_memory_is_seen_wherever_it_is_mapped),
        ("mappings_that_cannot_be_are_refused", mappings_that_cannot_be_are_refused),
        ("virtual_memory_goes_in_any_order", virtual_memory_goes_in_any_order),
        ("shared_handles_are_to_the_same_memory", shared_handles_are_to_the_same_memory),
    ];
    let mut report = Report::default();
    for (name, check) in checks {
        match check(device) {
            Ok(()) => report.passed.push(name),
            Err(Outcome::NotThere(reason)) => report.skipped.push((name, reason)),
            Err(Outcome::Broken(reason)) => return Err(Failure { check: name, reason }),
        }
    }
    Ok(report)
}

fn properties_are_consistent<B: Backend>(device: &B) -> Check {
    let properties = device.properties();
    require!(!properties.backend.is_empty() && !properties.name.is_empty(), "backend or name is empty");
    require!(properties.backend == device.id().backend, "id and properties name different backends");
    require!(
        properties.alignment.is_power_of_two(),
        "alignment {} is not a power of two",
        properties.alignment
    );
    require!(properties.copy_granularity > 0, "the copy granularity is 0");
    require!(
        BYTES.is_multiple_of(properties.copy_granularity),
        "a copy granularity of {} is not plausible",
        properties.copy_granularity
    );
    require!(properties.max_allocation > 0, "no allocation is possible");
    match device.memory_info() {
        Ok(info) => require!(info.free_bytes <= info.total_bytes, "more free than in all: {info:?}"),
        Err(BackendError::Unsupported { .. }) => {}
        Err(other) => return Err(other.into()),
    }
    Ok(())
}

fn clones_are_the_same_device<B: Backend>(device: &B) -> Check {
    require!(device.clone().id() == device.id(), "a clone has another id");
    let stream = device.create_stream()?;
    require!(stream.device() == device.id(), "a stream belongs to another device");
    require!(stream.clone().id() == stream.id(), "a stream's clone has another id");
    Ok(())
}

fn memory_has_the_size_asked_for<B: Backend>(device: &B) -> Check {
    for bytes in [1, 255, 4096, 1 << 20] {
        let memory = memory(device, bytes)?;
        require!(memory.len() == bytes, "asked for {bytes} bytes, got {}", memory.len());
        if let Some(address) = memory.address() {
            let alignment = device.properties().alignment;
            require!(address.is_multiple_of(alignment), "{address:#x} is not aligned to {alignment}");
        }
    }
    Ok(())
}

fn data_survives_a_round_trip<B: Backend>(device: &B) -> Check {
    let (stream, memory) = (device.create_stream()?, memory(device, BYTES)?);
    let data = pattern(1, BYTES);
    device.upload(&stream, &data, RegionMut::whole(&memory, &stream))?;
    require!(read(device, &stream, &memory)? == data, "the bytes read are not the bytes written");
    Ok(())
}

fn fill_stays_in_its_range<B: Backend>(device: &B) -> Check {
    let (stream, memory) = (device.create_stream()?, memory(device, BYTES)?);
    device.fill(&stream, RegionMut::whole(&memory, &stream), 0x11)?;
    device.fill(&stream, RegionMut::new(&memory, BYTES / 4, BYTES / 2, &stream)?, 0xEE)?;
    let bytes = read(device, &stream, &memory)?;
    let inside = (BYTES / 4) as usize..(BYTES * 3 / 4) as usize;
    require!(
        bytes.iter().enumerate().all(|(i, &b)| b == if inside.contains(&i) { 0xEE } else { 0x11 }),
        "a fill missed bytes of its range or left it"
    );
    Ok(())
}

fn copy_between_memories<B: Backend>(device: &B) -> Check {
    let stream = device.create_stream()?;
    let (from, to) = (memory(device, BYTES)?, memory(device, 2 * BYTES)?);
    let data = pattern(2, BYTES);
    device.upload(&stream, &data, RegionMut::whole(&from, &stream))?;
    device.fill(&stream, RegionMut::whole(&to, &stream), 0)?;
    device.copy(&stream, Region::whole(&from, &stream), RegionMut::new(&to, BYTES / 2, BYTES, &stream)?)?;
    let bytes = read(device, &stream, &to)?;
    let half = (BYTES / 2) as usize;
    require!(bytes[half..half + BYTES as usize] == data[..], "the copy is not the original");
    require!(bytes[..half].iter().all(|&b| b == 0), "the copy wrote before its range");
    require!(bytes[half + BYTES as usize..].iter().all(|&b| b == 0), "the copy wrote behind its range");
    Ok(())
}

fn copy_within_one_memory<B: Backend>(device: &B) -> Check {
    if !device.properties().capabilities.contains(Capabilities::COPY_WITHIN_MEMORY) {
        return Err(Outcome::NotThere("no copies within one memory"));
    }
    let (stream, memory) = (device.create_stream()?, memory(device, 2 * BYTES)?);
    let data = pattern(3, BYTES);
    device.upload(&stream, &data, RegionMut::new(&memory, 0, BYTES, &stream)?)?;
    let end = RegionMut::new(&memory, BYTES, BYTES, &stream)?;
    device.copy(&stream, Region::new(&memory, 0, BYTES, &stream)?, end)?;
    require!(read(device, &stream, &memory)?[BYTES as usize..] == data[..], "the copy is not the original");
    Ok(())
}

fn bad_copies_are_refused<B: Backend>(device: &B) -> Check {
    let (stream, other) = (device.create_stream()?, memory(device, BYTES)?);
    let memory = memory(device, BYTES)?;
    refused("a region past the end", Region::new(&memory, 1, BYTES, &stream))?;
    refused("a region that overflows", Region::new(&memory, u64::MAX, 2, &stream))?;
    let half = || Region::new(&memory, 0, BYTES / 2, &stream);
    let whole = || RegionMut::whole(&memory, &stream);
    let unequal = device.copy(&stream, half()?, RegionMut::whole(&other, &stream));
    refused("a copy of unequal lengths", unequal)?;
    let overlapping = RegionMut::new(&memory, BYTES / 4, BYTES / 2, &stream)?;
    refused("a copy that overlaps itself", device.copy(&stream, half()?, overlapping))?;
    refused("an upload of another length", device.upload(&stream, &[0; 16], whole()))?;
    let short = device.download(&stream, whole().as_region(), &mut [0; 16]);
    refused("a download of another length", short)
}

fn regions_of_another_stream_are_refused<B: Backend>(device: &B) -> Check {
    let (one, two) = (device.create_stream()?, device.create_stream()?);
    if one.id() == two.id() {
        return Err(Outcome::NotThere("the device has one stream"));
    }
    let memory = memory(device, BYTES)?;
    refused("a fill on another stream", device.fill(&two, RegionMut::whole(&memory, &one), 0))?;
    let mut bytes = vec![0; BYTES as usize];
    refused("a download on another stream", device.download(&two, Region::whole(&memory, &one), &mut bytes))?;
    refused("an upload on another stream", device.upload(&two, &bytes, RegionMut::whole(&memory, &one)))
}

fn events_complete<B: Backend>(device: &B) -> Check {
    let (stream, memory) = (device.create_stream()?, memory(device, BYTES)?);
    device.fill(&stream, RegionMut::whole(&memory, &stream), 1)?;
    let event = device.record(&stream)?;
    device.synchronize(&stream)?;
    require!(event.is_complete()?, "an event is not complete after its stream was synchronized");
    Ok(())
}

fn a_stream_waits_for_another<B: Backend>(device: &B) -> Check {
    // The first stream has a chain of work before the data is right; the second waits for its end by an event
    // alone.
    let (first, second) = (device.create_stream()?, device.create_stream()?);
    let [memory, copy] = [memory(device, BYTES)?, memory(device, BYTES)?];
    for round in 0..50u8 {
        for value in 0..20u8 {
            device.fill(&first, RegionMut::whole(&memory, &first), value)?;
        }
        device.fill(&first, RegionMut::whole(&memory, &first), 100 + round)?;
        let written = device.record(&first)?;
        device.wait(&second, &written)?;
        device.copy(&second, Region::whole(&memory, &second), RegionMut::whole(&copy, &second))?;
        let bytes = read(device, &second, &copy)?;
        require!(
            bytes.iter().all(|&b| b == 100 + round),
            "a stream ran ahead of the event that it waits for"
        );
    }
    Ok(())
}

fn memory_may_drop_while_work_is_pending<B: Backend>(device: &B) -> Check {
    let stream = device.create_stream()?;
    let keep = memory(device, BYTES)?;
    for round in 0..50u8 {
        let used = memory(device, BYTES)?;
        device.fill(&stream, RegionMut::whole(&used, &stream), round)?;
        device.copy(&stream, Region::whole(&used, &stream), RegionMut::whole(&keep, &stream))?;
        drop(used);
        // Memory taken now may be the same bytes; the pending copy must still have read the old contents.
        let next = memory(device, BYTES)?;
        let other = device.create_stream()?;
        device.fill(&other, RegionMut::whole(&next, &other), 0xFF)?;
        require!(
            read(device, &stream, &keep)?.iter().all(|&b| b == round),
            "work that was enqueued before a drop saw memory that was allocated after it"
        );
        device.synchronize(&other)?;
    }
    Ok(())
}

fn memory_comes_and_goes_in_the_order_of_a_stream<B: Backend>(device: &B) -> Check {
    let (first, second) = (device.create_stream()?, device.create_stream()?);
    if !device.properties().capabilities.contains(Capabilities::STREAM_ORDERED) {
        let refused = device.allocate_on(&AllocationRequest::new(BYTES, kind(device)), &first);
        require!(
            matches!(refused, Err(BackendError::Unsupported { .. })),
            "without the capability it answers {refused:?}"
        );
        return Err(Outcome::NotThere("the device has no memory in the order of a stream"));
    }
    let mut bytes = vec![0; BYTES as usize];
    for value in 1..=8 {
        let memory = device.allocate_on(&AllocationRequest::new(BYTES, kind(device)), &first)?;
        require!(memory.len() >= BYTES, "{} bytes were asked for, {} came", BYTES, memory.len());
        device.fill(&first, RegionMut::whole(&memory, &first), value)?;
        device.wait(&second, &device.record(&first)?)?;
        let whole = Region::new(&memory, 0, BYTES, &second)?;
        device.download(&second, whole, &mut bytes)?;
        require!(bytes.iter().all(|&byte| byte == value), "what another stream wrote was not read");
        // The first, on which it came, is done with it before the second is.
        if value % 2 == 0 { device.free_on(memory, &second) } else { drop(memory) }
    }
    device.synchronize(&first)?;
    Ok(device.synchronize(&second)?)
}

fn too_much_memory_is_a_typed_error<B: Backend>(device: &B) -> Check {
    for kind in kinds(device) {
        for bytes in [u64::MAX, u64::MAX / 2, 1 << 60, 1 << 50] {
            match device.allocate(&AllocationRequest::new(bytes, kind)) {
                Ok(_) => return Err(Outcome::Broken(format!("{bytes} bytes were allocated"))),
                Err(error) if error.is_out_of_memory() => {}
                Err(BackendError::InvalidArgument { .. }) => {}
                Err(other) => {
                    return Err(Outcome::Broken(format!("{bytes} bytes: not out of memory but: {other}")));
                }
            }
        }
        refused("an allocation of 0 bytes", device.allocate(&AllocationRequest::new(0, kind)))?;
    }
    Ok(())
}
