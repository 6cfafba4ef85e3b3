//! Common parts of the checks: their outcome, and contents of memory.

use crate::{AllocationRequest, Backend, BackendError, Memory, MemoryKind, Region};

/// The first promise that the device broke.
#[derive(Debug, Clone, thiserror::Error)]
#[error("conformance check `{check}` failed: {reason}")]
#[non_exhaustive]
pub struct Failure {
    /// The check's name.
    pub check: &'static str,
    /// The observed fault.
    pub reason: String,
}

/// Why one check did not pass.
pub(super) enum Outcome {
    Broken(String),
    NotThere(&'static str),
}

impl From<BackendError> for Outcome {
    fn from(error: BackendError) -> Self {
        Self::Broken(format!("unexpected error: {error}"))
    }
}

pub(super) type Check = Result<(), Outcome>;
macro_rules! require {
    ($condition:expr, $($reason:tt)+) => {
        if !$condition {
            return Err(Outcome::Broken(format!($($reason)+)));
        }
    };
}
pub(super) use require;

/// A size that suits any copy granularity and alignment a device reports.
pub(super) const BYTES: u64 = 64 * 1024;

pub(super) fn kind<B: Backend>(device: &B) -> MemoryKind {
    device.properties().preferred_placement().into()
}

pub(super) fn memory<B: Backend>(device: &B, bytes: u64) -> Result<B::Memory, BackendError> {
    device.allocate(&AllocationRequest::new(bytes, kind(device)))
}

pub(super) fn pattern(seed: u8, bytes: u64) -> Vec<u8> {
    (0..bytes).map(|i| (i as u8).wrapping_mul(31).wrapping_add((i >> 8) as u8).wrapping_add(seed)).collect()
}

pub(super) fn read<B: Backend>(
    device: &B,
    stream: &B::Stream,
    memory: &B::Memory,
) -> Result<Vec<u8>, BackendError> {
    let mut bytes = vec![0; memory.len() as usize];
    device.download(stream, Region::whole(memory, stream), &mut bytes)?;
    Ok(bytes)
}

pub(super) fn refused<T>(what: &str, result: Result<T, BackendError>) -> Check {
    match result {
        Err(BackendError::InvalidArgument { .. }) => Ok(()),
        Err(other) => {
            Err(Outcome::Broken(format!("{what}: not refused as an invalid argument but: {other}")))
        }
        Ok(_) => Err(Outcome::Broken(format!("{what} was not refused"))),
    }
}
