//! The flags for a pool's device, caps and classes, common to all commands with a pool.

use crate::completed::{BACKENDS, Completed, parsed};
use crate::trace_options::{STDIN, read};
use bytesize::ByteSize;
use clap::Args;
use std::error::Error;
use std::io;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use vrampool::any::Name;
use vrampool::errors::chain;
use vrampool::{Backend, Initial, Overlap, Pool, PoolBuilder, SizeClasses, Source};
use vrampool_trace::Import;
use vrampool_trace::fitted::FittedClasses;

/// Sources by their names.
const SOURCES: &[&str] = &["direct", "arena", "virtual", "driver"];

/// Rules that need no number, and the beginnings of others.
const CLASSES: &[&str] =
    &["fixed", "power-of-two", "geometric", "geometric:", "multiple:", "exact", "exact:", "tight", "fitted:"];

/// Flags of every command with a pool.
#[derive(Debug, Clone, Args)]
pub struct PoolOptions {
    /// The device to run on, by a name that `devices` shows, or `auto` [default: VRAMPOOL_BACKEND, or host]
    #[arg(long, value_name = "DEVICE", value_parser = Completed { names: BACKENDS, parse: parsed::<Name> })]
    #[arg(hide_possible_values = true)]
    pub backend: Option<Name>,
    /// Source of memory that no bucket has: direct, arena, virtual, driver [default: VRAMPOOL_SOURCE, or direct]
    #[arg(long, value_name = "SOURCE", value_parser = Completed { names: SOURCES, parse: parsed::<Source> })]
    #[arg(hide_possible_values = true)]
    source: Option<Source>,
    /// Size classes: `fixed`, `power-of-two`, `geometric[:PER_DOUBLING[:FROM]]`, `multiple:SIZE`,
    /// `exact[:SIZE]`, `tight`, or `fitted:FILE` with a file that `fit` wrote [default: VRAMPOOL_SIZE_CLASSES,
    /// or fixed; tight if the source is virtual]
    #[arg(long, value_name = "CLASSES", value_parser = Completed { names: CLASSES, parse: size_classes })]
    #[arg(hide_possible_values = true)]
    size_classes: Option<FromFile<SizeClasses>>,
    /// Number of next larger classes that an empty geometric class borrows from [default: 2]
    #[arg(long, value_name = "COUNT")]
    pub(crate) borrow_classes: Option<u32>,
    /// Cap on idle bytes, as 64KiB or 4GiB (4G is 4000000000), or `unlimited` [default: VRAMPOOL_MAX_CACHED_GB, or
    /// 4GiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes_or_unlimited)]
    pub(crate) max_cached: Option<u64>,
    /// Cap on idle buffers in one bucket, or `unlimited`
    /// [default: VRAMPOOL_MAX_BUFFERS_PER_BUCKET, or 16]
    #[arg(long, value_name = "COUNT", value_parser = count_or_unlimited)]
    pub(crate) max_per_bucket: Option<u64>,
    /// Hard cap on bytes taken from the device, as 4GiB (4G is 4000000000), or `unlimited`
    /// [default: VRAMPOOL_LIMIT_GB, or unlimited]
    #[arg(long, value_name = "SIZE", value_parser = bytes_or_unlimited)]
    pub(crate) limit: Option<u64>,
    /// Soft cap on bytes taken from the device, or `unlimited`
    /// [default: VRAMPOOL_POOL_BUDGET_FRAC; else unlimited, or 85 % of a discrete device]
    #[arg(long, value_name = "SIZE", value_parser = bytes_or_unlimited)]
    pub(crate) budget: Option<u64>,
    /// Cap on memory, beyond the peak of live bytes, that is allocated instead of waiting for another stream:
    /// a size, a share of the held bytes as 25%, or `unlimited` [default: VRAMPOOL_OVERLAP, or unlimited]
    #[arg(long, value_name = "SIZE")]
    pub(crate) overlap: Option<Overlap>,
    /// Memory to map when the pool is made, if the source is virtual: a size, a share of the device as 50%, or
    /// `peak:FILE` for the peak of requested bytes of a trace [default: VRAMPOOL_INITIAL, or none]
    #[arg(long, value_name = "SIZE", value_parser = initial)]
    initial: Option<FromFile<Initial>>,
    /// Largest piece of memory to map, if the source is virtual [default: a 16th of the mapped bytes, up to 16 MiB]
    #[arg(long, value_name = "SIZE", value_parser = bytes_or_unlimited)]
    piece_bytes: Option<u64>,
}

/// A setting, and the file that it was read from, if any.
#[derive(Debug, Clone)]
pub(crate) struct FromFile<T> {
    setting: T,
    file: Option<PathBuf>,
}

