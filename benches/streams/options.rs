//! The command line.

use crate::scene::Scene;
use std::error::Error;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use vrampool::{SizeClasses, Source};

pub(crate) const HELP: &str = "\
Streams of one pool beside a pool for each stream.

  --device NAME,…     devices: host, cuda, cuda:1, opencl (default: host, and cuda and opencl if available)
  --scenes NAME,…     single, layers, loader, gather, pipeline (default: all)
  --sizes BYTES,…     sizes of blocks, such as 4KiB, 64MiB (default: 4KiB,1MiB,8MiB,64MiB)
  --sources NAME,…    direct, arena, virtual, driver (default: all that the device has)
  --classes RULE,…    size classes (default: fixed,power-of-two)
  --streams N,…       1, 2, 4; a pipeline has 1 or 3 (default: all)
  --kernel-us N       the length of a kernel (default: 1000 on the host, 200 elsewhere)
  --kernels N         kernels of a stream and round (default: 20 on the host, 50 elsewhere)
  --rounds N          timed rounds, of which the median counts (default: 3)
  --quick             10 kernels, one round, two sizes, two sources, one rule
  --out FILE          the lines of JSON to a file, too";

#[derive(Debug)]
pub(crate) struct Options {
    pub(crate) devices: Vec<String>,
    pub(crate) devices_are_defaults: bool,
    pub(crate) scenes: Vec<Scene>,
    pub(crate) sizes: Vec<u64>,
    pub(crate) sources: Vec<Source>,
    pub(crate) classes: Vec<SizeClasses>,
    pub(crate) streams: Vec<usize>,
    kernel_us: Option<u64>,
    kernels: Option<usize>,
    rounds: usize,
    pub(crate) out: Option<PathBuf>,
}

/// How much work a step is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Amount {
    /// The length of a kernel.
    pub(crate) length: Duration,
    /// Kernels of a stream in a step.
    pub(crate) kernels: usize,
    /// Timed steps.
    pub(crate) rounds: usize,
}

impl Options {
    /// `None` if help is asked for.
    pub(crate) fn parse(arguments: impl Iterator<Item = String>) -> Result<Option<Self>, Box<dyn Error>> {
        let arguments: Vec<_> = arguments.collect();
        let mut options = Self::default();
        if arguments.iter().any(|argument| argument == "--quick") {
            options.sizes = vec![4 << 10, 8 << 20];
            options.sources = vec![Source::Direct, Source::Virtual];
            options.classes = vec![SizeClasses::PowerOfTwo];
            options.kernels = Some(10);
            options.rounds = 1;
        }
        let mut arguments = arguments.into_iter();
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{name} has no value"));
            match name.as_str() {
                "--help" | "-h" => return Ok(None),
                // Cargo passes the former.
                "--bench" | "--quick" => {}
                "--out" => options.out = Some(value()?.into()),
                "--device" => {
                    options.devices = list(&value()?)?;
                    options.devices_are_defaults = false;
                }
                "--scenes" => options.scenes = list(&value()?)?,
                "--sizes" => {
                    options.sizes = list(&value()?)?.into_iter().map(size).collect::<Result<_, _>>()?
                }
                "--sources" => options.sources = list(&value()?)?,
                "--classes" => options.classes = list(&value()?)?,
                "--streams" => options.streams = list(&value()?)?,
                "--kernel-us" => options.kernel_us = Some(value()?.parse()?),
                "--kernels" => options.kernels = Some(value()?.parse::<usize>()?.max(1)),
                "--rounds" => options.rounds = value()?.parse::<usize>()?.max(1),
                other => return Err(format!("unknown option '{other}': --help lists the options").into()),
            }
        }
        Ok(Some(options))
    }

    pub(crate) fn amount(&self, backend: &str) -> Amount {
        let (length, kernels) = if backend == "host" { (1000, 20) } else { (200, 50) };
        Amount {
            length: Duration::from_micros(self.kernel_us.unwrap_or(length)),
            kernels: self.kernels.unwrap_or(kernels),
            rounds: self.rounds,
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        let devices = ["host", "cuda", "opencl"];
        let is_enabled = [true, cfg!(feature = "cuda"), cfg!(feature = "opencl")];
        let devices = devices.iter().zip(is_enabled).filter(|&(_, is_enabled)| is_enabled);
        Self {
            devices: devices.map(|(name, _)| (*name).to_owned()).collect(),
            devices_are_defaults: true,
            scenes: Scene::ALL.to_vec(),
            sizes: vec![4 << 10, 1 << 20, 8 << 20, 64 << 20],
            sources: Source::ALL.to_vec(),
            classes: vec![SizeClasses::Fixed, SizeClasses::PowerOfTwo],
            streams: vec![1, 2, 3, 4],
            kernel_us: None,
            kernels: None,
            rounds: 3,
            out: None,
        }
    }
}

fn list<T: FromStr<Err: Into<Box<dyn Error>>>>(text: &str) -> Result<Vec<T>, Box<dyn Error>> {
    text.split(',').map(|item| item.parse().map_err(Into::into)).collect()
}

/// At least the 512 bytes of the smallest temporary.
fn size(amount: vrampool::Amount) -> Result<u64, String> {
    match amount {
        vrampool::Amount::Bytes(bytes) if bytes >= 512 && bytes.is_multiple_of(512) => Ok(bytes),
        _ => Err(format!("'{amount}' is not a positive multiple of 512 bytes")),
    }
}
