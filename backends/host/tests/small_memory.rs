//! Small memory costs what is touched of it, and none at all is an error. Alone in its process, whose memory
//! is counted.
#![cfg(target_os = "linux")]

use vrampool_backend::AllocationRequest;
use vrampool_host::{Backend, HostDevice, HostMemory, Placement, Region, RegionMut};
use vrampool_test_support::{BackendExt, is_inside, passed, test_behind};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Bytes of this process that are in memory.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("figures");
    let pages = text.split(' ').nth(1).expect("the second").parse::<u64>().expect("a number");
    pages * rustix::param::page_size() as u64
}

fn allocate(device: &HostDevice, bytes: u64) -> HostMemory {
    device.memory(bytes, Placement::Device)
}

#[test]
fn untouched_memory_costs_nothing() {
    let device = HostDevice::builder().memory_limit(8 << 30).build();
    let stream = device.stream();
    let before = resident();
    let held: Vec<_> = (0..30_000).map(|_| allocate(&device, 60 * KIB)).collect();
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 * MIB, "{grown} bytes for what would be 1.8 GB");
    for memory in held.iter().step_by(1000) {
        device.fill(&stream, RegionMut::whole(memory, &stream), 7).expect("queued");
        let mut bytes = vec![0; 60 * KIB as usize];
        device.download(&stream, Region::whole(memory, &stream), &mut bytes).expect("no fault");
        assert!(bytes.iter().all(|&byte| byte == 7));
    }
    drop(held);
    // Pages that were touched are released, and the next ones are zeroed.
    assert!(resident().saturating_sub(before) < 64 * MIB);
    for bytes in [60 * KIB, 100, 5000] {
        let memory = allocate(&device, bytes);
        let mut read = vec![1; bytes as usize];
        device.download(&stream, Region::whole(&memory, &stream), &mut read).expect("no fault");
        assert!(read.iter().all(|&byte| byte == 0), "{bytes}");
    }
}

/// With few addresses, and a device that believes to have more.
#[test]
fn a_process_without_addresses_gets_an_error() {
    if !is_inside() {
        passed(&mut test_behind("ulimit -v 600000", "a_process_without_addresses_gets_an_error"));
        return;
    }
    // The default is what the limit leaves.
    let left = HostDevice::new().properties().total_bytes;
    assert!(left > 0 && left < 600_000 * KIB, "{left}");
    let device = HostDevice::builder().memory_limit(8 << 30).build();
    for bytes in [60 * KIB, 3 * KIB] {
        let mut held = Vec::with_capacity(400_000);
        let error = loop {
            match device.allocate(&AllocationRequest::new(bytes, Placement::Device)) {
                Ok(memory) => held.push(memory),
                Err(error) => break error,
            }
        };
        assert!(error.is_out_of_memory(), "{error}");
        assert!(held.len() as u64 * bytes > 100 * MIB, "{} of {bytes}", held.len());
        held.truncate(held.len() / 2);
        held.push(allocate(&device, bytes));
    }
}
