//! Linux's files without a name (`O_TMPFILE`), and how such a file replaces another one.

use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};
use rustix::io::Errno;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub(super) struct Unnamed(File);

impl Unnamed {
    /// `None` where the file system has no such files, or the kernel's own file system that names them is
    /// missing.
    pub(super) fn in_folder(folder: &Path) -> io::Result<Option<Self>> {
        let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o666);
        match openat(CWD, folder, flags, mode) {
            Ok(file) => {
                let file = Self(file.into());
                let has_name = fs::symlink_metadata(file.descriptor()).is_ok();
                Ok(has_name.then_some(file))
            }
            // What kernels and file systems without them report.
            Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOSYS) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.0
    }

    /// Gives it a name of its own, then renames it to `target`: a link cannot replace a file. All processes
    /// that write `target` use the same name. A process that finds it taken completes the other's
    /// replacement, which may be waiting or dead; the file is complete in either case.
    pub(super) fn rename_to(self, target: &Path) -> io::Result<()> {
        let part = part_of(target);
        loop {
            match linkat(CWD, self.descriptor(), CWD, &part, AtFlags::SYMLINK_FOLLOW) {
                Ok(()) => return replace(&part, target),
                Err(Errno::EXIST) => replace(&part, target)?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn descriptor(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.0.as_raw_fd()).into()
    }
}

/// Where `part` is missing, another process has renamed it.
fn replace(part: &Path, target: &Path) -> io::Result<()> {
    match fs::rename(part, target) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => {
            let _ = fs::remove_file(part);
            Err(error)
        }
        Ok(()) => Ok(()),
    }
}

/// The name is short whatever the target's is: names have a greatest length.
fn part_of(target: &Path) -> PathBuf {
    let mut hasher = DefaultHasher::new();
    target.file_name().hash(&mut hasher);
    target.with_file_name(format!(".vrampool-{:016x}.part", hasher.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn a_name_that_a_dead_process_left_is_used_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("a");
        fs::write(part_of(&target), "whole, by a process that was killed").expect("a file");
        let Some(unnamed) = Unnamed::in_folder(folder.path()).expect("a folder") else { return };
        unnamed.file().write_all(b"new").expect("room");
        unnamed.rename_to(&target).expect("a folder");
        assert_eq!(fs::read(&target).expect("a file"), b"new");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1);
    }
}
