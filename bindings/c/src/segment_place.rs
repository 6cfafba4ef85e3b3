//! A device as segments use it: opened once, with their limit and figures.

use crate::failure::{Failure, Status};
use crate::metrics;
use crate::options::Options;
use crate::streams::Home;
use crate::torch;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Arc;
use vrampool::any::AnyDevice;
use vrampool::backend::spi::Grant;
use vrampool::figures;
use vrampool::figures::{FigureLabel, Group};
use vrampool::telemetry::{Owner, OwnerFigures, Watch, WatchArc};
use vrampool::{Ledger, internal};
use vrampool_sleep::Offload;

figures! {
    /// Bytes of the segments of a tag.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct SegmentUsage("segments_", FigureLabel::Each("tag")) {
        Gauge mapped_bytes: u64, "bytes", "Bytes of segments with physical memory.";
        Gauge asleep_bytes: u64, "bytes", "Bytes of segments whose physical memory is released.";
        Gauge backup_bytes: u64, "bytes",
            "Bytes of host memory for contents of segments, kept for the next sleep after a wake.";
    }
}

figures! {
    /// The limit of the segments of a device.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub struct SegmentLimit("segments_", FigureLabel::None) {
        Cap limit_bytes: Option<u64>, "bytes", "The limit on mapped bytes of segments.";
    }
}

/// The device of a number, for segments.
#[derive(Debug)]
pub(crate) struct Place {
    /// Its number, the name in metrics.
    name: String,
    /// The configuration that it was opened with.
    configuration: u64,
    pub(crate) home: Home,
    pub(crate) offload: Offload,
    /// What mapped segments are charged to.
    ledger: Ledger,
    usage: Mutex<BTreeMap<Arc<str>, SegmentUsage>>,
}

/// By number.
static PLACES: Mutex<BTreeMap<c_int, Arc<Place>>> = Mutex::new(BTreeMap::new());

/// The place of a device, opened if it is not, or if PyTorch's pools were configured anew since.
pub(crate) fn place(device: c_int) -> Result<Arc<Place>, Failure> {
    let configuration = torch::configuration();
    let known = PLACES.lock().get(&device).cloned();
    if let Some(place) = known.filter(|place| place.configuration == configuration) {
        return Ok(place);
    }
    let opened = Arc::new(Place::open(device, configuration, &torch::options_for(device)?)?);
    let place = {
        let mut places = PLACES.lock();
        // Another thread may have been faster.
        match places.get(&device).filter(|place| place.configuration == configuration) {
            Some(place) => return Ok(Arc::clone(place)),
            None => places.insert(device, Arc::clone(&opened)),
        }
    };
    // Without the lock: the device may close.
    drop(place);
    metrics::add(&Served(Arc::clone(&opened)));
    Ok(opened)
}

/// All places, for metrics.
pub(crate) fn served() -> Vec<Served> {
    PLACES.lock().values().map(|place| Served(Arc::clone(place))).collect()
}

impl Place {
    fn open(device: c_int, configuration: u64, options: &Options) -> Result<Self, Failure> {
        let opened = options.open()?;
        let ledger = Ledger::new(internal::limit_of(&options.builder(&opened)?)?);
        Ok(Self {
            name: device.to_string(),
            configuration,
            home: Home::new(0, opened),
            offload: options.offload,
            ledger,
            usage: Mutex::new(BTreeMap::new()),
        })
    }

    /// Charges a segment that is about to be mapped.
    pub(crate) fn charge(&self, bytes: u64) -> Result<Grant, Failure> {
        self.ledger.reserve(bytes).map_err(|error| match self.ledger.limit() {
            Some(limit) if error.is_out_of_memory() => {
                let (name, mapped) = (&self.name, self.ledger.charged());
                let text = format!(
                    "{bytes} bytes exceed the limit on segments of device {name}: {mapped} bytes of {limit} are mapped; \
                     let other memory sleep, free some, or raise the limit (VRAMPOOL_LIMIT)"
                );
                Failure::new(Status::OUT_OF_MEMORY, text)
            }
            _ => error.into(),
        })
    }

    /// Takes figures from those of a tag, and adds others.
    pub(crate) fn note(
        &self,
        (from, less): (&Arc<str>, SegmentUsage),
        (to, more): (&Arc<str>, SegmentUsage),
    ) {
        let mut usage = self.usage.lock();
        let of = usage.entry(Arc::clone(from)).or_default();
        of.mapped_bytes -= less.mapped_bytes;
        of.asleep_bytes -= less.asleep_bytes;
        of.backup_bytes -= less.backup_bytes;
        usage.entry(Arc::clone(to)).or_default().merge(&more);
    }

    fn figures(&self) -> OwnerFigures {
        let mut figures = OwnerFigures::of(&SegmentLimit { limit_bytes: self.ledger.limit() });
        self.usage.lock().iter().for_each(|(tag, usage)| figures.add(tag, usage));
        figures
    }
}

/// A place whose figures are served.
#[derive(Debug)]
pub(crate) struct Served(Arc<Place>);

impl Owner for Served {
    type Device = AnyDevice;

    const LABEL: &'static str = "segments";

    fn name(&self) -> &str {
        &self.0.name
    }

    fn device(&self) -> &AnyDevice {
        &self.0.home.device
    }

    fn figures(&self) -> OwnerFigures {
        self.0.figures()
    }

    fn watch(&self) -> impl Watch + 'static {
        WatchArc::new(&self.0, Place::figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_a_percentage_needs_a_known_whole() {
        let open = |text: &str| Place::open(0, 0, &Options::parse(text).expect("good"));
        let failure = open("device=host;host_capacity=0;limit=50%").expect_err("half of what?");
        assert_eq!(failure.status, Status::CONFIGURATION);
        assert!(failure.text.contains("does not report"), "{}", failure.text);
        let place = open("device=host;host_capacity=64MiB;limit=50%").expect("a place");
        assert_eq!(place.ledger.limit(), Some(32 << 20));
    }
}
