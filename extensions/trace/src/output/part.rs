//! The temporary file that an output is written to.

use std::fs::File;
use std::io;
use std::path::Path;
use tempfile::{Builder, TempPath};

/// A temporary file in the folder of its target.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) file: File,
    /// A hidden name, which is removed on drop; `None` of a file without a name, which disappears with the process.
    name: Option<TempPath>,
}

impl Part {
    pub(super) fn beside(target: &Path) -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        if let Some(file) = unnamed(folder_of(target)) {
            return Ok(Self { file, name: None });
        }
        Self::named_beside(target)
    }

    /// The way of systems without unnamed files.
    fn named_beside(target: &Path) -> io::Result<Self> {
        let mut builder = builder();
        // Less the process's mask, as files that are created without a temporary one.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        let (file, name) = builder.tempfile_in(folder_of(target))?.into_parts();
        Ok(Self { file, name: Some(name) })
    }

    /// A file for the content of a device, which needs no folder on Linux.
    pub(super) fn in_memory() -> io::Result<Self> {
        #[cfg(target_os = "linux")]
        let file = rustix::fs::memfd_create("vrampool output", rustix::fs::MemfdFlags::CLOEXEC)?.into();
        #[cfg(not(target_os = "linux"))]
        let file = tempfile::tempfile()?;
        Ok(Self { file, name: None })
    }

    /// Flushes it to the disk and renames it to `target`.
    pub(super) fn commit(self, target: &Path) -> io::Result<()> {
        self.file.sync_all()?;
        let name = match self.name {
            Some(name) => name,
            None => link(&self.file, folder_of(target))?,
        };
        name.persist(target).map_err(|error| error.error)
    }
}

fn builder() -> Builder<'static, 'static> {
    let mut builder = Builder::new();
    builder.prefix(".vrampool-").suffix(".part");
    builder
}

fn folder_of(target: &Path) -> &Path {
    target.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."))
}

/// A file without a name (`O_TMPFILE`); `None` where the file system has no such files, where the kernel's own file
/// system that names them is missing, and where no file can be written.
#[cfg(target_os = "linux")]
fn unnamed(folder: &Path) -> Option<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let flags = rustix::fs::OFlags::TMPFILE.bits() as i32;
    let file = File::options().read(true).write(true).custom_flags(flags).open(folder).ok()?;
    Path::new(&descriptor(&file)).symlink_metadata().is_ok().then_some(file)
}

/// Names a file that has no name, because a link cannot replace a file.
#[cfg(target_os = "linux")]
fn link(file: &File, folder: &Path) -> io::Result<TempPath> {
    use rustix::fs::{AtFlags, CWD, linkat};
    let link = |name: &Path| Ok(linkat(CWD, descriptor(file), CWD, name, AtFlags::SYMLINK_FOLLOW)?);
    builder().make_in(folder, link).map(|linked| linked.into_temp_path())
}

#[cfg(target_os = "linux")]
fn descriptor(file: &File) -> String {
    format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(file))
}

/// Only Linux's files have no name.
#[cfg(not(target_os = "linux"))]
fn link(_: &File, _: &Path) -> io::Result<TempPath> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_part_replaces_its_target_and_a_dropped_one_leaves_nothing() {
        for (beside, names) in [(Part::named_beside as fn(&Path) -> _, 2), (Part::beside, 1)] {
            let folder = tempfile::tempdir().expect("a folder");
            let target = folder.path().join("a");
            std::fs::write(&target, "old").expect("a file");
            let count = || std::fs::read_dir(folder.path()).expect("a folder").count();
            let dropped = beside(&target).expect("a file");
            assert!(count() == names || dropped.name.is_some());
            drop(dropped);
            assert_eq!(count(), 1);
            let mut part = beside(&target).expect("a file");
            part.file.write_all(b"new").expect("room");
            part.commit(&target).expect("a folder");
            assert_eq!((std::fs::read(&target).expect("a file"), count()), (b"new".to_vec(), 1));
        }
    }
}
