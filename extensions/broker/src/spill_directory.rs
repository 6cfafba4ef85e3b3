//! The default directory for arrays that exceed the host's memory, on a disk rather than in memory.

use std::path::{Path, PathBuf};
use vrampool_backend::logging;

/// Temporary files that survive a restart, which no system keeps in memory.
const ON_DISK: &str = "/var/tmp";

/// Returns the system's directory of temporary files, or `/var/tmp` if only the former is in memory.
pub(super) fn default() -> PathBuf {
    chosen(std::env::temp_dir(), Path::new(ON_DISK))
}

fn chosen(temporary: PathBuf, on_disk: &Path) -> PathBuf {
    if !is_in_memory(&temporary) {
        return temporary;
    }
    if on_disk.is_dir() && !is_in_memory(on_disk) {
        return on_disk.into();
    }
    logging::warn!(
        "{} is memory, so arrays that are spilled there take it; set `spill_directory`",
        temporary.display()
    );
    temporary
}

/// Whether `path` is in a file system in memory.
#[cfg(target_os = "linux")]
fn is_in_memory(path: &Path) -> bool {
    /// The kernel's numbers of tmpfs, which devtmpfs has too, and ramfs.
    const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
    rustix::fs::statfs(path).is_ok_and(|of| IN_MEMORY.contains(&(of.f_type as u64 & 0xffff_ffff)))
}

#[cfg(not(target_os = "linux"))]
fn is_in_memory(_: &Path) -> bool {
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_on_a_disk_where_there_is_one() {
        let (memory, disk) = (Path::new("/dev"), Path::new("/proc"));
        assert!(is_in_memory(memory) && !is_in_memory(disk) && !is_in_memory(Path::new("/none")));
        assert_eq!(chosen(disk.into(), memory), disk);
        assert_eq!(chosen(memory.into(), disk), disk);
        // No better directory.
        for worse in [memory, Path::new("/none")] {
            assert_eq!(chosen(memory.into(), worse), memory);
        }
    }
}
