//! Checks of odd lengths and offsets.

use super::support::{Check, Outcome, kind, pattern, read, require};
use crate::AllocationRequest;
use crate::{Backend, Memory, Region, RegionMut};

/// Copies, fills and transfers of any length to the end of a memory, and to the end of a region that has room
/// behind it.
pub(super) fn any_length_goes_to_the_end<B: Backend>(device: &B) -> Check {
    let stream = device.create_stream()?;
    for bytes in [1, 2, 3, 5, 255, 4097_u64] {
        // What a pool has: a class that is larger than what was asked for.
        let class = bytes.next_power_of_two().max(256);
        let (exact, roomy) = (
            device.allocate(&AllocationRequest::new(bytes, kind(device)))?,
            device.allocate(&AllocationRequest::new(class, kind(device)))?,
        );
        let end = |memory| {
            Ok::<_, crate::BackendError>(RegionMut::new(memory, 0, bytes, &stream)?.with_room(class))
        };
        let data = pattern(5, bytes);
        let start =
            |memory: &B::Memory| Ok::<_, Outcome>(read(device, &stream, memory)?[..bytes as usize].to_vec());
        for (from, to) in [(&exact, &roomy), (&roomy, &exact)] {
            device.upload(&stream, &data, end(from)?)?;
            require!(start(from)? == data, "{bytes} bytes were uploaded, and others are there");
            device.fill(&stream, end(to)?, 7)?;
            require!(start(to)?.iter().all(|&byte| byte == 7), "a fill of {bytes} bytes missed some");
            device.copy(&stream, Region::new(from, 0, bytes, &stream)?, end(to)?)?;
            let mut copied = vec![0; bytes as usize];
            device.download(&stream, Region::new(to, 0, bytes, &stream)?, &mut copied)?;
            require!(copied == data, "a copy of {bytes} bytes is not the original");
        }
        require!(exact.len() == bytes && roomy.len() == class, "a memory has another length");
    }
    Ok(())
}
