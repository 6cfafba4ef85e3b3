//! Checks of host-visible memory.

use super::support::{BYTES, Check, Outcome, pattern, read, refused, require};
use crate::{Backend, BackendError, Capabilities, MemoryKind, Placement, RegionMut, Usage};
use std::thread;

pub(super) fn host_visible_memory_is_mapped<B: Backend>(device: &B) -> Check {
    if !device.properties().capabilities.contains(Capabilities::HOST_VISIBLE) {
        return Err(Outcome::NotThere("no host-visible memory"));
    }
    let stream = device.create_stream()?;
    let memory =
        device.allocate(BYTES, MemoryKind { placement: Placement::HostVisible, usage: Usage::DEFAULT })?;
    let data = pattern(4, BYTES);
    device.write_mapped(&memory, 0, &data)?;
    require!(read(device, &stream, &memory)? == data, "the device does not see what the host wrote");
    device.fill(&stream, RegionMut::whole(&memory, &stream), 9)?;
    device.synchronize(&stream)?;
    let mut bytes = vec![0; 16];
    device.read_mapped(&memory, BYTES - 16, &mut bytes)?;
    require!(bytes == [9; 16], "the host does not see what the device wrote");
    refused("a mapped write past the end", device.write_mapped(&memory, BYTES - 1, &[0, 0]))?;
    refused("a mapped write that overflows", device.write_mapped(&memory, u64::MAX, &[0, 0]))?;
    threads_exclude_each_other(device)
}

/// Whole writes of two threads, and reads of a third, which see each of them whole or not at all.
fn threads_exclude_each_other<B: Backend>(device: &B) -> Check {
    // So many that a write takes a while, as often as two of them meet whatever the processors are.
    const ROUNDS: u8 = 60;
    let bytes = 16 * BYTES;
    let memory =
        device.allocate(bytes, MemoryKind { placement: Placement::HostVisible, usage: Usage::DEFAULT })?;
    let write = |value: u8| {
        let whole = vec![value; bytes as usize];
        (0..ROUNDS).try_for_each(|_| device.write_mapped(&memory, 0, &whole))
    };
    let torn = || {
        let (mut whole, mut torn) = (vec![0; bytes as usize], 0);
        for _ in 0..ROUNDS {
            device.read_mapped(&memory, 0, &mut whole)?;
            torn += usize::from(whole.iter().any(|byte| *byte != whole[0]));
        }
        Ok::<_, BackendError>(torn)
    };
    write(0)?;
    let (writes, torn) = thread::scope(|scope| {
        let write = &write;
        let writers = [1, 2].map(|value| scope.spawn(move || write(value)));
        let torn = torn();
        (writers.map(thread::ScopedJoinHandle::join), torn)
    });
    for written in writes {
        written.map_err(|_| Outcome::Broken("a mapped write panicked".into()))??;
    }
    let torn = torn?;
    require!(torn == 0, "{torn} of {ROUNDS} mapped reads saw parts of two writes");
    Ok(())
}
