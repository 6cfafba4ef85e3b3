//! Checks: objects of another device are rejected.

use super::support::{BYTES, Check, Failure, Outcome, memory, refused, require};
use crate::{Backend, BackendError, Region, RegionMut};

/// Checks that `device` refuses the streams and the memory of `other`, a different device of the same
/// backend, in every call that takes them.
///
/// # Errors
/// The first call that `device` did not refuse.
pub fn check_foreign<B: Backend>(device: &B, other: &B) -> Result<(), Failure> {
    let check = "what_belongs_to_another_device_is_refused";
    is_refused(device, other).map_err(|outcome| match outcome {
        Outcome::Broken(reason) => Failure { check, reason },
        Outcome::NotThere(reason) => Failure { check, reason: reason.into() },
    })
}

fn is_refused<B: Backend>(device: &B, other: &B) -> Check {
    require!(device.id() != other.id(), "both are the device {}", device.id());
    let (own, foreign) = (device.create_stream()?, other.create_stream()?);
    let (strange, second) = (memory(other, BYTES)?, memory(other, BYTES)?);
    let memory = memory(device, BYTES)?;
    let mut bytes = vec![0; BYTES as usize];
    refused("a wait for a foreign stream", device.synchronize(&foreign))?;
    refused("an event of a foreign stream", device.record(&foreign))?;
    let event = device.record(&own)?;
    refused("a foreign stream's wait", device.wait(&foreign, &event))?;
    // Of one device each, so that only the device that is asked has nothing to do with them.
    let (there, here) = ((&strange, &foreign), (&memory, &own));
    for (what, (memory, stream)) in
        [("memory and stream", there), ("memory", (&strange, &own)), ("stream", (&memory, &foreign))]
    {
        let whole = || RegionMut::whole(memory, stream);
        refused(&format!("a fill with foreign {what}"), device.fill(stream, whole(), 1))?;
        refused(&format!("an upload with foreign {what}"), device.upload(stream, &bytes, whole()))?;
        let source = Region::whole(memory, stream);
        refused(&format!("a download with foreign {what}"), device.download(stream, source, &mut bytes))?;
    }
    refused("a mapped read of foreign memory", device.read_mapped(&strange, 0, &mut bytes))?;
    refused("a mapped write of foreign memory", device.write_mapped(&strange, 0, &bytes))?;
    let copy = |from, to, stream: &B::Stream| -> Result<(), BackendError> {
        device.copy(stream, Region::whole(from, stream), RegionMut::whole(to, stream))
    };
    refused("a copy of foreign memory on a foreign stream", copy(&strange, &second, &foreign))?;
    refused("a copy from foreign memory", copy(&strange, here.0, here.1))?;
    refused("a copy to foreign memory", copy(here.0, &strange, here.1))?;
    device.synchronize(&own)?;
    Ok(other.synchronize(&foreign)?)
}
