//! Host arrays in files without a name.

use crate::error::BrokerError;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use vrampool_backend::spi::{Grant, Ledger, check_file_size};

/// An unnamed file: the system deletes it when it is closed for any reason.
#[derive(Debug)]
pub(crate) struct Spilled {
    file: File,
    directory: Arc<Path>,
    grant: Grant,
}

impl Spilled {
    pub(crate) fn create(directory: &Path, len: u64, ledger: &Ledger) -> Result<Self, BrokerError> {
        let directory: Arc<Path> = directory.into();
        let failed = |call| {
            let directory = Arc::clone(&directory);
            move |source| BrokerError::Spill { call, bytes: len, directory, source }
        };
        let file = tempfile::tempfile_in(&directory).map_err(failed("creating"))?;
        check_file_size(len).and_then(|()| file.set_len(len)).map_err(failed("extending"))?;
        let full = || failed("extending")(io::ErrorKind::FileTooLarge.into());
        let grant = ledger.reserve(len).map_err(|_| full())?;
        Ok(Self { file, directory, grant })
    }

    pub(crate) fn len(&self) -> u64 {
        self.grant.bytes()
    }

    pub(crate) fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), BrokerError> {
        read_at(&self.file, bytes, offset).map_err(|source| self.failed("reading", source))
    }

    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), BrokerError> {
        write_at(&self.file, bytes, offset).map_err(|source| self.failed("writing", source))
    }

    fn failed(&self, call: &'static str, source: io::Error) -> BrokerError {
        BrokerError::Spill { call, bytes: self.len(), directory: Arc::clone(&self.directory), source }
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
