//! The limit of a driver pool.

use std::str::FromStr;
use vrampool_backend::BackendError;

/// CuPy's variable for it.
const VARIABLE: &str = "CUPY_GPU_MEMORY_LIMIT";

/// How much a [`DriverPool`](crate::DriverPool) may allocate. As in CuPy, 0 of either is no limit.
///
/// Read from text, it is a number of bytes or a share: `1073741824`, `40%`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
#[non_exhaustive]
pub enum Limit {
    /// All that the device has.
    #[default]
    Unlimited,
    /// So many bytes.
    Bytes(u64),
    /// A share of the device's memory, 0 to 1.
    Fraction(f64),
}

impl Limit {
    /// What `CUPY_GPU_MEMORY_LIMIT` says.
    pub(crate) fn from_environment() -> Result<Option<Self>, BackendError> {
        match std::env::var(VARIABLE) {
            Ok(text) if !text.is_empty() => text.parse().map(Some),
            Ok(_) | Err(std::env::VarError::NotPresent) => Ok(None),
            Err(std::env::VarError::NotUnicode(text)) => Err(no_limit(&text.to_string_lossy())),
        }
    }

    /// In bytes, if there is one.
    pub(crate) fn bytes(
        self,
        total: impl FnOnce() -> Result<u64, BackendError>,
    ) -> Result<Option<u64>, BackendError> {
        let bytes = match self {
            Self::Unlimited => 0,
            Self::Bytes(bytes) => bytes,
            Self::Fraction(share) if (0.0..=1.0).contains(&share) => (share * total()? as f64) as u64,
            Self::Fraction(share) => {
                let reason = format!("{share} is not a share of the device's memory, 0 to 1");
                return Err(BackendError::invalid("limit", reason));
            }
        };
        Ok(Some(bytes).filter(|&bytes| bytes > 0))
    }
}

impl FromStr for Limit {
    type Err = BackendError;

    fn from_str(text: &str) -> Result<Self, BackendError> {
        let limit = match text.strip_suffix('%') {
            Some(percent) => percent.parse().ok().map(|percent: f64| Self::Fraction(percent / 100.0)),
            None => text.parse().ok().map(Self::Bytes),
        };
        limit
            .filter(|limit| !matches!(limit, Self::Fraction(share) if !(0.0..=1.0).contains(share)))
            .ok_or_else(|| no_limit(text))
    }
}

fn no_limit(text: &str) -> BackendError {
    BackendError::invalid(
        VARIABLE,
        format!("`{text}` is not a limit; write bytes (`1073741824`) or a share (`40%`)"),
    )
}
