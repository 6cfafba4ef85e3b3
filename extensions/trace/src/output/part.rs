//! The temporary file that an output is written to.

#[cfg(target_os = "linux")]
use super::unnamed::Unnamed;
use std::fs::File;
use std::io;
use std::path::Path;
use tempfile::{Builder, NamedTempFile};

/// A temporary file in the folder of its target.
#[derive(Debug)]
pub(super) enum Part {
    /// A file without a name, which disappears with the process.
    #[cfg(target_os = "linux")]
    Unnamed(Unnamed),
    /// A hidden file, which is removed on drop.
    Named(NamedTempFile),
}

impl Part {
    pub(super) fn beside(target: &Path) -> io::Result<Self> {
        let folder = match target.parent() {
            Some(folder) if folder != Path::new("") => folder,
            _ => Path::new("."),
        };
        #[cfg(target_os = "linux")]
        if let Some(unnamed) = Unnamed::in_folder(folder)? {
            return Ok(Self::Unnamed(unnamed));
        }
        let mut builder = Builder::new();
        builder.prefix(".vrampool-").suffix(".part");
        // Less the process's mask, as files that are created without a temporary one.
        #[cfg(unix)]
        builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
        builder.tempfile_in(folder).map(Self::Named)
    }

    pub(super) fn file(&self) -> &File {
        match self {
            #[cfg(target_os = "linux")]
            Self::Unnamed(unnamed) => unnamed.file(),
            Self::Named(named) => named.as_file(),
        }
    }

    /// Flushes it to the disk and renames it to `target`.
    pub(super) fn commit(self, target: &Path) -> io::Result<()> {
        self.file().sync_all()?;
        match self {
            #[cfg(target_os = "linux")]
            Self::Unnamed(unnamed) => unnamed.rename_to(target),
            Self::Named(named) => named.persist(target).map(drop).map_err(|error| error.error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    /// The way of systems without unnamed files.
    #[test]
    fn a_named_part_replaces_its_target_and_a_dropped_one_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let target = folder.path().join("a");
        std::fs::write(&target, "old").expect("a file");
        let named =
            || Part::Named(Builder::new().suffix(".part").tempfile_in(folder.path()).expect("a file"));
        let count = || std::fs::read_dir(folder.path()).expect("a folder").count();
        let dropped = named();
        assert_eq!(count(), 2);
        drop(dropped);
        let part = named();
        part.file().write_all(b"new").expect("room");
        part.commit(&target).expect("a folder");
        assert_eq!((std::fs::read(&target).expect("a file"), count()), (b"new".to_vec(), 1));
    }
}
