//! How a pool is to be, as text.

use crate::failure::Failure;
use bytesize::ByteSize;
use vrampool::any::{self, AnyDevice};
use vrampool::errors::chain;
use vrampool::host::HostDevice;
use vrampool::{Backend, Initial, Overlap, Placement, Pool, PoolBuilder, SizeClasses, Source};
use vrampool_sleep::Offload;
use vrampool_trace::fitted::FittedClasses;

/// No cap, in the ABI and in figures.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// All keys, as errors list them.
const KEYS: [&str; 18] = [
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
    "overlap",
    "initial",
    "piece_bytes",
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
    overlap: Option<Overlap>,
    initial: Option<Initial>,
    piece_bytes: Option<u64>,
    placement: Option<Placement>,
    pub(crate) offload: Offload,
}

impl Options {
    /// Pairs of `key=value`, with semicolons or line ends between them. Of each key only the last value is
    /// read: a value may name a file.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let mut options = Self::default();
        for (key, value) in KEYS.iter().zip(values(text, &KEYS)?) {
            if let Some(value) = value {
                options.set(key, value)?;
            }
        }
        Ok(options)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Failure> {
        let wrong = |reason: &str| Failure::configuration(key, value, reason);
        let size = || size(key, value).map(Some);
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
                self.borrow_classes = Some(value.parse().map_err(|_| wrong("it is not a number"))?);
            }
            "magazine_bytes" => self.magazine_bytes = size()?,
            "magazine_class" => self.magazine_class = size()?,
            "overlap" => self.overlap = Some(value.parse()?),
            "initial" => self.initial = Some(value.parse()?),
            "piece_bytes" => self.piece_bytes = size()?,
            "placement" => {
                self.placement = Some(match value {
                    "device" => Placement::Device,
                    "host" => Placement::HostVisible,
                    "managed" => Placement::Managed,
                    _ => return Err(wrong("use device, host or managed")),
                });
            }
            "offload" => {
                self.offload = match value {
                    "pinned" => Offload::Pinned,
                    "pageable" => Offload::Pageable,
                    _ => return Err(wrong("use pinned or pageable")),
                };
            }
            _ => return Err(wrong("unknown option")),
        }
        Ok(())
    }

    pub(crate) fn open(&self) -> Result<AnyDevice, Failure> {
        let name = self.device.as_deref().unwrap_or("auto");
        match self.host_capacity {
            Some(bytes) if name == "host" => Ok(HostDevice::builder().memory_limit(bytes).build().into()),
            Some(bytes) => {
                let reason = "it applies to a new host device only; add device=host";
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

    /// Builds the pool. The environment is read here alone.
    pub(crate) fn build(&self, device: &AnyDevice) -> Result<Pool<AnyDevice>, Failure> {
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
        if let Some(classes) = &self.size_classes {
            builder = builder.size_classes(classes.clone());
        }
        if let Some(classes) = self.borrow_classes {
            builder = builder.borrow_classes(classes);
        }
        if let Some(placement) = self.placement {
            builder = builder.memory(placement);
        }
        if let Some(overlap) = self.overlap {
            builder = builder.overlap(overlap);
        }
        builder = set(builder, self.piece_bytes, PoolBuilder::piece_bytes);
        builder = builder.source(self.source_on(device));
        if let Some(name) = &self.name {
            builder = builder.name(name);
        }
        if let Some(initial) = self.initial {
            builder = builder.initial(initial);
        }
        Ok(builder.build()?)
    }
}

/// The values of pairs of `key=value`, in the order of `keys`; of each key the last one.
pub(crate) fn values<'a, const N: usize>(
    text: &'a str,
    keys: &[&str; N],
) -> Result<[Option<&'a str>; N], Failure> {
    if text.len() > MOST_BYTES {
        let reason = format!("the text has {} bytes; at most {MOST_BYTES} are read", text.len());
        return Err(Failure::configuration("options", "", &reason));
    }
    let mut values = [None; N];
    for pair in text.split([';', '\n']).map(str::trim).filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(Failure::configuration(pair, "", "it is not of the form key=value"));
        };
        let (key, value) = (key.trim(), value.trim());
        let Some(place) = keys.iter().position(|known| *known == key) else {
            let reason = format!("unknown option; use one of {}", keys.join(", "));
            return Err(Failure::configuration(key, value, &reason));
        };
        values[place] = Some(value);
    }
    Ok(values)
}

