//! The flags of `vrampool replay`.

use crate::pool_options::{PoolOptions, bytes_or_unlimited};
use crate::record_options::RecordOptions;
use crate::trace_options::TraceOptions;
use clap::Args;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};

/// Explanation of the figures, for the help.
const FIGURES: &str = "\
`reserved/requested` is the peak of reserved bytes over that of requested bytes, `reserved/needed` that over bytes that \
are live or in use by pending device work. The hit rate is the share of requests without a driver call; buckets served \
the share `buckets`. `calls` are those of the driver.

With --compare, replays of the host device run at the same time, and no durations are shown. `ratio` is reserved/requested, \
`calls` the driver calls of the last pass, `first` those of the first. `arena only` is an arena whose pool keeps no idle \
buffers. `fitted` are classes fitted to the trace; `half-fitted` ones are fitted to its first half, if its second half has other sizes.";

/// Flags of `vrampool replay`.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = FIGURES)]
pub(crate) struct Arguments {
    /// Traces: CSV with the header op,id,size,stream,t_us, RMM's logs, or PyTorch's memory snapshots;
    /// gzip-compressed or not, or `-` for standard input
    #[arg(required = true, value_name = "FILE")]
    pub(super) files: Vec<PathBuf>,
    /// Compare every source with every rule of size classes, also with classes fitted to the trace, and print the
    /// settings of the best; --source and --size-classes restrict the comparison
    #[arg(long, conflicts_with_all = ["touch", "record"])]
    pub(super) compare: bool,
    #[command(flatten)]
    pub(super) pool: PoolOptions,
    /// Passes of each trace on its pool; the first pass is cold, later ones are warm
    #[arg(long, value_name = "COUNT", default_value = "2")]
    pub(super) passes: NonZeroU32,
    /// Write every buffer on its stream, and verify it on the stream that frees it; a mismatch is an error
    #[arg(long)]
    pub(super) touch: bool,
    /// Capacity of the host device, or `unlimited`; without --touch it may exceed physical memory, because no
    /// buffer is written
    #[arg(long, value_name = "SIZE", default_value = "1TiB", value_parser = bytes_or_unlimited)]
    pub(super) device_memory: u64,
    #[command(flatten)]
    pub(super) trace: TraceOptions,
    #[command(flatten)]
    pub(super) record: RecordOptions,
    /// Print one JSON object per line, for each pass, instead of a table; sizes are bytes
    #[arg(long)]
    pub(super) json: bool,
}

impl Arguments {
    /// All files that are read.
    pub(super) fn inputs(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(PathBuf::as_path).chain(self.pool.inputs())
    }
}
