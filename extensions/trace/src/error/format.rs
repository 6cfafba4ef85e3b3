//! The formats of trace files.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

/// A format of traces.
///
/// ```
/// use vrampool_trace::Format;
/// assert_eq!("rmm".parse::<Format>()?, Format::Rmm);
/// assert_eq!(Format::PyTorch.to_string(), "pytorch");
/// assert_eq!(Format::of_name("run.pickle.gz"), Format::PyTorch);
/// assert_eq!(Format::of_name("RUN.PKL.GZ"), Format::PyTorch);
/// # Ok::<(), vrampool_trace::UnknownFormat>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// `csv`: the [format](crate#the-format) of this crate.
    Csv,
    /// `rmm`: what RMM's `logging_resource_adaptor` writes, lines of
    /// `Thread,Time,Action,Pointer,Size,Stream`.
    Rmm,
    /// `pytorch`: what `torch.cuda.memory._dump_snapshot` writes, and `torch.cuda._memory_viz` opens.
    PyTorch,
}

impl Format {
    const ALL: [Self; 3] = [Self::Csv, Self::Rmm, Self::PyTorch];

    /// The format of a file of this name where none is given: [`PyTorch`](Self::PyTorch) if it ends with
    /// `.pickle` or `.pkl`, before a `.gz` if it has one; else [`Csv`](Self::Csv). Case does not matter.
    #[must_use]
    pub fn of_name(path: impl AsRef<Path>) -> Self {
        let name = path.as_ref().to_string_lossy().to_ascii_lowercase();
        let name = without_gz(&name).unwrap_or(&name);
        if name.ends_with(".pickle") || name.ends_with(".pkl") { Self::PyTorch } else { Self::Csv }
    }
}

/// A name without the ending `.gz`, in whatever case; `None` if it has none.
pub(crate) fn without_gz(name: &str) -> Option<&str> {
    let (rest, ending) = name.split_at_checked(name.len().checked_sub(".gz".len())?)?;
    ending.eq_ignore_ascii_case(".gz").then_some(rest)
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}").to_ascii_lowercase())
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(text: &str) -> Result<Self, UnknownFormat> {
        let named = Self::ALL.iter().copied().find(|format| format.to_string() == text);
        named.ok_or_else(|| UnknownFormat(text.into()))
    }
}

/// A name that no format has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{}` is not a format; write csv, rmm or pytorch", .0.escape_debug())]
pub struct UnknownFormat(String);
