//! A process that an operator limits: each test runs again in a process of its own that has the limit.

use crate::{MIB, device, pool};
use vrampool::backend::AllocationRequest;
use vrampool::errors::chain;
use vrampool::{Backend, Placement};
use vrampool_broker::{Broker, BrokerError, HostBacking};
use vrampool_test_support::{is_inside, passed, test_behind};

/// Runs one test of this program again, behind `limit`, a shell's command.
fn again(test: &str, limit: &str) -> bool {
    if is_inside() {
        return false;
    }
    passed(&mut test_behind(limit, test));
    true
}

/// By default the signal that comes with it ends a process.
#[test]
fn a_spill_over_the_limit_on_files_is_an_error() {
    if again("limits::a_spill_over_the_limit_on_files_is_an_error", "ulimit -f 64") {
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let broker =
        Broker::builder(&pool(&device(MIB))).spill_directory(directory.path()).build().expect("a broker");
    let error = broker.host_array_in(MIB, HostBacking::File).expect_err("it is over the limit");
    assert!(matches!(error, BrokerError::Spill { call: "extending", bytes: MIB, .. }), "{error}");
    assert!(chain(&error).to_string().contains("ulimit -f"), "{error}");
    assert_eq!(broker.stats().spilled_bytes, 0);
    // 32 KiB is within it in whichever unit the shell counts.
    let mut array = broker.host_array_in(MIB / 32, HostBacking::File).expect("it is within the limit");
    array.write_at(&[7], MIB / 32 - 1).expect("written");
}

#[test]
fn a_missing_folder_for_temporary_files_matters_to_a_spill_alone() {
    let name = "limits::a_missing_folder_for_temporary_files_matters_to_a_spill_alone";
    if again(name, "export TMPDIR=/nonexistent/vrampool") {
        return;
    }
    let broker = Broker::builder(&pool(&device(MIB))).build().expect("a broker");
    assert_eq!(broker.host_array_in(MIB, HostBacking::Pageable).expect("memory").len(), MIB);
    // Where that folder would be memory, another one is used.
    if let Err(error) = broker.host_array_in(MIB, HostBacking::File) {
        assert!(matches!(error, BrokerError::Spill { call: "creating", .. }), "{error}");
        assert!(error.to_string().contains("choose a directory"), "{error}");
    }
}

/// A file in memory would take the memory that the spill is to spare.
#[test]
fn a_spill_is_on_a_disk_where_temporary_files_are_memory() {
    const MEMORY: &str = "/dev/shm";
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("the mounts");
    let is_tmpfs = |point: &str| mounts.contains(&format!(" {point} tmpfs "));
    if !is_tmpfs(MEMORY) || ["/var/tmp", "/var", "/"].into_iter().any(is_tmpfs) {
        vrampool_test_support::skipped(format_args!("{MEMORY} is no memory, or /var/tmp is"));
        return;
    }
    let name = "limits::a_spill_is_on_a_disk_where_temporary_files_are_memory";
    if again(name, &format!("export TMPDIR={MEMORY}")) {
        return;
    }
    let broker = Broker::builder(&pool(&device(MIB))).build().expect("a broker");
    let array = broker.host_array_in(MIB, HostBacking::File).expect("an array");
    let files: Vec<_> = std::fs::read_dir("/proc/self/fd")
        .expect("the open files")
        .filter_map(|file| std::fs::read_link(file.ok()?.path()).ok())
        .collect();
    let is_open_in = |folder: &str| files.iter().any(|file| file.starts_with(folder));
    assert!(is_open_in("/var/tmp") && !is_open_in(MEMORY), "{files:?}");
    drop(array);
}

/// Whatever takes all addresses that a process may have: a thread's start, which ends the process where it
/// lacks a page, has enough, and so has what is small.
#[test]
#[cfg(target_os = "linux")]
fn what_takes_all_addresses_leaves_room_for_threads() {
    let name = "limits::what_takes_all_addresses_leaves_room_for_threads";
    if ["ulimit -v 500000", "ulimit -d 400000"].map(|limit| again(name, limit)) == [true; 2] {
        return;
    }
    let device = vrampool::host::HostDevice::new();
    let broker = Broker::builder(&pool(&device)).build().expect("a broker");
    let takers: [&dyn Fn(u64) -> Option<Box<dyn std::any::Any>>; 4] = [
        &|bytes| Some(Box::new(device.allocate(&AllocationRequest::new(bytes, Placement::Device)).ok()?)),
        &|bytes| Some(Box::new(broker.host_array_in(bytes, HostBacking::Pinned).ok()?)),
        &|bytes| Some(Box::new(broker.host_array_in(bytes, HostBacking::Pageable).ok()?)),
        &|bytes| Some(Box::new(device.virtual_memory()?.reserve(bytes).ok()?)),
    ];
    for take in takers {
        let mut taken = Vec::with_capacity(8192);
        let mut bytes = 64 * MIB;
        while bytes >= 64 << 10 && taken.len() < 8192 {
            match take(bytes) {
                Some(memory) => taken.push(memory),
                None => bytes /= 2,
            }
        }
        // Reserved addresses are no data.
        assert!(bytes < 64 << 10 || taken.len() == 8192, "{} taken", taken.len());
        let threads = [(); 8].map(|()| std::thread::spawn(|| vec![1_u8; 1000].len()).join());
        assert!(threads.into_iter().all(|len| len.is_ok_and(|len| len == 1000)));
    }
}
