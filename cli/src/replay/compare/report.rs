//! The rows of a comparison, the best of them, and what the trace does not show.

use super::choice::Choice;
use crate::table::{human, percent, table};
use serde::Serialize;
use std::error::Error;
use std::fmt;
use std::fs;
use std::path::Path;
use vrampool::{SizeClasses, Source};
use vrampool_trace::output::shown;
use vrampool_trace::{Pass, Trace};

/// Bytes of the best over the least bytes, at most.
const CLOSE: f64 = 1.02;

/// A share of requests with unseen sizes that says little.
pub(super) const FEW: f64 = 0.01;

/// The figures of one choice. The names and their order are those of the JSON.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) source: String,
    pub(super) size_classes: String,
    pub(super) keeps_nothing: bool,
    pub(super) passes: u32,
    pub(super) peak_reserved: u64,
    /// Of the last pass, as the calls and waits below.
    pub(super) hit_rate: f64,
    pub(super) bucket_hit_rate: f64,
    pub(super) driver_calls: u64,
    pub(super) first_driver_calls: u64,
    pub(super) reuse_waits: u64,
    pub(super) best: bool,
    #[serde(skip)]
    choice: Choice,
}

/// Figures of a trace.
#[derive(Debug, Clone)]
pub(super) struct Report {
    trace: String,
    file: String,
    peak_requested: u64,
    rows: Vec<Row>,
    best: Row,
    /// Bytes that PyTorch reserved for the same requests.
    pytorch: Option<u64>,
    unseen: f64,
}

impl Row {
    /// `None` without passes.
    pub(super) fn new(choice: &Choice, passes: &[Pass]) -> Option<Self> {
        let (first, last) = (passes.first()?, passes.last()?);
        Some(Self {
            source: choice.source.to_string(),
            size_classes: choice.classes.name.clone(),
            keeps_nothing: choice.keeps_nothing,
            passes: passes.len() as u32,
            peak_reserved: passes.iter().map(|pass| pass.peak_reserved_bytes).max()?,
            hit_rate: last.hit_rate,
            bucket_hit_rate: last.bucket_hit_rate,
            driver_calls: last.driver_calls,
            first_driver_calls: first.driver_calls,
            reuse_waits: last.reuse_waits,
            best: false,
            choice: choice.clone(),
        })
    }
}

impl Report {
    /// Sorts the rows by bytes, and marks the best: within 2 % of the least bytes, a source that grows if there is
    /// one, with the fewest calls of the driver in the last pass. `None` without rows. `unseen` is the share of
    /// requests with sizes that only the second half of the trace has.
    pub(super) fn new(trace: &Trace, file: &Path, mut rows: Vec<Row>, unseen: f64) -> Option<Self> {
        rows.sort_by_key(|row| row.peak_reserved);
        // Classes that are fitted to a half show what fitted ones are worth, and are no setting.
        let settings = || rows.iter().enumerate().filter(|(_, row)| !row.choice.classes.is_of_half);
        let least = settings().next()?.1.peak_reserved as f64;
        let close = settings().filter(|(_, row)| row.peak_reserved as f64 <= CLOSE * least);
        let cost = |row: &Row| (row.choice.source == Source::Arena, row.driver_calls, row.peak_reserved);
        let (best, _) = close.min_by_key(|(_, row)| cost(row))?;
        rows[best].best = true;
        Some(Self {
            trace: trace.name().into(),
            file: shown(file),
            peak_requested: trace.peak_requested(),
            best: rows[best].clone(),
            rows,
            pytorch: pytorch(file),
            unseen,
        })
    }

