//! Checks of host-visible memory.

use super::support::{BYTES, Check, Outcome, pattern, read, refused, require};
use crate::AllocationRequest;
use crate::{Backend, BackendError, Capabilities, Placement, RegionMut};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

pub(super) fn host_visible_memory_is_mapped<B: Backend>(device: &B) -> Check {
    if !device.properties().capabilities.contains(Capabilities::HOST_VISIBLE) {
        return Err(Outcome::NotThere("no host-visible memory"));
    }
    let stream = device.create_stream()?;
    let mut memory = device.allocate(&AllocationRequest::new(BYTES, Placement::HostVisible))?;
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
    device.fill(&stream, RegionMut::whole(&memory, &stream), 7)?;
    if let Ok(bytes) = device.mapped(&mut memory) {
        require!(
            *bytes == [7; BYTES as usize],
            "memory is seen in place before the work that writes it is complete"
        );
    }
    device.synchronize(&stream)?;
    match device.mapped(&mut memory) {
        Ok(bytes) => require!(*bytes == [7; BYTES as usize], "memory in place is not what the device wrote"),
        Err(BackendError::Unsupported { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    threads_exclude_each_other(device)
}

/// Whole writes of two threads, and reads of a third, which see each of them whole or not at all.
fn threads_exclude_each_other<B: Backend>(device: &B) -> Check {
    // Reads and writes go on until there were so many of both. Without turns some reads see a write that
    // another thread is at, or was interrupted at, however the threads are scheduled.
    const READS: u32 = 200;
    const WRITES: u32 = 1000;
    // So that they end in any case.
    const MOST: u32 = 20_000;
    let bytes = 16 * BYTES;
    let memory = device.allocate(&AllocationRequest::new(bytes, Placement::HostVisible))?;
    let (is_over, written) = (AtomicBool::new(false), AtomicU32::new(0));
    let write = |value: u8| {
        let whole = vec![value; bytes as usize];
        let done = (0..MOST).take_while(|_| !is_over.load(Ordering::Relaxed)).try_for_each(|_| {
            device.write_mapped(&memory, 0, &whole)?;
            written.fetch_add(1, Ordering::Relaxed);
            Ok::<_, BackendError>(())
        });
        // No thread waits for more.
        written.fetch_add(WRITES, Ordering::Relaxed);
        done
    };
    let reads = || {
        let (mut whole, mut reads, mut mixed) = (vec![0; bytes as usize], 0, 0);
        while reads < READS || reads < MOST && written.load(Ordering::Relaxed) < WRITES {
            device.read_mapped(&memory, 0, &mut whole)?;
            reads += 1;
            mixed += u32::from(whole[1..] != whole[..whole.len() - 1]);
        }
        Ok::<_, BackendError>((reads, mixed))
    };
    device.write_mapped(&memory, 0, &vec![0; bytes as usize])?;
    let (writes, seen) = thread::scope(|scope| {
        let write = &write;
        let writers = [1, 2].map(|value| scope.spawn(move || write(value)));
        let seen = reads();
        is_over.store(true, Ordering::Relaxed);
        (writers.map(thread::ScopedJoinHandle::join), seen)
    });
    for written in writes {
        written.map_err(|_| Outcome::Broken("a mapped write panicked".into()))??;
    }
    let (reads, mixed) = seen?;
    require!(mixed == 0, "{mixed} of {reads} mapped reads saw parts of two writes");
    Ok(())
}
