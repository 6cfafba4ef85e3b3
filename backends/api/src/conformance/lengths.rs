//! Checks of odd lengths and offsets.

use super::support::{Check, Outcome, memory, pattern, read, require};
use crate::{Backend, BackendError, Memory, Region, RegionMut};

/// Copies, fills and transfers of any length to the end of a memory, and to the end of a region that has room
/// behind it. Those of no bytes do nothing.
pub(super) fn any_length_goes_to_the_end<B: Backend>(device: &B) -> Check {
    let stream = device.create_stream()?;
    for bytes in [1, 2, 3, 5, 255, 4097_u64] {
        // As in a pool: a class that is larger than the request.
        let class = bytes.next_power_of_two().max(256);
        let (exact, roomy) = (memory(device, bytes)?, memory(device, class)?);
        let end = |memory| Ok::<_, BackendError>(RegionMut::new(memory, 0, bytes, &stream)?.with_room(class));
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
        let empty = |memory| RegionMut::new(memory, class, 0, &stream);
        device.fill(&stream, empty(&roomy)?, 1)?;
        device.copy(&stream, Region::new(&exact, 0, 0, &stream)?, empty(&roomy)?)?;
        device.upload(&stream, &[], empty(&roomy)?)?;
        device.download(&stream, empty(&roomy)?.as_region(), &mut [])?;
    }
    Ok(())
}

/// Copies, fills and transfers of any length leave the bytes behind them as they were.
pub(super) fn bytes_behind_any_length_stay<B: Backend>(device: &B) -> Check {
    let stream = device.create_stream()?;
    let (class, start) = (8192, 4 * device.properties().copy_granularity);
    let (from, to) = (memory(device, class)?, memory(device, class)?);
    for bytes in [1, 2, 3, 5, 255, 4097_u64] {
        let (data, end) = (pattern(5, bytes), (start + bytes) as usize);
        let part = |memory| RegionMut::new(memory, start, bytes, &stream);
        let check = |memory, expected: &[u8], what| {
            let all = read(device, &stream, memory)?;
            require!(all[start as usize..end] == *expected, "{what} of {bytes} bytes missed some");
            let others = all[..start as usize].iter().chain(&all[end..]);
            require!(others.copied().all(|byte| byte == 9), "{what} of {bytes} bytes changed others");
            Ok::<_, Outcome>(())
        };
        for memory in [&from, &to] {
            device.fill(&stream, RegionMut::whole(memory, &stream), 9)?;
        }
        match device.upload(&stream, &data, part(&from)?) {
            Err(BackendError::Unsupported { .. }) => {
                return Err(Outcome::NotThere("it writes no part of a word"));
            }
            uploaded => uploaded?,
        }
        check(&from, &data, "an upload")?;
        for value in [7, 0] {
            device.fill(&stream, part(&to)?, value)?;
            check(&to, &vec![value; bytes as usize], "a fill")?;
        }
        device.copy(&stream, part(&from)?.as_region(), part(&to)?)?;
        check(&to, &data, "a copy")?;
    }
    Ok(())
}