    /// A line for each row, with the name of the trace.
    pub(super) fn json(&self) -> Result<String, Box<dyn Error>> {
        #[derive(Serialize)]
        struct Line<'a> {
            trace: &'a str,
            peak_requested: u64,
            unseen_sizes: f64,
            #[serde(flatten)]
            row: &'a Row,
        }
        let Self { trace, peak_requested, unseen: unseen_sizes, .. } = self;
        let line = |row| {
            serde_json::to_string(&Line {
                trace,
                peak_requested: *peak_requested,
                unseen_sizes: *unseen_sizes,
                row,
            })
        };
        Ok(self.rows.iter().map(line).collect::<Result<Vec<_>, _>>()?.join("\n"))
    }

    fn over_requested(&self, bytes: u64) -> f64 {
        bytes as f64 / self.peak_requested.max(1) as f64
    }

    /// Why the best is the best.
    fn reason(&self) -> String {
        let Self { best, .. } = self;
        let bytes = human(best.peak_reserved);
        let ratio = self.over_requested(best.peak_reserved);
        let is_default = |row: &&Row| {
            (row.choice.source, &row.choice.classes.rule) == (Source::Direct, &SizeClasses::Fixed)
        };
        let default = self.rows.iter().find(is_default).filter(|row| row.peak_reserved > best.peak_reserved);
        let saved = default.map_or_else(String::new, |default| {
            let saved = 1.0 - best.peak_reserved as f64 / default.peak_reserved as f64;
            format!(", {} less than the default", percent(saved))
        });
        let grows = match best.choice.source {
            Source::Arena => " An arena reserves its limit at once, and a request beyond it fails.",
            _ => "",
        };
        format!(
            "{} reserves {bytes}, {ratio:.3} times the requested peak{saved}: within 2 % of the least, with {} driver calls in \
             the first pass and {} in the last.{grows}",
            best.choice, best.first_driver_calls, best.driver_calls
        )
    }

    /// Returns the differences of a later run that the trace does not show.
    fn unknown(&self) -> String {
        if self.unseen <= FEW {
            return "Unknown: other programs, and times, which `vrampool replay` and `vrampool bench` measure.".into();
        }
        format!(
            "Unknown: in the second half of the trace {} of the requests have sizes that its first half does not have, so a \
             later run may bring other sizes again. The figures of fitted classes are of this trace alone; those fitted to its \
             first half show what to expect.",
            percent(self.unseen)
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rows: Vec<_> = self.rows.iter().map(|row| (row.peak_reserved, row.cells(self))).collect();
        rows.extend(self.pytorch.map(|bytes| {
            let mut cells =
                ["", "PyTorch", "as recorded", &human(bytes), "", "", "", "", ""].map(String::from);
            cells[4] = format!("{:.3}", self.over_requested(bytes));
            (bytes, cells)
        }));
        rows.sort_by_key(|(bytes, _)| *bytes);
        let columns = ["", "source", "classes", "reserved", "ratio", "hits", "buckets", "calls", "first"];
        writeln!(f, "{}: {} requested at the peak\n", self.trace, human(self.peak_requested))?;
        writeln!(f, "{}\n", table(Some(columns), 0..3, rows.into_iter().map(|(_, cells)| cells)))?;
        writeln!(f, "{}\n{}\n", fill(&format!("* {}", self.reason())), fill(&self.unknown()))?;
        let classes = format!("{}.classes", self.trace);
        if self.best.choice.classes.is_fitted() {
            writeln!(f, "First: vrampool fit {} --output {classes}\n", self.file)?;
        }
        let settings = self.best.choice.settings(&classes, self.best.peak_reserved).join("\n    ");
        write!(f, "Settings of a pool; as variables, in upper case behind VRAMPOOL_:\n    {settings}")
    }
}

impl Row {
    fn cells(&self, report: &Report) -> [String; 9] {
        [
            if self.best { "*" } else { "" }.into(),
            self.choice.source(),
            self.size_classes.clone(),
            human(self.peak_reserved),
            format!("{:.3}", report.over_requested(self.peak_reserved)),
            percent(self.hit_rate),
            percent(self.bucket_hit_rate),
            self.driver_calls.to_string(),
            self.first_driver_calls.to_string(),
        ]
    }
}

/// The text in lines of at most 80 characters.
fn fill(text: &str) -> String {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + word.chars().count() < 80 => {
                *line += if line.is_empty() { "" } else { " " };
                *line += word;
            }
            _ => lines.push(word.into()),
        }
    }
    lines.join("\n")
}

/// Bytes that PyTorch's own allocator reserved, by the file `NAME.json` beside `NAME.csv.gz`.
fn pytorch(file: &Path) -> Option<u64> {
    let name = file.file_name()?.to_str()?.split('.').next()?;
    let text = fs::read(file.with_file_name(format!("{name}.json"))).ok()?;
    serde_json::from_slice::<serde_json::Value>(&text).ok()?.get("torch_peak_reserved")?.as_u64()
}
