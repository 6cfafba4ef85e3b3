//! The error of this crate, and what its texts need: positions, limits, names of formats.

pub(crate) mod bounds;
pub(crate) mod contradiction;
mod fault;
pub(crate) mod format;
pub(crate) mod position;
pub(crate) mod shown;

pub use fault::TraceFault;
use position::Position;
use shown::shown;
use std::fmt;
use std::path::Path;

/// An error of a trace, of fitted classes, of an output or of a replay: the position, the fault, and the action to
/// take.
///
/// ```
/// use vrampool_trace::{TraceFault, Trace};
/// let error = Trace::parse("op,id,size,stream,t_us\na,0,-5,0,0\n".as_bytes()).unwrap_err();
/// assert_eq!((error.line, error.field), (Some(2), Some("size")));
/// assert!(matches!(error.fault, TraceFault::NotANumber { .. }));
/// assert_eq!(
///     error.to_string(),
///     "trace, line 2, field `size`: `-5` is negative; write a whole number from 0 to 18446744073709551615"
/// );
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct TraceError {
    /// The file's path, or the name of what is not a file.
    pub name: Box<str>,
    /// The line, from 1; `None` when the fault is not one of a line.
    pub line: Option<u64>,
    /// The byte of the decompressed file, from 0; `None` except for damaged pickles, which have no lines.
    pub offset: Option<u64>,
    /// The device of a snapshot that the event belongs to.
    pub device: Option<u32>,
    /// The event in that device's history, from 0; of a recording and of a replay, the event of the trace.
    pub event: Option<u32>,
    /// The field; `None` when the fault is not one of a field.
    pub field: Option<&'static str>,
    /// The fault.
    pub fault: TraceFault,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&*self.name))?;
        let &Self { line, offset, device, event, field, .. } = self;
        let pass = match self.fault {
            TraceFault::Pool { pass, .. } | TraceFault::Touch { pass, .. } => Some(pass),
            _ => None,
        };
        let place = Position { line, offset, device, event, pass, field };
        if place != Position::default() {
            write!(f, ", {place}")?;
        }
        write!(f, ": {}", self.fault)
    }
}

/// The cause of the fault; the fault itself is in the text.
impl std::error::Error for TraceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.fault)
    }
}

impl TraceError {
    /// Whether a replay ended because there was not enough memory, by the pool's limit or the device's.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        matches!(&self.fault, TraceFault::Pool { source, .. } | TraceFault::Touch { source, .. } if source.is_out_of_memory())
    }

    /// The error of a file as a whole.
    pub(crate) fn of(path: &Path, fault: TraceFault) -> Self {
        Position::default().error(path.display().to_string(), fault)
    }
}

impl Position {
    pub(crate) fn error(self, name: impl Into<Box<str>>, fault: TraceFault) -> TraceError {
        let Self { line, offset, device, event, field, .. } = self;
        TraceError { name: name.into(), line, offset, device, event, field, fault }
    }
}
