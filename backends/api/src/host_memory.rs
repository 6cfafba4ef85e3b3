//! The host memory that a process may use.

use crate::control_group::ControlGroup;
use std::fs;
use std::path::Path;
use std::sync::OnceLock;

/// Bytes of the host's memory that this process may allocate: the machine's, or less where a control group
/// (version 1 or 2), a group around it, or a limit of the process (address space, data) leaves less. What is in
/// use is subtracted from each limit; of a group's usage, all but cached files.
///
/// `None` where the system does not report it: on Linux without `/proc`, and on other systems.
#[must_use]
pub fn host_memory() -> Option<u64> {
    of_root(Path::new("/"))
}

/// Bytes that the control groups of this process leave; `None` without a limit below the machine's memory.
///
/// Memory that was allocated and never written is not in a group's usage.
///
/// Without a limit when this is first called, one comparison; with one, some tens of microseconds.
///
/// ```
/// use vrampool_backend::spi::group_memory_left;
/// let bytes = 1 << 20;
/// assert!(group_memory_left().is_none_or(|left| left >= bytes), "1 MiB more would end the process");
/// ```
#[must_use]
pub fn group_memory_left() -> Option<u64> {
    static IS_LIMITED: OnceLock<bool> = OnceLock::new();
    let root = Path::new("/");
    let is_limited = || {
        let machine = machine_memory(root)?;
        ControlGroup::all(root).any(|group| group.limit().is_some_and(|limit| limit < machine)).then_some(())
    };
    IS_LIMITED.get_or_init(|| is_limited().is_some()).then(|| left_of_groups(root)).flatten()
}

fn machine_memory(root: &Path) -> Option<u64> {
    kibibytes(&fs::read_to_string(root.join("proc/meminfo")).ok()?, "MemTotal:")
}

fn of_root(root: &Path) -> Option<u64> {
    let machine = machine_memory(root)?;
    let Left { addresses, data } = Left::of_root(root);
    [left_of_groups(root), addresses, data].into_iter().flatten().chain([machine]).min()
}

fn left_of_groups(root: &Path) -> Option<u64> {
    ControlGroup::all(root).filter_map(|group| group.left()).min()
}

/// Bytes that limits of this process leave; `None` without a limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Left {
    /// Of addresses (`ulimit -v`).
    pub(crate) addresses: Option<u64>,
    /// Of addresses that are the process's own and may be written (`ulimit -d`).
    pub(crate) data: Option<u64>,
}

impl Left {
    pub(crate) fn now() -> Self {
        Self::of_root(Path::new("/"))
    }

    fn of_root(root: &Path) -> Self {
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let (limits, status) = (read("proc/self/limits"), read("proc/self/status"));
        let left = |limit, used| {
            Some(soft_limit(&limits, limit)?.saturating_sub(kibibytes(&status, used).unwrap_or(0)))
        };
        Self { addresses: left("Max address space", "VmSize:"), data: left("Max data size", "VmData:") }
    }
}

