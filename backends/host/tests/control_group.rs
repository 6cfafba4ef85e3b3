//! In a control group that limits memory, allocations beyond it fail and do not end the process.
#![cfg(target_os = "linux")]

use std::fs;
use std::path::{Path, PathBuf};
use vrampool_backend::{AllocationRequest, BackendError};
use vrampool_host::{Backend, HostDevice, HostMemory, Memory, Placement, RegionMut};
use vrampool_test_support::{BackendExt, is_inside, passed, skip, test_behind};

const MIB: u64 = 1 << 20;
const LIMIT: u64 = 256 * MIB;

/// A control group of version 1 or 2, removed on drop.
struct Group(PathBuf);

impl Group {
    /// `None` where this process may not create one.
    fn new(name: &str) -> Option<Self> {
        let name = format!("vrampool-{name}-{}", std::process::id());
        let create = |mount: &str, limit: &str| {
            let group = Self(Path::new(mount).join(&name));
            fs::create_dir(&group.0).ok()?;
            // Of another file system it is an empty folder.
            group.0.join("cgroup.procs").is_file().then_some(())?;
            fs::write(group.0.join(limit), LIMIT.to_string()).ok()?;
            // Swap would hide a lack of memory. The file exists where the kernel counts swap.
            let _ = fs::write(group.0.join("memory.swap.max"), "0");
            Some(group)
        };
        create("/sys/fs/cgroup", "memory.max")
            .or_else(|| create("/sys/fs/cgroup/memory", "memory.limit_in_bytes"))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

/// Runs `inside` in a separate process whose control group has [`LIMIT`] bytes.
fn in_group(test: &str, inside: impl FnOnce()) {
    if is_inside() {
        return inside();
    }
    let Some(group) = Group::new(test) else {
        return skip("cgroup", "this process cannot create control groups with a limit on memory");
    };
    passed(test_behind("echo $$ > \"$GROUP/cgroup.procs\"", test).env("GROUP", &group.0));
}

fn allocate(device: &HostDevice, bytes: u64) -> Result<HostMemory, BackendError> {
    device.allocate(&AllocationRequest::new(bytes, Placement::Device))
}

fn touch(device: &HostDevice, memory: &HostMemory) {
    fill(device, memory, 0, memory.len());
}

fn fill(device: &HostDevice, memory: &HostMemory, offset: u64, bytes: u64) {
    let stream = device.stream();
    let region = RegionMut::new(memory, offset, bytes, &stream).expect("inside");
    device.fill(&stream, region, 7).expect("queued");
    device.synchronize(&stream).expect("no fault");
}

/// Allocates until nothing is left, and returns what it got. `after` sees each.
fn exhaust(device: &HostDevice, bytes: u64, mut after: impl FnMut(&HostMemory)) -> Vec<HostMemory> {
    let mut held = Vec::new();
    loop {
        assert!(held.len() as u64 * bytes <= LIMIT, "more than the group has");
        match allocate(device, bytes) {
            Ok(memory) => {
                after(&memory);
                held.push(memory);
            }
            Err(error) => {
                assert!(error.is_out_of_memory(), "{error}");
                let free = device.memory_info().expect("no fault").free_bytes;
                assert!(free < bytes, "{free} bytes are free, and {bytes} were refused");
                assert!(held.len() as u64 * bytes >= LIMIT / 2, "only {} times {bytes}", held.len());
                return held;
            }
        }
    }
}

#[test]
fn the_process_itself_is_subtracted() {
    in_group("the_process_itself_is_subtracted", || {
        let used = vec![1_u8; 64 * MIB as usize];
        let device = HostDevice::new();
        let total = device.properties().total_bytes;
        assert!(total <= LIMIT - used.len() as u64, "{total} bytes of {LIMIT}");
        assert!(total >= LIMIT / 2, "{total} bytes of {LIMIT}");
    });
}

#[test]
fn filled_buffers_end_in_an_error() {
    in_group("filled_buffers_end_in_an_error", || {
        let device = HostDevice::new();
        let mut held = exhaust(&device, 16 * MIB, |memory| touch(&device, memory));
        held.pop();
        held.push(allocate(&device, 16 * MIB).expect("what was freed serves"));
        touch(&device, &held[held.len() - 1]);
    });
}

#[test]
fn untouched_buffers_count() {
    in_group("untouched_buffers_count", || {
        // Two devices of one process: what one promised, the other cannot.
        let devices = [HostDevice::new(), HostDevice::new()];
        let mut first: Vec<_> =
            (0..4).map(|_| allocate(&devices[0], 16 * MIB).expect("there is room")).collect();
        let second = exhaust(&devices[1], 3 * MIB + 4096, |_| ());
        first.truncate(3);
        let mut all = first;
        all.extend(exhaust_all(&devices[0], 5000));
        for (device, held) in devices.iter().zip([all, second]) {
            held.iter().for_each(|memory| touch(device, memory));
        }
    });
}

/// As [`exhaust`], where little is left.
fn exhaust_all(device: &HostDevice, bytes: u64) -> Vec<HostMemory> {
    std::iter::from_fn(|| allocate(device, bytes).ok()).collect()
}

#[test]
fn memory_that_was_read_only_counts() {
    in_group("memory_that_was_read_only_counts", || {
        let device = HostDevice::new();
        // Reading maps the system's page of zeros, which costs the group nothing until it is written.
        let read = |memory: &HostMemory| {
            let stream = device.stream();
            let mut bytes = vec![0; 1 << 20];
            for offset in (0..16 * MIB).step_by(1 << 20) {
                let region = vrampool_host::Region::new(memory, offset, MIB, &stream).expect("inside");
                device.download(&stream, region, &mut bytes).expect("no fault");
            }
        };
        let held = exhaust(&device, 16 * MIB, read);
        held.iter().for_each(|memory| touch(&device, memory));
    });
}

#[test]
fn virtual_memory_counts() {
    in_group("virtual_memory_counts", || {
        let device = HostDevice::new();
        let Some(mapping) = device.virtual_memory() else { return };
        let request = AllocationRequest::new(16 * MIB, Placement::Device);
        let reservation = mapping.reserve(2 * LIMIT).expect("addresses");
        let mut pieces = Vec::new();
        let mut refused = None;
        while refused.is_none() && pieces.len() < 32 {
            match mapping.create_physical(&request) {
                Ok(physical) => {
                    let offset = pieces.len() as u64 * 16 * MIB;
                    mapping.map(&reservation, offset, &physical).expect("mapped");
                    mapping.set_access(&reservation, offset, 16 * MIB).expect("accessible");
                    if pieces.len() % 2 == 0 {
                        fill(&device, &reservation, offset, 16 * MIB);
                    }
                    pieces.push(physical);
                }
                Err(error) => refused = Some(error),
            }
        }
        assert!(refused.is_some_and(|error| error.is_out_of_memory()), "{} pieces", pieces.len());
        assert!(pieces.len() >= 8, "{} pieces", pieces.len());
        for piece in 0..pieces.len() as u64 {
            fill(&device, &reservation, piece * 16 * MIB, 16 * MIB);
        }
        let last = (pieces.len() as u64 - 1) * 16 * MIB;
        mapping.unmap(&reservation, last, 16 * MIB).expect("unmapped");
        pieces.pop();
        mapping.create_physical(&request).expect("what was freed serves");
    });
}

/// A file that was read or written is in the group's usage, and is dropped when memory is needed.
#[test]
fn cached_files_do_not_count() {
    in_group("cached_files_do_not_count", || {
        let path = std::env::temp_dir().join(format!("vrampool-cached-{}", std::process::id()));
        fs::write(&path, vec![1; 128 * MIB as usize]).expect("written");
        drop(fs::File::open(&path).and_then(|file| file.sync_all()));
        let held = exhaust(&HostDevice::new(), 16 * MIB, |_| ());
        let _ = fs::remove_file(&path);
        drop(held);
    });
}
