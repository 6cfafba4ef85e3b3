//! Host arrays in files without a name.

use crate::error::BrokerError;
use parking_lot::Mutex;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;
use vrampool_backend::spi::{Grant, Ledger, check_file_size};

/// An unnamed file: the system deletes it when it is closed for any reason.
#[derive(Debug)]
pub(crate) struct Spilled {
    /// Locked for one read or write at its position.
    file: Mutex<File>,
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
        Ok(Self { file: Mutex::new(file), directory, grant })
    }

    pub(crate) fn len(&self) -> u64 {
        self.grant.bytes()
    }

    pub(crate) fn read_at(&self, bytes: &mut [u8], offset: u64) -> Result<(), BrokerError> {
        let mut file = self.file.lock();
        let read = file.seek(SeekFrom::Start(offset)).and_then(|_| file.read_exact(bytes));
        read.map_err(|source| self.failed("reading", source))
    }

    pub(crate) fn write_at(&self, bytes: &[u8], offset: u64) -> Result<(), BrokerError> {
        let mut file = self.file.lock();
        let written = file.seek(SeekFrom::Start(offset)).and_then(|_| file.write_all(bytes));
        written.map_err(|source| self.failed("writing", source))
    }

    fn failed(&self, call: &'static str, source: io::Error) -> BrokerError {
        BrokerError::Spill { call, bytes: self.len(), directory: Arc::clone(&self.directory), source }
    }
}