/// A figure of `/proc`, bytes.
fn kibibytes(text: &str, name: &str) -> Option<u64> {
    let figure = text.lines().find_map(|line| line.strip_prefix(name))?;
    figure.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// A line of `/proc/self/limits`, bytes.
fn soft_limit(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const MEMORY: (&str, &str) = ("proc/meminfo", "MemFree:  1 kB\nMemTotal:       1048576 kB\n");

    /// A root with these files.
    fn memory(files: &[(&str, &str)]) -> Option<u64> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let root = std::env::temp_dir().join(format!("vrampool-root-{}-{number}", std::process::id()));
        for (path, content) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
            fs::write(path, content).expect("a file");
        }
        let memory = of_root(&root);
        let _ = fs::remove_dir_all(&root);
        memory
    }

    #[test]
    fn without_a_report_it_is_unknown_and_not_zero() {
        assert_eq!(memory(&[]), None);
        assert_eq!(memory(&[("proc/meminfo", "MemTotal: some\n")]), None);
        assert_eq!(memory(&[MEMORY]), Some(1024 * MIB));
    }

    #[test]
    fn a_group_of_either_version_and_those_around_it_count() {
        let two = [MEMORY, ("proc/self/cgroup", "0::/job/step\n")];
        let of_two = |files: &[(&str, &str)]| memory(&[&two[..], files].concat());
        assert_eq!(of_two(&[]), Some(1024 * MIB));
        assert_eq!(of_two(&[("sys/fs/cgroup/job/step/memory.max", "max\n")]), Some(1024 * MIB));
        let step = ("sys/fs/cgroup/job/step/memory.max", "104857600\n");
        assert_eq!(of_two(&[step]), Some(100 * MIB));
        assert_eq!(of_two(&[step, ("sys/fs/cgroup/job/memory.max", "52428800\n")]), Some(50 * MIB));
        // A container's own group is the root that it sees.
        assert_eq!(of_two(&[("sys/fs/cgroup/memory.max", "1048576\n")]), Some(MIB));
        let one = [
            MEMORY,
            ("proc/self/cgroup", "5:cpu,cpuacct:/a\n4:memory:/docker/7\n1:name=systemd:/b\n0::/c\n"),
        ];
        let of_one = |files: &[(&str, &str)]| memory(&[&one[..], files].concat());
        let limit = "sys/fs/cgroup/memory/docker/7/memory.limit_in_bytes";
        assert_eq!(of_one(&[(limit, "9223372036854771712\n")]), Some(1024 * MIB));
        assert_eq!(of_one(&[(limit, "104857600\n")]), Some(100 * MIB));
        assert_eq!(of_one(&[("sys/fs/cgroup/memory/memory.limit_in_bytes", "104857600\n")]), Some(100 * MIB));
        assert_eq!(of_one(&[("sys/fs/cgroup/unified/c/memory.max", "52428800\n")]), Some(50 * MIB));
    }

    #[test]
    fn used_bytes_of_a_group_are_subtracted_except_cached_files() {
        let two = [
            MEMORY,
            ("proc/self/cgroup", "0::/job\n"),
            ("sys/fs/cgroup/job/memory.max", "104857600\n"),
            ("sys/fs/cgroup/job/memory.current", "83886080\n"),
        ];
        assert_eq!(memory(&two), Some(20 * MIB));
        let stat = "anon 1\nfile 41943040\ninactive_file 10485760\nactive_file 5242880\n";
        assert_eq!(memory(&[&two[..], &[("sys/fs/cgroup/job/memory.stat", stat)]].concat()), Some(35 * MIB));
        // A group above it that others fill leaves less.
        let around =
            [("sys/fs/cgroup/memory.max", "209715200\n"), ("sys/fs/cgroup/memory.current", "209719296\n")];
        assert_eq!(memory(&[&two[..], &around].concat()), Some(0));
        let one = [
            MEMORY,
            ("proc/self/cgroup", "4:memory:/docker/7\n"),
            ("sys/fs/cgroup/memory/docker/7/memory.limit_in_bytes", "104857600\n"),
            ("sys/fs/cgroup/memory/docker/7/memory.usage_in_bytes", "83886080\n"),
            // Usage includes groups within; so do the figures with `total_`.
            ("sys/fs/cgroup/memory/docker/7/memory.stat", "inactive_file 1\ntotal_inactive_file 10485760\n"),
        ];
        assert_eq!(memory(&one), Some(30 * MIB));
    }

    #[test]
    fn limits_count_without_what_is_in_use() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
                      Max data size             209715200            unlimited            bytes     \n\
                      Max address space         314572800            unlimited            bytes     \n";
        let status = ("proc/self/status", "VmSize:\t  204800 kB\nVmData:\t   51200 kB\n");
        assert_eq!(memory(&[MEMORY, ("proc/self/limits", limits), status]), Some(100 * MIB));
        let unlimited = limits.replace("314572800", "unlimited");
        assert_eq!(memory(&[MEMORY, ("proc/self/limits", &unlimited), status]), Some(150 * MIB));
        assert_eq!(memory(&[MEMORY, ("proc/self/limits", limits)]), Some(200 * MIB));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_has_some() {
        assert!(host_memory().is_some_and(|bytes| bytes > 16 * MIB));
    }
}
