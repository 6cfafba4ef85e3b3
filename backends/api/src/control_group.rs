//! Control groups of Linux, which limit the memory of their processes together.

use std::fs;
use std::path::{Path, PathBuf};

/// Where a version of control groups is mounted in the root of the file system, and its files.
struct Version {
    mount: &'static str,
    /// The controller's name in `/proc/self/cgroup`; empty for version 2.
    controller: &'static str,
    limit: &'static str,
    usage: &'static str,
    /// Figures of `memory.stat`: cached files, which the kernel drops when memory is needed.
    cached: [&'static str; 2],
}

const TWO: Version = Version {
    mount: "sys/fs/cgroup",
    controller: "",
    limit: "memory.max",
    usage: "memory.current",
    cached: ["inactive_file ", "active_file "],
};

/// Version 2, version 1, and version 2 beside version 1.
static VERSIONS: [Version; 3] = [
    TWO,
    Version {
        mount: "sys/fs/cgroup/memory",
        controller: "memory",
        limit: "memory.limit_in_bytes",
        usage: "memory.usage_in_bytes",
        cached: ["total_inactive_file ", "total_active_file "],
    },
    Version { mount: "sys/fs/cgroup/unified", ..TWO },
];

/// A group that this process is in.
pub(crate) struct ControlGroup {
    folder: PathBuf,
    version: &'static Version,
}

impl ControlGroup {
    /// The groups of this process, and those around them, in a file system with that root.
    pub(crate) fn all(root: &Path) -> impl Iterator<Item = Self> {
        let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        let of_version = |version: &'static Version| {
            let path = path_of(&groups, version.controller).unwrap_or("/");
            around(&root.join(version.mount), path).into_iter().map(move |folder| Self { folder, version })
        };
        VERSIONS.iter().flat_map(of_version).collect::<Vec<_>>().into_iter()
    }

    /// Its limit in bytes, if it has one.
    pub(crate) fn limit(&self) -> Option<u64> {
        self.figure(self.version.limit)
    }

    /// Bytes that its limit leaves.
    pub(crate) fn left(&self) -> Option<u64> {
        let (limit, used) = (self.limit()?, self.figure(self.version.usage).unwrap_or(0));
        Some(limit.saturating_sub(used.saturating_sub(self.cached_files())))
    }

    fn cached_files(&self) -> u64 {
        let stat = fs::read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        let figure = |name: &str| {
            let figure = stat.lines().find_map(|line| line.strip_prefix(name))?;
            figure.trim().parse::<u64>().ok()
        };
        self.version.cached.iter().filter_map(|name| figure(name)).sum()
    }

    fn figure(&self, file: &str) -> Option<u64> {
        fs::read_to_string(self.folder.join(file)).ok()?.trim().parse().ok()
    }
}

/// The path of the group of that controller.
fn path_of<'a>(groups: &'a str, controller: &str) -> Option<&'a str> {
    groups.lines().find_map(|line| {
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|one| one == controller).then_some(path)
    })
}

/// The folders of a group and of those around it. A container may see its own group alone, as the mount's root.
fn around(mount: &Path, path: &str) -> Vec<PathBuf> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty() && *part != "..").collect();
    (0..=parts.len()).map(|depth| mount.join(parts[..depth].iter().collect::<PathBuf>())).collect()
}
