//! A trace in memory, and how it is read.

use super::csv::{self, HEADER, Wrong};
use super::error::{Fault, TraceError};
use super::event::{Event, Op};
use super::ledger::Ledger;
use super::lines::Lines;
use crate::fitted::Demand;
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The name of a trace that did not come from a file.
pub(crate) const UNNAMED: &str = "trace";

/// A recorded sequence of allocations and frees that makes sense: every id is one allocation's, every free is of
/// something live, and live bytes fit 64 bits.
#[derive(Debug, Clone)]
pub struct Trace {
    name: String,
    events: Vec<Event>,
    peak_requested: u64,
}

/// How much a trace may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// The most events. Default: 4,194,304, which take up to 550 MiB while they are read.
    pub max_events: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_events: 1 << 22 }
    }
}

impl Limits {
    /// Sets [`max_events`](Self::max_events).
    #[must_use]
    pub fn max_events(mut self, events: u32) -> Self {
        self.max_events = events;
        self
    }
}

impl Trace {
    /// Reads a file, gzip-compressed or not. The trace is named after it, without directory and endings.
    ///
    /// # Errors
    /// [`TraceError`], which says where and what to do.
    pub fn read(path: impl AsRef<Path>) -> Result<Self, TraceError> {
        Self::read_within(path, Limits::default())
    }

    /// As [`read`](Self::read), with limits of your choice.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn read_within(path: impl AsRef<Path>, limits: Limits) -> Result<Self, TraceError> {
        let path = path.as_ref();
        let mut line = None;
        let trace = match File::open(path) {
            Ok(file) => Self::parse_read(file, limits, &mut line),
            Err(error) => Err((None, Fault::Open(error))),
        };
        let trace = trace.map_err(|(field, fault)| TraceError {
            trace: path.display().to_string(),
            line,
            offset: None,
            field,
            fault,
        })?;
        Ok(trace.named(stem(path)))
    }

    /// Reads what `reader` gives, gzip-compressed or not. The trace is named `trace` ([`named`](Self::named) changes it).
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse(reader: impl Read) -> Result<Self, TraceError> {
        Self::parse_within(reader, Limits::default())
    }

    /// As [`parse`](Self::parse), with limits of your choice.
    ///
    /// ```
    /// use vrampool::trace::{Fault, Limits, Trace};
    /// let csv = "op,id,size,stream,t_us\na,0,1,0,0\na,1,1,0,0\n";
    /// let error = Trace::parse_within(csv.as_bytes(), Limits::default().max_events(1)).unwrap_err();
    /// assert!(matches!(error.fault, Fault::TooManyEvents { max: 1, .. }));
    /// ```
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn parse_within(reader: impl Read, limits: Limits) -> Result<Self, TraceError> {
        let mut line = None;
        Self::parse_read(reader, limits, &mut line).map_err(|(field, fault)| TraceError {
            trace: UNNAMED.into(),
            line,
            offset: None,
            field,
            fault,
        })
    }

    fn parse_read(
        reader: impl Read,
        limits: Limits,
        line: &mut Option<u64>,
    ) -> Result<Self, (Option<&'static str>, Fault)> {
        let lines = Lines::new(reader).map_err(|fault| (None, fault))?;
        Self::parse_lines(lines, limits, line)
    }

    /// `line` is the one being read.
    pub(crate) fn parse_lines(
        mut lines: Lines<'_>,
        limits: Limits,
        line: &mut Option<u64>,
    ) -> Result<Self, (Option<&'static str>, Fault)> {
        let whole_line = |fault: Fault| (None, fault);
        let one_field = |(field, fault): Wrong| (Some(field), fault);
        let (mut events, mut ledger) = (Vec::new(), Ledger::default());
        *line = Some(1);
        let header = lines.next().map_err(whole_line)?.unwrap_or_default();
        if header != HEADER.as_bytes() {
            return Err(whole_line(Fault::Header { found: csv::shown(header) }));
        }
        for number in 2.. {
            *line = Some(number);
            let Some(text) = lines.next().map_err(whole_line)? else { break };
            if events.len() as u64 >= u64::from(limits.max_events) {
                return Err(whole_line(Fault::TooManyEvents { max: limits.max_events }));
            }
            let event = csv::event(text).map_err(one_field)?;
            ledger.enter(&event, number).map_err(one_field)?;
            events.push(event);
        }
        Ok(Self { name: UNNAMED.into(), events, peak_requested: ledger.peak_bytes() })
    }

    /// Of events that did not come from a file of this format.
    pub(crate) fn assemble(events: Vec<Event>) -> Result<Self, Wrong> {
        let mut ledger = Ledger::default();
        for (event, line) in events.iter().zip(2..) {
            ledger.enter(event, line)?;
        }
        Ok(Self { name: UNNAMED.into(), events, peak_requested: ledger.peak_bytes() })
    }

    /// The same under another name.
    #[must_use]
    pub fn named(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its events, in order. The n-th, from 0, is line n + 2 of the file.
    #[must_use]
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// The most bytes that were live at once, before any rounding.
    #[must_use]
    pub fn peak_requested(&self) -> u64 {
        self.peak_requested
    }

    /// What it asks for, whatever the streams: to fit size classes to.
    ///
    /// ```
    /// use vrampool::{FittedClasses, trace::Trace};
    /// let csv = "op,id,size,stream,t_us\na,0,30000,0,0\nf,0,30000,0,5\na,1,20000,0,7\n";
    /// let demand = Trace::parse(csv.as_bytes())?.demand();
    /// let classes = FittedClasses::fit(&demand, FittedClasses::DEFAULT_CLASSES);
    /// assert_eq!(classes.sizes(), [30_208]); // one for both, which are never live together
    /// # Ok::<(), vrampool::trace::TraceError>(())
    /// ```
    #[must_use]
    pub fn demand(&self) -> Demand {
        let (mut demand, mut live) = (Demand::new(), HashMap::new());
        for event in &self.events {
            match event.op {
                Op::Allocate => {
                    live.insert(event.id, event.size);
                    demand.allocate(event.size);
                }
                // What a recorder writes of a free means nothing.
                Op::Free => {
                    if let Some(size) = live.remove(&event.id) {
                        demand.free(size);
                    }
                }
            }
        }
        demand
    }
}

/// A file's name without `.gz` and without the ending before it.
pub(crate) fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = Path::new(name.strip_suffix(".gz").unwrap_or(&name));
    name.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}