/// A number of bytes.
pub(crate) fn size(key: &str, value: &str) -> Result<u64, Failure> {
    let wrong = |reason: &str| Err(Failure::configuration(key, value, reason));
    match value.parse::<ByteSize>() {
        // What is beyond all numbers is the largest one here.
        Ok(ByteSize(u64::MAX)) => wrong("it exceeds 64 bits; use unlimited for no cap"),
        Ok(size) => Ok(size.as_u64()),
        Err(_) if value == "unlimited" => Ok(UNLIMITED),
        Err(_) => wrong("a size is a number with an optional unit, as in 512MiB, or unlimited"),
    }
}

fn classes(value: &str) -> Result<SizeClasses, Failure> {
    match value.strip_prefix("fitted:") {
        None => Ok(value.parse()?),
        Some(file) => match FittedClasses::load(file) {
            Ok(classes) => Ok(SizeClasses::from(classes)),
            Err(error) => Err(Failure::configuration("size_classes", value, &chain(&error).to_string())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Status;
    use proptest::prelude::*;
    use vrampool::any::AnyStream;

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
        for (text, overlap) in [
            ("256MiB", Overlap::Bytes(256 << 20)),
            ("0", Overlap::Bytes(0)),
            ("25%", Overlap::Percent(25)),
            ("unlimited", Overlap::Unlimited),
        ] {
            let options = Options::parse(&format!("overlap={text}")).expect("good");
            assert_eq!(options.overlap, Some(overlap), "{text}");
        }
        for (text, said) in [
            ("limit", "key=value"),
            ("limit=much", "512MiB"),
            ("limits=1", "use one of device, host_capacity"),
            ("placement=moon", "device, host or managed"),
            ("offload=moon", "pinned or pageable"),
            ("overlap=much", "256MiB"),
            ("initial=101%", "50%"),
            ("source=moon", "direct, arena, virtual, driver"),
            ("size_classes=moon", "power-of-two"),
            ("size_classes=fitted:/nowhere", "/nowhere"),
            ("borrow_classes=-1", "not a number"),
            (&"limit=1;".repeat(8193), "65544 bytes"),
        ] {
            let failure = Options::parse(text).expect_err(text);
            assert_eq!(failure.status, Status::CONFIGURATION, "{text}");
            assert!(failure.text.contains(said), "{text}: {}", failure.text);
        }
    }

    #[test]
    fn initial_memory_is_mapped_once_for_all_tags() {
        let host = HostDevice::builder().memory_limit(256 << 20).build();
        let device = AnyDevice::from(host.clone());
        if !vrampool_test_support::has_virtual_memory(&device) {
            return;
        }
        let options = Options::parse("initial=25%;piece_bytes=4MiB;limit=128MiB").expect("good");
        let main = options.build(&device).expect("a pool");
        assert_eq!(main.stats().reserved_bytes, 64 << 20);
        let tag = main.child("tag").build().expect("a pool");
        assert_eq!(tag.stats().reserved_bytes, 0);
        let [stream]: [AnyStream; 1] = vrampool_test_support::streams(&device);
        let mapped = || host.faults().calls(vrampool::host::Call::Map);
        let calls = mapped();
        let _buffer = main.allocate(48 << 20, &stream).expect("memory");
        assert_eq!(mapped(), calls);
        let failure = Options::parse("initial=25%;source=direct").expect("good").build(&device);
        assert_eq!(failure.expect_err("no arena").status, Status::CONFIGURATION);
    }

    #[test]
    fn the_arena_of_a_tag_has_the_overlap_of_its_pool() {
        let device = AnyDevice::from(HostDevice::builder().memory_limit(256 << 20).build());
        if !vrampool_test_support::has_virtual_memory(&device) {
            return;
        }
        for (text, waits) in [("limit=128MiB;overlap=0", 1), ("limit=128MiB;overlap=64MiB", 0)] {
            let options = Options::parse(text).expect("good");
            let pool = options.build(&device).expect("a pool");
            let [one, other]: [AnyStream; 2] = vrampool_test_support::streams(&device);
            for stream in [&one, &other] {
                drop(pool.allocate(8 << 20, stream).expect("memory"));
            }
            let open = vrampool_test_support::close_gate(one.as_host().expect("the host's"));
            pool.allocate(8 << 20, &one).expect("memory").fill(1, &one).expect("queued");
            let before = pool.stats().reuse_waits;
            drop(pool.allocate(8 << 20, &other).expect("memory"));
            assert_eq!(pool.stats().reuse_waits, before + waits, "{text}");
            drop(open);
        }
    }
}
