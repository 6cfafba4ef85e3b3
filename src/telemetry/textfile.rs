//! Metrics in a file, for a job that Prometheus does not scrape.

use super::exposition::{Format, Text};
use super::owner::Owner;
use super::series::Series;
use crate::error::Error;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Writes so far, for names of new files.
static WRITES: AtomicU64 = AtomicU64::new(0);

/// Writes the metrics of a pool, or of another owner, to a file in Prometheus's format, for the textfile collector
/// of the node exporter: for a batch job, which ends before it is scraped. Call it before the owner ends, and after a
/// failure.
///
/// The file is replaced as a whole. The collector reads files whose names end with `.prom`; write each
/// owner to a separate file. Needs the feature `metrics`.
///
/// ```
/// # use vrampool::{Pool, host::HostDevice};
/// # let pool = Pool::builder(&HostDevice::new()).build()?;
/// # let folder = std::env::temp_dir();
/// let file = folder.join("vrampool_doc_test.prom");
/// vrampool::telemetry::write_textfile(&file, &pool)?;
/// assert!(std::fs::read_to_string(&file)?.contains("vrampool_served_total{"));
/// # std::fs::remove_file(file)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`Error::Configuration`] if the file cannot be written; then it is as it was.
pub fn write_textfile(path: impl AsRef<Path>, owner: &impl Owner) -> Result<(), Error> {
    let (path, series, mut text) = (path.as_ref(), Series::of(owner), Text::new(Format::Prometheus));
    owner.figures().samples().for_each(|sample| text.add(&series, sample));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    // Other threads and processes may write the same file.
    let number = WRITES.fetch_add(1, Relaxed);
    name.push(format!(".{}.{number}.new", std::process::id()));
    let new = path.with_file_name(name);
    let written = fs::write(&new, text.finish()).and_then(|()| fs::rename(&new, path));
    written.map_err(|error| {
        // It may not be there.
        let _ = fs::remove_file(&new);
        Error::configuration("textfile", path.display().to_string(), format!("cannot be written: {error}"))
    })
}
