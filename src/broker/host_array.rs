//! Host arrays: pinned, pageable, or in a file.

use super::BrokerError;
use crate::output::size_limit as file_size;
use crate::staging::ledger::PinnedReservation;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_backend::{Backend, fork};

/// The memory of a host array.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HostBacking {
    /// Memory that the device can copy to and from directly.
    Pinned,
    /// Ordinary memory.
    Pageable,
    /// An unnamed file, which is deleted with the array or at the end of the process, however it ends.
    File,
}

/// A host array, made by [`Broker::host_array`](super::Broker::host_array). It starts as zeros, except when
/// pinned.
#[derive(Debug)]
pub struct HostArray<B: Backend> {
    pub(crate) bytes: Bytes<B>,
}

#[derive(Debug)]
pub(crate) enum Bytes<B: Backend> {
    Pinned { memory: B::Memory, len: u64, device: B, _reservation: PinnedReservation },
    Pageable(Vec<u8>),
    File(Spilled),
}

impl<B: Backend> HostArray<B> {
    /// Returns its size in bytes.
    #[must_use]
    pub fn len(&self) -> u64 {
        match &self.bytes {
            Bytes::Pinned { len, .. } => *len,
            Bytes::Pageable(bytes) => bytes.len() as u64,
            Bytes::File(file) => file.len,
        }
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the kind of memory.
    #[must_use]
    pub fn backing(&self) -> HostBacking {
        match &self.bytes {
            Bytes::Pinned { .. } => HostBacking::Pinned,
            Bytes::Pageable(_) => HostBacking::Pageable,
            Bytes::File(_) => HostBacking::File,
        }
    }

    /// Copies the bytes from `offset` on to `bytes`.
    ///
    /// # Errors
    /// [`BrokerError::Memory`] for a range out of bounds, [`BrokerError::Spill`].
    pub fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), BrokerError> {
        fork::check()?;
        let range = self.range(offset, bytes.len())?;
        match &self.bytes {
            Bytes::Pinned { memory, device, .. } => Ok(device.read_mapped(memory, offset, bytes)?),
            Bytes::Pageable(held) => {
                bytes.copy_from_slice(&held[range]);
                Ok(())
            }
            Bytes::File(file) => file.read_at(bytes, offset),
        }
    }

    /// Copies `bytes` to the array from `offset` on.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub fn write_at(&mut self, bytes: &[u8], offset: u64) -> Result<(), BrokerError> {
        fork::check()?;
        let range = self.range(offset, bytes.len())?;
        match &mut self.bytes {
            Bytes::Pinned { memory, device, .. } => Ok(device.write_mapped(memory, offset, bytes)?),
            Bytes::Pageable(held) => {
                held[range].copy_from_slice(bytes);
                Ok(())
            }
            Bytes::File(file) => file.write_at(bytes, offset),
        }
    }

    fn range(&self, offset: u64, len: usize) -> Result<std::ops::Range<usize>, BrokerError> {
        match offset.checked_add(len as u64) {
            Some(end) if end <= self.len() => Ok(offset as usize..end as usize),
            _ => {
                let reason = format!("{len} bytes from {offset} on leave an array of {}", self.len());
                Err(vrampool_backend::BackendError::invalid("range", reason).into())
            }
        }
    }
}

/// An unnamed file: the system deletes it when it is closed for any reason.
#[derive(Debug)]
pub(crate) struct Spilled {
    file: File,
    len: u64,
    account: SpillAccount,
}

/// The account of bytes in spill files. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpillAccount(Arc<AtomicU64>);

impl SpillAccount {
    pub(crate) fn bytes(&self) -> u64 {
        // Relaxed, here and below: a statistic that orders nothing else.
        self.0.load(Ordering::Relaxed)
    }
}

impl Drop for Spilled {
    fn drop(&mut self) {
        self.account.0.fetch_sub(self.len, Ordering::Relaxed);
    }
}

impl Spilled {
    pub(crate) fn create(directory: &Path, len: u64, account: &SpillAccount) -> Result<Self, BrokerError> {
        let failed = |call| move |source| BrokerError::Spill { call, bytes: len, source };
        let file = tempfile::tempfile_in(directory).map_err(failed("creating"))?;
        file_size::check(len).map_err(failed("extending"))?;
        file.set_len(len).map_err(failed("extending"))?;
        account.0.fetch_add(len, Ordering::Relaxed);
        Ok(Self { file, len, account: account.clone() })
    }

    pub(crate) fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), BrokerError> {
        read_at(&self.file, bytes, offset).map_err(|source| self.failed("reading", source))
    }

    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), BrokerError> {
        write_at(&self.file, bytes, offset).map_err(|source| self.failed("writing", source))
    }

    fn failed(&self, call: &'static str, source: io::Error) -> BrokerError {
        BrokerError::Spill { call, bytes: self.len, source }
    }
}

#[cfg(unix)]
fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, offset)
}

#[cfg(unix)]
fn write_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, offset)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => (bytes, offset) = (&mut bytes[read..], offset + read as u64),
        }
    }
    Ok(())
}

#[cfg(windows)]
fn write_at(file: &File, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_write(file, bytes, offset)? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => (bytes, offset) = (&bytes[written..], offset + written as u64),
        }
    }
    Ok(())
}

/// Other platforms cannot read a file at an offset. Creating a spill file fails there.
#[cfg(not(any(unix, windows)))]
fn read_at(_: &File, _: &mut [u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(any(unix, windows)))]
fn write_at(_: &File, _: &[u8], _: u64) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Chooses a file above `spill_threshold`, pinned memory up to `pinned_max`, else pageable memory.
pub(crate) fn choose(bytes: u64, spill_threshold: u64, pinned_max: u64) -> HostBacking {
    if bytes > spill_threshold {
        HostBacking::File
    } else if bytes <= pinned_max {
        HostBacking::Pinned
    } else {
        HostBacking::Pageable
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_choose_host_memory_type() {
        assert_eq!(choose(1001, 1000, 500), HostBacking::File);
        assert_eq!(choose(1000, 1000, 500), HostBacking::Pageable);
        assert_eq!(choose(500, 1000, 500), HostBacking::Pinned);
        assert_eq!(choose(501, 100, 1000), HostBacking::File, "a file comes first");
    }

    #[test]
    fn a_spilled_array_has_no_name_and_keeps_its_bytes() {
        let directory = tempfile::tempdir().expect("a directory");
        let account = SpillAccount::default();
        let spilled = Spilled::create(directory.path(), 1 << 20, &account).expect("a file");
        assert_eq!(account.bytes(), 1 << 20);
        spilled.write_at(&[7; 100], 1000).expect("written");
        let mut bytes = [1; 102];
        spilled.read_at(&mut bytes, 999).expect("read");
        assert!(bytes[0] == 0 && bytes[101] == 0 && bytes[1..101].iter().all(|&byte| byte == 7));
        let left = || std::fs::read_dir(directory.path()).expect("a listing").count();
        // Windows deletes it when its last handle is closed, whatever ends the process; until then it has a name.
        assert!(left() == 0 || cfg!(windows), "there is nothing to be left behind");
        drop(spilled);
        assert_eq!(left(), 0);
        let error =
            Spilled::create(&directory.path().join("absent"), 1, &account).expect_err("no such directory");
        assert_eq!(account.bytes(), 0);
        assert!(matches!(error, BrokerError::Spill { call: "creating", .. }), "{error}");
    }
}
