//! The flag that records what a pool serves, the same for every command that has it.

use clap::Args;
use std::error::Error;
use std::path::{Path, PathBuf};
use vrampool::trace::{Export, Format, Recorder};
use vrampool::{Backend, Builder};

/// Flags of commands whose pool may be recorded.
#[derive(Debug, Clone, Args)]
pub(crate) struct RecordOptions {
    /// Record what the pool serves to this file: as PyTorch's snapshot where its name ends with .pickle, else as CSV; and
    /// gzip-compressed where .gz follows
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// A recording under way, if there is to be one.
pub(crate) struct Recording<'a>(Option<(&'a Path, Recorder)>);

impl RecordOptions {
    /// With room for so many events.
    pub(crate) fn start(&self, events: u64) -> Recording<'_> {
        Recording(self.record.as_deref().map(|path| (path, Recorder::with_events(events))))
    }

    /// Whether there is a file to record to.
    pub(crate) fn is_given(&self) -> bool {
        self.record.is_some()
    }
}

impl Recording<'_> {
    pub(crate) fn apply<B: Backend>(&self, builder: Builder<B>) -> Builder<B> {
        match &self.0 {
            Some((_, recorder)) => builder.recorder(recorder),
            None => builder,
        }
    }

    /// Writes what was recorded, and says on standard error what there was no room for.
    pub(crate) fn save(self) -> Result<(), Box<dyn Error>> {
        let Some((path, recorder)) = self.0 else { return Ok(()) };
        Export::new(Format::of_name(path)).save(&recorder.trace(path.display().to_string())?, path)?;
        match recorder.dropped() {
            0 => {}
            dropped => eprintln!("{}: {dropped} allocations came after the last that fits", path.display()),
        }
        Ok(())
    }
}
