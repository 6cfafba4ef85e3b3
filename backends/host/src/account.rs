//! Memory that several processes count together, as they do on a GPU.
//!
//! Each has a file of its own in a directory, with what it has taken, and a lock on it for as long as it
//! lives: the code that can lock it knows that its owner has ended. A lock on one more file is
//! taken around each change. Whatever else is in the directory is a stranger's, and left alone.

use crate::error::{driver_error, failed};
use crate::file::check_file_size;
use rustix::fs::{FlockOperation, flock};
use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use vrampool_backend::BackendError;

/// The file that is locked around each change.
const TURN: &str = "turn.vrampool";
/// How the names of members' files end.
const SUFFIX: &str = ".vrampool";
/// How many digits of the names are random.
const DIGITS: usize = 16;
/// Bytes of a member's file.
const BYTES: u64 = 8;

/// This device's part in a common account.
#[derive(Debug)]
pub(crate) struct Account {
    directory: PathBuf,
    turn: File,
    own: File,
    own_path: PathBuf,
}

/// While it exists no other process changes what it has taken.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Account);

impl Account {
    pub(crate) fn open(directory: &Path) -> Result<Self, BackendError> {
        check_file_size("write", BYTES)?;
        std::fs::create_dir_all(directory).map_err(|error| failed("mkdir", &error))?;
        let mut turn = OpenOptions::new();
        turn.read(true).write(true).create(true).truncate(false);
        let turn = turn.open(directory.join(TURN)).map_err(|error| failed("open", &error))?;
        lock(&turn, FlockOperation::LockExclusive)?;
        // Under the lock, or another would find it without an owner.
        let own = create(directory).and_then(|(own, path)| {
            lock(&own, FlockOperation::LockExclusive)?;
            own.write_all_at(&0_u64.to_ne_bytes(), 0).map_err(|error| failed("write", &error))?;
            Ok((own, path))
        });
        let account =
            own.map(|(own, own_path)| Self { directory: directory.to_owned(), turn, own, own_path })?;
        account.unlock();
        Ok(account)
    }

    pub(crate) fn turn(&self) -> Result<Turn<'_>, BackendError> {
        lock(&self.turn, FlockOperation::LockExclusive)?;
        Ok(Turn(self))
    }

    fn unlock(&self) {
        // It cannot fail on a file that is open; closing it unlocks as well.
        let _ = flock(&self.turn, FlockOperation::Unlock);
    }
}

impl Turn<'_> {
    /// Returns the bytes that all other live devices have taken.
    pub(crate) fn others(&self) -> Result<u64, BackendError> {
        let mut bytes = 0_u64;
        let entries = std::fs::read_dir(&self.0.directory).map_err(|error| failed("readdir", &error))?;
        for entry in entries {
            let entry = entry.map_err(|error| failed("readdir", &error))?;
            let path = entry.path();
            let is_file = entry.metadata().is_ok_and(|found| found.is_file() && found.len() <= BYTES);
            if path == self.0.own_path || !is_file || !is_member(&entry.file_name()) {
                continue;
            }
            let Ok(file) = File::open(&path) else { continue };
            if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
                // It has no owner any more. An owner that removed it before did the same.
                let _ = std::fs::remove_file(&path);
                continue;
            }
            let mut taken = [0; 8];
            if file.read_exact_at(&mut taken, 0).is_ok() {
                bytes = bytes.saturating_add(u64::from_ne_bytes(taken));
            }
        }
        Ok(bytes)
    }

    /// Says how many bytes this device has taken.
    pub(crate) fn set_own(&self, taken: u64) -> Result<(), BackendError> {
        self.0.own.write_all_at(&taken.to_ne_bytes(), 0).map_err(|error| failed("write", &error))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        // A file that stays has no owner, and another process removes it.
        let _ = std::fs::remove_file(&self.own_path);
    }
}

/// A file of a name that no other has, nor had.
fn create(directory: &Path) -> Result<(File, PathBuf), BackendError> {
    loop {
        let random = RandomState::new().hash_one(0);
        let path = directory.join(format!("{}-{random:0DIGITS$x}{SUFFIX}", std::process::id()));
        match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(failed("open", &error)),
        }
    }
}

/// Whether a name is one that [`create`] gives.
fn is_member(name: &OsStr) -> bool {
    let parts =
        name.to_str().and_then(|name| name.strip_suffix(SUFFIX)).and_then(|name| name.split_once('-'));
    parts.is_some_and(|(process, random)| {
        process.parse::<u32>().is_ok()
            && random.len() == DIGITS
            && random.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'))
    })
}

fn lock(file: &File, operation: FlockOperation) -> Result<(), BackendError> {
    loop {
        match flock(file, operation) {
            Err(rustix::io::Errno::INTR) => {}
            outcome => return outcome.map_err(|error| driver_error("flock", error)),
        }
    }
}
