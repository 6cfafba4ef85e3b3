//! How a pool is to be, as text.

use crate::failure::Failure;
use crate::fork;
use bytesize::ByteSize;
use vrampool::any::{self, AnyDevice};
use vrampool::arena::{Allowance, DeviceArena};
use vrampool::errors::chain;
use vrampool::fitted::FittedClasses;
use vrampool::host::HostDevice;
use vrampool::sleep::Offload;
use vrampool::{Backend, Placement, Pool, PoolBuilder, SizeClasses, Source};

/// No cap, in the ABI and in figures.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// All keys, as errors list them.
const KEYS: [&str; 15] = [
    "device",
    "host_capacity",
    "name",
    "source",
    "limit",
    "budget",
    "max_cached",
    "max_per_bucket",
    "cached_class",
    "size_classes",
    "borrow_classes",
    "magazine_bytes",
    "magazine_class",
    "placement",
    "offload",
];

/// The most bytes of text that are read.
const MOST_BYTES: usize = 64 << 10;

/// What was given. What was not is the environment's, and then vrampool's, to say.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) device: Option<String>,
    pub(crate) host_capacity: Option<u64>,
    pub(crate) name: Option<String>,
    pub(crate) source: Option<Source>,
    pub(crate) limit: Option<u64>,
    budget: Option<u64>,
    max_cached: Option<u64>,
    max_per_bucket: Option<u64>,
    cached_class: Option<u64>,
    size_classes: Option<SizeClasses>,
    borrow_classes: Option<u32>,
    magazine_bytes: Option<u64>,
    magazine_class: Option<u64>,
    placement: Option<Placement>,
    pub(crate) offload: Offload,
}

impl Options {
    /// Pairs of `key=value`, with semicolons or line ends between them. Of each key only the last value is
    /// read: a value may name a file.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        if text.len() > MOST_BYTES {
            let reason = format!("the text has {} bytes; at most {MOST_BYTES} are read", text.len());
            return Err(Failure::configuration("options", "", &reason));
        }
        let mut values = [None; KEYS.len()];
        for pair in text.split([';', '\n']).map(str::trim).filter(|pair| !pair.is_empty()) {
            let Some((key, value)) = pair.split_once('=') else {
                return Err(Failure::configuration(pair, "", "it is no pair of key=value"));
            };
            let (key, value) = (key.trim(), value.trim());
            let Some(place) = KEYS.iter().position(|known| *known == key) else {
                let reason = format!("there is no such option; known are {}", KEYS.join(", "));
                return Err(Failure::configuration(key, value, &reason));
            };
            values[place] = Some(value);
        }
        let mut options = Self::default();
        for (key, value) in KEYS.iter().zip(values) {
            if let Some(value) = value {
                options.set(key, value)?;
            }
        }
        Ok(options)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Failure> {
        let wrong = |reason: &str| Failure::configuration(key, value, reason);
        let size = || match value.parse::<ByteSize>() {
            // What is beyond all numbers is the largest one here.
            Ok(ByteSize(u64::MAX)) => {
                Err(wrong("it is more than there are addresses; say unlimited for no cap"))
            }
            Ok(size) => Ok(Some(size.as_u64())),
            Err(_) if value == "unlimited" => Ok(Some(UNLIMITED)),
            Err(_) => Err(wrong("a size is a number with an optional unit, as in 512MiB, or unlimited")),
        };
        match key {
            "device" => self.device = Some(value.into()),
            "host_capacity" => self.host_capacity = size()?,
            "name" => self.name = Some(value.into()),
            "source" => self.source = Some(value.parse()?),
            "limit" => self.limit = size()?,
            "budget" => self.budget = size()?,
            "max_cached" => self.max_cached = size()?,
            "max_per_bucket" => self.max_per_bucket = size()?,
            "cached_class" => self.cached_class = size()?,
            "size_classes" => self.size_classes = Some(classes(value)?),
            "borrow_classes" => {
                self.borrow_classes = Some(value.parse().map_err(|_| wrong("it is no number"))?);
            }
            "magazine_bytes" => self.magazine_bytes = size()?,
            "magazine_class" => self.magazine_class = size()?,
            "placement" => {
                self.placement = Some(match value {
                    "device" => Placement::Device,
                    "host" => Placement::HostVisible,
                    "managed" => Placement::Managed,
                    _ => return Err(wrong("known are device, host, managed")),
                });
            }
            "offload" => {
                self.offload = match value {
                    "pinned" => Offload::Pinned,
                    "pageable" => Offload::Pageable,
                    _ => return Err(wrong("known are pinned, pageable")),
                };
            }
            _ => return Err(wrong("there is no such option")),
        }
        Ok(())
    }

    pub(crate) fn open(&self) -> Result<AnyDevice, Failure> {
        fork::opening();
        let name = self.device.as_deref().unwrap_or("auto");
        match self.host_capacity {
            Some(bytes) if name == "host" => Ok(HostDevice::builder().memory_limit(bytes).build().into()),
            Some(bytes) => {
                let reason = "only a host device is made; say device=host with it";
                Err(Failure::configuration("host_capacity", &bytes.to_string(), reason))
            }
            None => Ok(any::open(name)?),
        }
    }

    /// What serves misses on `device`.
    pub(crate) fn source_on(&self, device: &AnyDevice) -> Source {
        let default = if device.virtual_memory().is_some() { Source::Virtual } else { Source::Direct };
        self.source.unwrap_or(default)
    }

    /// A pool, whose physical memory is a part of the allowance where that is virtual memory.
    pub(crate) fn build(
        &self,
        device: &AnyDevice,
        name: Option<&str>,
        allowance: Option<&Allowance>,
    ) -> Result<Pool<AnyDevice>, Failure> {
        // C has nothing but addresses.
        let mut builder = Pool::builder(device).from_environment()?.addresses_stay(true);
        let set =
            |builder, value: Option<u64>, with: fn(PoolBuilder<AnyDevice>, u64) -> PoolBuilder<AnyDevice>| {
                match value {
                    Some(value) => with(builder, value),
                    None => builder,
                }
            };
        builder = set(builder, self.limit, PoolBuilder::limit);
        builder = set(builder, self.budget, PoolBuilder::budget);
        builder = set(builder, self.max_cached, PoolBuilder::max_cached_bytes);
        builder = set(builder, self.max_per_bucket, PoolBuilder::max_buffers_per_bucket);
        builder = set(builder, self.cached_class, PoolBuilder::cached_class);
        builder = set(builder, self.magazine_bytes, PoolBuilder::magazine_bytes);
        builder = set(builder, self.magazine_class, PoolBuilder::magazine_class);
        if let Some(name) = name {
            builder = builder.name(name);
        }
        if let Some(classes) = &self.size_classes {
            builder = builder.size_classes(classes.clone());
        }
        if let Some(classes) = self.borrow_classes {
            builder = builder.borrow_classes(classes);
        }
        if let Some(placement) = self.placement {
            builder = builder.memory(placement);
        }
        builder = match allowance {
            None => builder.source(self.source_on(device)),
            Some(allowance) => {
                let arena = DeviceArena::builder(device).growing().within(allowance);
                let arena =
                    if let Some(placement) = self.placement { arena.memory(placement) } else { arena };
                builder.arena(&arena.build()?)
            }
        };
        Ok(builder.build()?)
    }
}

