//! A trace in memory, and its readers.

use super::csv;
use super::csv::{END, ORIGIN, Wrong};
use super::event::{Op, TraceEvent};
use super::ledger::Ledger;
use super::lines::Lines;
use super::origin::Origin;
use super::other_devices::OtherDevices;
use crate::error::TraceFault;
use crate::error::bounds::{HEADER, HEADERS, MAX_LINE_BYTES, MAX_ORIGINS, MAX_STREAMS, NEW_HEADER};
use crate::error::contradiction::Contradiction;
use crate::error::format::without_gz;
use crate::error::place::Place;
use crate::error::shown::shown;
use crate::error::warning::{Contradictions, TraceWarning};
use crate::fitted::Demand;
use flate2::Crc;
use std::collections::HashMap;
use std::path::Path;

/// The name of a trace that did not come from a file.
pub(crate) const UNNAMED: &str = "trace";

/// A recorded sequence of allocations and frees that makes sense: every id is one allocation's, every free is
/// of something live, and live bytes fit 64 bits.
///
/// ```
/// use vrampool_trace::{Trace, TraceError};
/// # fn main() -> Result<(), TraceError> {
/// let trace = Trace::parse("op,id,size,stream,t_us\na,0,3000,0,0\nf,0,3000,0,5\n".as_bytes())?;
/// assert_eq!((trace.events().len(), trace.peak_requested()), (2, 3000));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Trace {
    name: String,
    events: Vec<TraceEvent>,
    origins: Vec<Origin>,
    peak_requested: u64,
    warnings: Vec<TraceWarning>,
    dropped: u64,
    pub(super) other_devices: OtherDevices,
}

impl Trace {
    /// The largest number of streams.
    pub const MAX_STREAMS: usize = MAX_STREAMS;

    /// The largest length of a line, bytes. The longest event has 91.
    pub const MAX_LINE_BYTES: usize = MAX_LINE_BYTES;

    /// `place` is the one being read.
    pub(crate) fn parse_lines(
        mut lines: Lines<'_>,
        max_events: u32,
        mut contradictions: Contradictions,
        place: &mut Place,
    ) -> Result<Self, TraceFault> {
        let (mut events, mut ledger, mut sum) = (Vec::new(), Ledger::default(), Crc::new());
        place.line = Some(1);
        let header = lines.next()?.ok_or(TraceFault::CutOff("in its first line"))?;
        let is_counted = header == NEW_HEADER.as_bytes();
        if !is_counted && header != HEADER.as_bytes() {
            return Err(TraceFault::header(&csv::shown(header), HEADERS));
        }
        let (mut is_ended, mut dropped, mut origins) = (false, 0, Vec::new());
        for number in 2.. {
            place.line = Some(number);
            let Some(text) = lines.next()? else { break };
            if is_ended {
                return Err(TraceFault::Trailing);
            }
            if is_counted && text.starts_with(END) {
                let [counted, expected, lost] = csv::end(text).map_err(|wrong| field(place, wrong))?;
                let own @ (count, checksum) = (events.len() as u64, sum.sum().into());
                if (counted, expected) != own {
                    let expected = format!("end,{count},{checksum},{lost},{lost}");
                    return Err(TraceFault::altered(&csv::shown(text), &expected, HEADER));
                }
                (is_ended, dropped) = (true, lost);
                continue;
            }
            if events.len() as u64 >= u64::from(max_events) {
                return Err(TraceFault::TooManyEvents(max_events));
            }
            sum.update(text);
            sum.update(b"\n");
            if text.starts_with(ORIGIN) {
                if origins.len() == MAX_ORIGINS {
                    return Err(TraceFault::invalid(format!(
                        "the trace has more than {MAX_ORIGINS} lines `o`; omit the sixth field of the rarest ones"
                    )));
                }
                origins.push(csv::origin(text).map_err(|wrong| field(place, wrong))?);
                continue;
            }
            let event = csv::event(text, origins.len() as u32).map_err(|wrong| field(place, wrong))?;
            let (by_us, size) = ledger.enter(&event, number).map_err(|wrong| field(place, wrong))?;
            contradictions.note_time(by_us, place)?;
            if size != event.size {
                let (id, freed) = (event.id, event.size);
                let text = format_args!(
                    "the free of allocation {id} has {freed} bytes, but its allocation {size}; the size of the allocation counts"
                );
                contradictions.note(Contradiction::OtherSize, text, place)?;
            }
            events.try_reserve(1).map_err(|_| TraceFault::out_of_memory::<TraceEvent>(2 * events.len()))?;
            events.push(event);
        }
        if is_counted && !is_ended {
            return Err(TraceFault::CutOff("without the last line `end`"));
        }
        place.line = None;
        contradictions.note_dropped(dropped, place)?;
        if !is_counted {
            let text = format_args!(
                "the file has no last line with the number of events, as files that other programs write; truncation at the end of a \
                 line is not detected. Write it again with `vrampool trace convert`"
            );
            contradictions.note(Contradiction::Uncounted, text, place)?;
        }
        Ok(Self::of(events, ledger.peak_bytes, origins, contradictions))
    }

