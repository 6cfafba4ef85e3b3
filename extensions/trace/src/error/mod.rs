//! The error of this crate, and what its texts need: places, limits, names of formats.

pub(crate) mod bounds;
pub(crate) mod contradiction;
mod fault;
pub(crate) mod format;
pub(crate) mod place;
pub(crate) mod shown;
pub(crate) mod warning;

pub use fault::TraceFault;
use place::Place;
use shown::shown;
use std::fmt;
use std::path::Path;

/// An error of a trace, of fitted classes, of an output or of a replay: the place, the fault, and the action to take.
///
/// ```
/// use vrampool_trace::Trace;
/// let error = Trace::parse("op,id,size,stream,t_us\na,0,-5,0,0\n".as_bytes()).unwrap_err();
/// assert_eq!((error.place.line, error.place.field), (Some(2), Some("size")));
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
    /// The place in it.
    pub place: Place,
    /// The fault.
    pub fault: TraceFault,
}

impl fmt::Display for TraceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&shown(&*self.name))?;
        if self.place != Place::default() {
            write!(f, ", {}", self.place)?;
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
        matches!(&self.fault, TraceFault::Pool(source) | TraceFault::Touch(source) if source.is_out_of_memory())
    }

    /// The error of a file as a whole.
    pub(crate) fn of(path: &Path, fault: TraceFault) -> Self {
        Place::default().error(path.display().to_string(), fault)
    }
}

impl Place {
    pub(crate) fn error(self, name: impl Into<Box<str>>, fault: TraceFault) -> TraceError {
        TraceError { name: name.into(), place: self, fault }
    }
}