fn classes(value: &str) -> Result<SizeClasses, Failure> {
    match value.strip_prefix("fitted:") {
        None => Ok(value.parse()?),
        Some(file) => match FittedClasses::load(file) {
            Ok(classes) => Ok(SizeClasses::Fitted(classes)),
            Err(error) => Err(Failure::configuration("size_classes", value, &chain(&error).to_string())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Status;
    use proptest::prelude::*;

    proptest! {
        /// Any text is refused, or each of its pairs sets an option; the last of one key counts.
        #[test]
        fn any_text_is_read_as_a_naive_reader_reads_it(
            text in "((limit|budget|borrow_classes|offload|name|moon|)( ?= ?)?(unlimited|1MiB|-1|pinned|7|[a-z0-9]{0,3})[;\n]?){0,6}",
        ) {
            if let Ok(options) = Options::parse(&text) {
                let pairs = text.split([';', '\n']).filter(|pair| !pair.trim().is_empty());
                let pairs: Vec<(&str, &str)> = pairs.map(|pair| pair.split_once('=').expect("a pair")).collect();
                let last = |key: &str| pairs.iter().rev().find(|pair| pair.0.trim() == key).map(|pair| pair.1.trim());
                prop_assert_eq!(options.name.as_deref(), last("name"));
                prop_assert_eq!(options.limit.is_some(), last("limit").is_some());
                prop_assert_eq!(options.limit == Some(UNLIMITED), last("limit") == Some("unlimited"));
                prop_assert_eq!(options.borrow_classes, last("borrow_classes").map(|text| text.parse().expect("a number")));
            }
        }

        #[test]
        fn no_text_does_harm(text: String) {
            prop_assert!(Options::parse(&text).is_err() || text.contains('=') || text.trim_matches([';', '\n', ' ']).trim().is_empty());
        }
    }

    #[test]
    fn pairs_are_read_and_what_is_none_is_named() {
        let options =
            Options::parse(" device = host ; limit=1MiB\nsize_classes=geometric:8:1MiB;;").expect("good");
        assert_eq!((options.device.as_deref(), options.limit), (Some("host"), Some(1 << 20)));
        assert_eq!(options.size_classes, Some(SizeClasses::GEOMETRIC));
        assert_eq!(Options::parse("limit=unlimited").expect("good").limit, Some(UNLIMITED));
        for (text, said) in [
            ("limit", "no pair"),
            ("limit=much", "512MiB"),
            ("limits=1", "known are device, host_capacity"),
            ("placement=moon", "device, host, managed"),
            ("offload=moon", "pinned, pageable"),
            ("source=moon", "direct, arena, virtual, driver"),
            ("size_classes=moon", "power-of-two"),
            ("size_classes=fitted:/nowhere", "/nowhere"),
            ("borrow_classes=-1", "no number"),
            (&"limit=1;".repeat(8193), "65544 bytes"),
        ] {
            let failure = Options::parse(text).expect_err(text);
            assert_eq!(failure.status, Status::CONFIGURATION, "{text}");
            assert!(failure.text.contains(said), "{text}: {}", failure.text);
        }
    }
}
