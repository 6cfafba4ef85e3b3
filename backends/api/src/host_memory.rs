//! The host memory that a process may use.

use std::fs;
use std::path::{Path, PathBuf};

/// Where control groups are mounted, in the root of the file system: version 2, version 1, and version 2
/// beside version 1.
const GROUPS: [(&str, &str, &str); 3] = [
    ("sys/fs/cgroup", "", "memory.max"),
    ("sys/fs/cgroup/memory", "memory", "memory.limit_in_bytes"),
    ("sys/fs/cgroup/unified", "", "memory.max"),
];

/// Bytes of the host's memory that this process may use: the machine's, or less where a control group
/// (version 1 or 2), one that it is in, or a limit of the process (address space, data) leaves less. Of a
/// limit what is in use is subtracted.
///
/// `None` where the system does not report it: on Linux without `/proc`, and on other systems.
#[must_use]
pub fn host_memory() -> Option<u64> {
    of_root(Path::new("/"))
}

fn of_root(root: &Path) -> Option<u64> {
    let read = |path: &str| fs::read_to_string(root.join(path)).ok();
    let machine = kibibytes(&read("proc/meminfo")?, "MemTotal:")?;
    let groups = read("proc/self/cgroup").unwrap_or_default();
    let of_groups = GROUPS.into_iter().filter_map(|(mount, controller, file)| {
        let path = path_of(&groups, controller).unwrap_or("/");
        least(&root.join(mount), path, file)
    });
    let Left { addresses, data } = Left::of_root(root);
    of_groups.chain([addresses, data].into_iter().flatten()).chain([machine]).min()
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

/// The path of the group of that controller; an empty one is version 2.
fn path_of<'a>(groups: &'a str, controller: &str) -> Option<&'a str> {
    groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|one| one == controller).then_some(path)
    })
}

/// The least limit of a group and of those that it is in. A container may see its own group alone, as the
/// mount's root.
fn least(mount: &Path, path: &str, file: &str) -> Option<u64> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != "..").collect();
    let groups = (0..=parts.len()).map(|depth| mount.join(parts[..depth].iter().collect::<PathBuf>()));
    let limit = |group: PathBuf| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok();
    groups.filter_map(limit).min()
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
