//! Output files that are replaced as a whole or not at all.
//!
//! An [`Output`] is created before the work whose result it receives, so that a path that cannot be written
//! is reported first. Its content is written to a temporary file in the same folder, and
//! [`commit`](Output::commit) flushes that file to the disk and renames it to its path. Until then the
//! previous file stays as it was.
//!
//! * On Linux the temporary file has no name until it is complete. A process that is killed leaves nothing
//!   behind, except between two system calls at the end of `commit`. On other systems, and on file systems without
//!   unnamed files, a process that is killed leaves a hidden file whose name ends with `.part`.
//! * Two processes that write the same path leave the complete file of one of them.
//! * A symbolic link stays; the file that it names is replaced. The permissions of the previous file are
//!   kept, its owner and its other hard links are not.
//! * A device or a pipe has no previous content: it receives the bytes at the commit.

mod part;

pub use crate::error::shown::shown;
use crate::error::{TraceError, TraceFault};
use part::Part;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use vrampool::backend::spi::check_file_size;

/// How many symbolic links are followed to a file that does not exist yet, as on Linux.
const MAX_LINKS: usize = 40;

/// A file that is written completely before it replaces the previous file at its path.
///
/// Dropping it without [`commit`](Self::commit) discards what was written.
///
/// ```
/// use std::io::Write;
/// use vrampool_trace::output::Output;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("report.txt");
/// std::fs::write(&path, "the previous report")?;
/// let mut output = Output::create(&path)?;
/// output.write_all(b"the next")?;
/// assert_eq!(std::fs::read(&path)?, b"the previous report");
/// output.commit()?;
/// assert_eq!(std::fs::read(&path)?, b"the next");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "an output that is not committed is discarded"]
pub struct Output {
    /// As the caller named it.
    path: PathBuf,
    part: Part,
    target: Target,
}

#[derive(Debug)]
enum Target {
    /// A regular file at this path, links resolved.
    File(PathBuf),
    /// A device or a pipe.
    Device(File),
}

impl Output {
    /// Creates the temporary file for `path`.
    ///
    /// # Errors
    /// [`TraceError`] if the folder does not exist or is read-only, if `path` is a folder, or if the
    /// existing file must not be written.
    pub fn create(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        let path = path.as_ref();
        match open(path) {
            Ok((part, target)) => Ok(Self { path: path.into(), part, target }),
            Err(_) if path.is_dir() => Err(TraceError::of(path, TraceFault::Folder)),
            Err(error) => Err(TraceError::of(path, TraceFault::Create(error))),
        }
    }

    /// Refuses an output that is one of these inputs, by whatever path, symbolic or hard link.
    ///
    /// # Errors
    /// [`TraceFault::IsInput`].
    pub fn distinct_from<P: AsRef<Path>>(
        self,
        inputs: impl IntoIterator<Item = P>,
    ) -> Result<Self, TraceError> {
        if let Target::File(target) = &self.target {
            for input in inputs {
                if are_same(target, input.as_ref()) {
                    let fault = TraceFault::IsInput(input.as_ref().into());
                    return Err(TraceError::of(&self.path, fault));
                }
            }
        }
        Ok(self)
    }

    /// The path as given to [`create`](Self::create).
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was written so far, from its first byte. Reading and writing share one position.
    pub(crate) fn written(&self) -> io::Result<File> {
        let mut file = self.part.file.try_clone()?;
        file.seek(SeekFrom::Start(0))?;
        Ok(file)
    }

    /// Flushes the content to the disk and replaces the previous file by it.
    ///
    /// # Errors
    /// [`TraceError`]; the previous file is then as it was.
    pub fn commit(self) -> Result<(), TraceError> {
        let committed = match self.target {
            Target::File(target) => self.part.commit(&target),
            Target::Device(device) => copy(self.part.file, device),
        };
        committed.map_err(|source| TraceError::of(&self.path, TraceFault::Write(source)))
    }

    /// Writes these bytes and commits.
    ///
    /// # Errors
    /// [`TraceError`]; the previous file is then as it was.
    pub fn save(mut self, content: impl AsRef<[u8]>) -> Result<(), TraceError> {
        match self.write_all(content.as_ref()) {
            Ok(()) => self.commit(),
            Err(source) => Err(self.fault(source)),
        }
    }

    /// The error of a write to this output that failed.
    pub(crate) fn fault(&self, source: io::Error) -> TraceError {
        TraceError::of(&self.path, TraceFault::Write(source))
    }
}

/// Writes to the temporary file, unbuffered.
impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let end = self.part.file.stream_position()?.saturating_add(bytes.len() as u64);
        check_file_size(end)?;
        self.part.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.part.file.flush()
    }
}

fn open(path: &Path) -> io::Result<(Part, Target)> {
    let there = match fs::metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let target = followed(path)?;
            return Ok((Part::beside(&target)?, Target::File(target)));
        }
        Err(error) => return Err(error),
    };
    // A file that must not be written is not to be replaced either.
    let previous = OpenOptions::new().write(true).open(path)?;
    if !there.is_file() {
        return Ok((Part::in_memory()?, Target::Device(previous)));
    }
    let target = fs::canonicalize(path)?;
    let part = Part::beside(&target)?;
    part.file.set_permissions(there.permissions())?;
    Ok((part, Target::File(target)))
}

/// The path that symbolic links to a file that does not exist lead to.
fn followed(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        match fs::read_link(&path) {
            Ok(target) => path = path.with_file_name(target),
            Err(_) if path.file_name().is_none() => return Err(io::ErrorKind::NotFound.into()),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

fn copy(mut content: File, mut device: File) -> io::Result<()> {
    content.seek(SeekFrom::Start(0))?;
    io::copy(&mut content, &mut device)?;
    device.flush()
}

/// Whether two paths name the same existing file.
pub(super) fn are_same(one: &Path, two: &Path) -> bool {
    let same_path = || Some(fs::canonicalize(one).ok()? == fs::canonicalize(two).ok()?);
    same_inode(one, two).or_else(same_path).unwrap_or(false)
}

/// By the numbers that the file system gives files; `None` where it gives none, or a file does not exist.
#[cfg(unix)]
fn same_inode(one: &Path, two: &Path) -> Option<bool> {
    use std::os::unix::fs::MetadataExt;
    let (one, two) = (fs::metadata(one).ok()?, fs::metadata(two).ok()?);
    Some((one.dev(), one.ino()) == (two.dev(), two.ino()))
}

#[cfg(not(unix))]
fn same_inode(_: &Path, _: &Path) -> Option<bool> {
    None
}
