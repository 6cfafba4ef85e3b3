//! Warnings of a trace: its contradictions, by kind.

use super::contradiction::Contradiction;
use super::fault::TraceFault;
use super::place::Place;
use std::fmt;

/// One kind of [`Contradiction`] of a trace: the first of its kind, its place, and how many there are.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TraceWarning {
    /// The kind.
    pub contradiction: Contradiction,
    /// The text of the first of its kind.
    pub text: Box<str>,
    /// The place of the first of its kind.
    pub place: Place,
    /// Number of contradictions of this kind.
    pub count: u64,
}

impl fmt::Display for TraceWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.place != Place::default() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.text)?;
        if self.count > 1 { write!(f, " ({} times)", self.count) } else { Ok(()) }
    }
}

/// The warnings of a trace while it is read.
#[derive(Debug, Default)]
pub(crate) struct Contradictions {
    is_strict: bool,
    pub(crate) warnings: Vec<TraceWarning>,
    /// The number of allocations that the recording dropped.
    pub(crate) dropped: u64,
}

impl Contradictions {
    pub(crate) fn new(is_strict: bool) -> Self {
        Self { is_strict, ..Self::default() }
    }

    /// Counts it, or returns it as the error that it is to a strict reader.
    pub(crate) fn note(
        &mut self,
        contradiction: Contradiction,
        text: fmt::Arguments<'_>,
        place: &Place,
    ) -> Result<(), TraceFault> {
        if self.is_strict {
            return Err(TraceFault::Contradiction(contradiction, text.to_string().into()));
        }
        match self.warnings.iter_mut().find(|warning| warning.contradiction == contradiction) {
            Some(warning) => warning.count += 1,
            None => {
                let text = text.to_string().into();
                self.warnings.push(TraceWarning { contradiction, text, place: *place, count: 1 });
            }
        }
        Ok(())
    }

    /// Notes the allocations that a recording dropped, if any.
    pub(crate) fn note_dropped(&mut self, dropped: u64, place: &Place) -> Result<(), TraceFault> {
        self.dropped = dropped;
        let text = format_args!(
            "the recording lacks {dropped} allocations and their frees, for which it had no room; peaks and fitted classes are those of \
             the rest. Record again with room for more events"
        );
        if dropped > 0 { self.note(Contradiction::Dropped, text, place) } else { Ok(()) }
    }

    /// Notes a time that is so many microseconds before that of the previous event, if any.
    pub(crate) fn note_time(&mut self, by_us: u64, place: &Place) -> Result<(), TraceFault> {
        let text = format_args!(
            "the time is {by_us} µs before that of the previous event; the order of the file is kept"
        );
        if by_us > 0 { self.note(Contradiction::TimeGoesBack, text, place) } else { Ok(()) }
    }
}
