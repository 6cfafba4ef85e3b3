//! The flag that records the requests of a pool, common to several commands.

use crate::trace_options::warn_of;
use clap::Args;
use std::error::Error;
use std::path::{Path, PathBuf};
use vrampool::{Backend, PoolBuilder};
use vrampool_trace::output::Output;
use vrampool_trace::{Export, Format, Recorder, TraceError};

/// Flags of commands whose pool may be recorded.
#[derive(Debug, Clone, Args)]
pub struct RecordOptions {
    /// Record the requests of the pool to this file: as a PyTorch snapshot if its name ends with .pickle or
    /// .pkl, else as CSV; gzip-compressed if .gz follows
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

/// The recording, if one was requested.
#[derive(Debug)]
pub struct Recording(Option<(Output, Recorder)>);

impl RecordOptions {
    /// Creates the output, which must not be one of `inputs`; with room for so many events.
    ///
    /// # Errors
    /// As [`Output`] reports them.
    pub fn start<P: AsRef<Path>>(
        &self,
        inputs: impl IntoIterator<Item = P>,
        events: u64,
    ) -> Result<Recording, TraceError> {
        let Some(path) = &self.record else { return Ok(Recording(None)) };
        let output = Output::create(path)?.distinct_from(inputs)?;
        Ok(Recording(Some((output, Recorder::with_events(events)))))
    }

    /// The file to record to.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.record.as_deref()
    }
}

impl Recording {
    /// Records the pool that the builder makes.
    pub fn apply<B: Backend>(&self, builder: PoolBuilder<B>) -> PoolBuilder<B> {
        match &self.0 {
            Some((_, recorder)) => builder.hook(recorder.hook()),
            None => builder,
        }
    }

    /// Writes the recording and reports dropped events on standard error. Returns the events written.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn save(self) -> Result<u64, Box<dyn Error>> {
        let Some((output, recorder)) = self.0 else { return Ok(0) };
        let path = output.path().to_owned();
        let trace = recorder.trace(path.display().to_string())?;
        Export::new(Format::of_name(&path)).save_to(&trace, output)?;
        warn_of(&trace, &path);
        Ok(trace.events().len() as u64)
    }
}