    /// Of events that make sense.
    pub(crate) fn of(
        events: Vec<TraceEvent>,
        peak_requested: u64,
        origins: Vec<Origin>,
        contradictions: Contradictions,
    ) -> Self {
        let Contradictions { warnings, dropped, .. } = contradictions;
        let other_devices = OtherDevices::default();
        Self { name: UNNAMED.into(), events, origins, peak_requested, warnings, dropped, other_devices }
    }

    /// Of events that did not come from a file, and the number of allocations that they lack; or which event is wrong,
    /// from 0.
    pub(crate) fn assemble(
        events: Vec<TraceEvent>,
        origins: Vec<Origin>,
        dropped: u64,
    ) -> Result<Self, (u32, Wrong)> {
        let mut contradictions = Contradictions::default();
        // Only a strict reader fails.
        let _ = contradictions.note_dropped(dropped, &Place::default());
        let mut ledger = Ledger::default();
        for (event, number) in events.iter().zip(0u32..) {
            ledger.enter(event, number.into()).map_err(|wrong| (number, wrong))?;
        }
        Ok(Self::of(events, ledger.peak_bytes, origins, contradictions))
    }

    /// What in its file contradicts itself, and what its recording [dropped](Self::dropped): a line for each kind.
    #[must_use]
    pub fn warnings(&self) -> &[TraceWarning] {
        &self.warnings
    }

    /// Returns the number of allocations that its recording dropped for lack of room; 0 if it is complete. A file of
    /// this crate's format has the number.
    ///
    /// ```
    /// # use vrampool_trace::{Recorder, Trace};
    /// # use vrampool::{Backend, Pool, host::HostDevice};
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// let recorder = Recorder::with_events(2);
    /// let pool = Pool::builder(&device).hook(recorder.hook()).build()?;
    /// (0..3).try_for_each(|_| pool.allocate(1000, &stream).map(drop))?;
    /// let trace = recorder.trace("short")?;
    /// assert_eq!((trace.events().len(), trace.dropped(), trace.warnings().len()), (2, 2, 1));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// What its file has of devices other than the one that was [read](crate::Import::device).
    #[must_use]
    pub fn other_devices(&self) -> OtherDevices {
        self.other_devices
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

    /// Its events, in order. The n-th, from 0, is line n + 2 of a file without origins.
    #[must_use]
    pub fn events(&self) -> &[TraceEvent] {
        &self.events
    }

    /// The pools and lines of code that requested memory, by the numbers of [`TraceEvent::origin`].
    #[must_use]
    pub fn origins(&self) -> &[Origin] {
        &self.origins
    }

    /// Which pool and line of code requested the memory of an allocation; empty where that is unknown.
    #[must_use]
    pub fn origin(&self, event: &TraceEvent) -> &Origin {
        let number = event.origin as usize;
        number.checked_sub(1).and_then(|place| self.origins.get(place)).unwrap_or(const { &Origin::UNKNOWN })
    }

    /// The most bytes that were live at once, before any rounding.
    #[must_use]
    pub fn peak_requested(&self) -> u64 {
        self.peak_requested
    }

    /// Returns the requests, regardless of streams, for fitting size classes.
    ///
    /// ```
    /// use vrampool_trace::{Trace, fitted};
    /// let csv = "op,id,size,stream,t_us\na,0,30000,0,0\nf,0,30000,0,5\na,1,20000,0,7\n";
    /// let demand = Trace::parse(csv.as_bytes())?.demand();
    /// let classes = fitted::fit(&demand, fitted::DEFAULT_CLASSES);
    /// assert_eq!(classes.sizes(), [30_208]); // one for both, which are never live together
    /// # Ok::<(), vrampool_trace::TraceError>(())
    /// ```
    #[must_use]
    pub fn demand(&self) -> Demand {
        self.events.iter().collect()
    }
}

/// The requests of events of one trace. Frees of earlier allocations are ignored.
impl<'a> FromIterator<&'a TraceEvent> for Demand {
    fn from_iter<I: IntoIterator<Item = &'a TraceEvent>>(events: I) -> Self {
        let (mut demand, mut live) = (Self::new(), HashMap::new());
        for event in events {
            match event.op {
                Op::Allocate => {
                    live.insert(event.id, event.size);
                    demand.allocate(event.size);
                }
                // The size of a free may be another one.
                Op::Free => live.remove(&event.id).into_iter().for_each(|size| demand.free(size)),
            }
        }
        demand
    }
}

/// Notes the field that is wrong.
pub(super) fn field(place: &mut Place, (field, fault): Wrong) -> TraceFault {
    place.field = Some(field);
    fault
}

/// A file's name without `.gz` and without the ending before it, control characters escaped.
pub(crate) fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let name = Path::new(without_gz(&name).unwrap_or(&name));
    shown(name.file_stem().unwrap_or_default())
}