impl PoolOptions {
    /// Files that were read.
    pub fn inputs(&self) -> impl Iterator<Item = &Path> {
        let classes = self.size_classes.iter().filter_map(|classes| classes.file.as_deref());
        classes.chain(self.initial.iter().filter_map(|initial| initial.file.as_deref()))
    }

    /// The source, if its flag is set.
    pub(crate) fn source(&self) -> Option<Source> {
        self.source
    }

    /// The size classes, if their flag is set.
    pub(crate) fn size_classes(&self) -> Option<&SizeClasses> {
        self.size_classes.as_ref().map(|classes| &classes.setting)
    }

    /// Applies the flags that are set; defaults and environment variables apply to the others.
    pub fn apply<B: Backend>(&self, builder: PoolBuilder<B>) -> PoolBuilder<B> {
        let mut builder = builder;
        if let Some(source) = self.source {
            builder = builder.source(source);
        }
        if let Some(classes) = &self.size_classes {
            builder = builder.size_classes(classes.setting.clone());
        }
        if let Some(classes) = self.borrow_classes {
            builder = builder.borrow_classes(classes);
        }
        if let Some(bytes) = self.max_cached {
            builder = builder.max_cached_bytes(bytes);
        }
        if let Some(buffers) = self.max_per_bucket {
            builder = builder.max_buffers_per_bucket(buffers);
        }
        if let Some(bytes) = self.limit {
            builder = builder.limit(bytes);
        }
        if let Some(bytes) = self.budget {
            builder = builder.budget(bytes);
        }
        if let Some(overlap) = self.overlap {
            builder = builder.overlap(overlap);
        }
        if let Some(initial) = &self.initial {
            builder = builder.initial(initial.setting);
        }
        if let Some(bytes) = self.piece_bytes {
            builder = builder.piece_bytes(bytes);
        }
        builder
    }
}

/// Makes a pool, whose source may take memory or addresses at once.
///
/// # Errors
/// The text of the pool's error, with the flag to change if memory is out.
pub fn build<B: Backend>(builder: PoolBuilder<B>) -> Result<Pool<B>, String> {
    builder.build().map_err(|error| match error.is_out_of_memory() {
        true => format!("{error}; give a smaller --limit, or raise that of the address space (ulimit -v)"),
        false => error.to_string(),
    })
}

/// Parses a rule, or reads the file that follows `fitted:`, which may be standard input.
fn size_classes(text: &str) -> Result<FromFile<SizeClasses>, String> {
    let load = |path: &Path| match path.as_os_str() == STDIN {
        true => FittedClasses::parse(io::stdin().lock()),
        false => FittedClasses::load(path),
    };
    setting(text, "fitted:", |path| load(path).map(SizeClasses::from))
}

/// Parses a size or a share, or reads the trace that follows `peak:`.
fn initial(text: &str) -> Result<FromFile<Initial>, String> {
    setting(text, "peak:", |path| {
        read(path, Import::new()).map(|trace| Initial::Bytes(trace.peak_requested()))
    })
}

/// Parses a setting, or reads it from the file that follows `prefix`.
fn setting<T: FromStr<Err = vrampool::Error>, E: Error + 'static>(
    text: &str,
    prefix: &str,
    read: impl FnOnce(&Path) -> Result<T, E>,
) -> Result<FromFile<T>, String> {
    match text.strip_prefix(prefix).map(Path::new) {
        Some(path) => match read(path) {
            Ok(setting) => Ok(FromFile { setting, file: Some(path.into()) }),
            Err(error) => Err(chain(&error).to_string()),
        },
        None => match text.parse() {
            Ok(setting) => Ok(FromFile { setting, file: None }),
            Err(error) => Err(error.to_string()),
        },
    }
}

/// Parses `64KiB`, `4GiB`, `1000`, or `unlimited`.
///
/// # Errors
/// A text that names the valid forms.
pub fn bytes_or_unlimited(text: &str) -> Result<u64, String> {
    if text == "unlimited" {
        return Ok(u64::MAX);
    }
    match text.parse::<ByteSize>() {
        Ok(size) if size.as_u64() < u64::MAX => Ok(size.as_u64()),
        Ok(_) => Err("a size must be less than 2^64 bytes; write `unlimited` for no cap".into()),
        Err(_) => Err("a size is a number with an optional unit, as in 64KiB or 4GiB, or `unlimited`".into()),
    }
}

fn count_or_unlimited(text: &str) -> Result<u64, String> {
    if text == "unlimited" {
        return Ok(u64::MAX);
    }
    text.parse().map_err(|_| "a count is a whole number, or `unlimited`".into())
}
