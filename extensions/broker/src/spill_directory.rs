//! The default directory for arrays that exceed the host's memory, on a disk rather than in memory.

use std::path::{Path, PathBuf};
use vrampool_backend::logging;

/// The mounts of this process, on Linux.
const MOUNTS: &str = "/proc/self/mounts";

/// Temporary files that survive a restart, which no system keeps in memory.
const ON_DISK: &str = "/var/tmp";

/// File systems in memory.
const IN_MEMORY: [&str; 3] = ["tmpfs", "ramfs", "devtmpfs"];

/// Returns the system's directory of temporary files, or `/var/tmp` if only the former is in memory.
pub(super) fn default() -> PathBuf {
    let temporary = std::env::temp_dir();
    let mounts = std::fs::read_to_string(MOUNTS).unwrap_or_default();
    chosen(temporary, Path::new(ON_DISK), &mounts)
}

fn chosen(temporary: PathBuf, on_disk: &Path, mounts: &str) -> PathBuf {
    if !is_in_memory(&temporary, mounts) {
        return temporary;
    }
    if on_disk.is_dir() && !is_in_memory(on_disk, mounts) {
        return on_disk.into();
    }
    logging::warn!(
        "{} is memory, so arrays that are spilled there take it; set `spill_directory`",
        temporary.display()
    );
    temporary
}

/// Whether `path` is in a file system in memory, by a list of mounts. Later mounts take precedence.
fn is_in_memory(path: &Path, mounts: &str) -> bool {
    let path = path.canonicalize().unwrap_or_else(|_| path.into());
    let mount = |line: &str| {
        let mut fields = line.split(' ').skip(1);
        let point = fields.next()?.replace("\\040", " ").replace("\\011", "\t");
        let kind = fields.next()?.to_owned();
        path.starts_with(&point).then(|| (Path::new(&point).components().count(), kind))
    };
    let nearest = mounts.lines().filter_map(mount).max_by_key(|(depth, _)| *depth);
    nearest.is_some_and(|(_, kind)| IN_MEMORY.contains(&&*kind))
}

/// Windows has no list of mounts, and its paths are not below `/`.
#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_on_a_disk_where_there_is_one() {
        let disk = tempfile::tempdir().expect("a directory");
        let disk = disk.path().canonicalize().expect("it is there");
        let temporary = PathBuf::from("/none/tmp");
        let root = "/dev/sda1 / ext4 rw 0 0\n";
        let memory = format!("{root}tmpfs /none/tmp tmpfs rw 0 0\n");
        assert_eq!(chosen(temporary.clone(), &disk, root), temporary);
        assert_eq!(chosen(temporary.clone(), &disk, &memory), disk);
        // The innermost mount counts, and of two at one place the last.
        let inner = format!("{memory}/dev/sdb1 /none/tmp ext4 rw 0 0\n");
        assert_eq!(chosen(temporary.clone(), &disk, &inner), temporary);
        assert!(is_in_memory(Path::new("/none/tmp/a/b"), &memory));
        assert!(!is_in_memory(Path::new("/none/tmpfile"), &memory));
        assert!(is_in_memory(Path::new("/a b/c"), "tmpfs /a\\040b tmpfs rw 0 0"));
        // No better directory, and no list.
        let all = "tmpfs / tmpfs rw 0 0\n";
        assert_eq!(chosen(temporary.clone(), &disk, all), temporary);
        assert_eq!(chosen(temporary.clone(), &disk, ""), temporary);
    }
}
