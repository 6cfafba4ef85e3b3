//! Options of a pool, as text.

use crate::failure::Failure;
use std::collections::BTreeMap;
use vrampool::any::{self, AnyDevice};
use vrampool::errors::chain;
use vrampool::host::HostDevice;
use vrampool::settings::{Scope, Setting};
use vrampool::{Amount, Backend, Pool, PoolBuilder, Settings, SizeClasses, Source, internal};
use vrampool_sleep::Offload;
use vrampool_trace::fitted;

/// No cap, in the ABI and in figures.
pub(crate) const UNLIMITED: u64 = u64::MAX;

/// Keys that are no settings of a pool.
const OWN: [&str; 4] = ["device", "file", "host_capacity", "offload"];

/// The most bytes of text that are read.
const MOST_BYTES: usize = 64 << 10;

/// Options that are set. The environment, and then the defaults of vrampool, apply to others.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    pub(crate) device: Option<String>,
    file: Option<String>,
    pub(crate) host_capacity: Option<u64>,
    pub(crate) offload: Offload,
    pub(crate) settings: Settings,
}

impl Options {
    /// Pairs of `key=value`, with semicolons or line ends between them. Of each key only the last value is
    /// read: a value may name a file.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let mut options = Self::default();
        for (key, value) in values(text, &keys())? {
            options.set(key, value)?;
        }
        Ok(options)
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), Failure> {
        match key {
            "device" => self.device = Some(value.into()),
            "file" => self.file = Some(value.into()),
            "host_capacity" => self.host_capacity = Some(size(key, value)?),
            "offload" => {
                self.offload = match value {
                    "pinned" => Offload::Pinned,
                    "pageable" => Offload::Pageable,
                    _ => return Err(Failure::configuration(key, value, "use pinned or pageable")),
                };
            }
            _ => match value.strip_prefix("fitted:") {
                Some(file) if key == "size_classes" => {
                    let invalid = |error| Failure::configuration(key, value, &chain(&error).to_string());
                    let classes = fitted::load(file).map_err(invalid)?;
                    self.settings.size_classes = Some(SizeClasses::Table(classes));
                }
                _ => self.settings.set(key, value)?,
            },
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

    /// The settings of a pool on a device. The environment and the file are read here alone.
    pub(crate) fn builder(&self, device: &AnyDevice) -> Result<PoolBuilder<AnyDevice>, Failure> {
        let mut builder = Pool::builder(device).from_environment()?.settings(self.settings.clone());
        if let Some(path) = &self.file {
            builder = builder.from_file(path)?;
        }
        if device.virtual_memory().is_some() {
            internal::default_source(&mut builder, Source::Virtual);
        }
        // C stores addresses.
        Ok(builder.addresses_stay(true))
    }
}

/// Whether a setting is an option: one of pools that are not below another one. Addresses stay in any case.
#[must_use]
pub fn is_option(of: &Setting) -> bool {
    of.scope != Scope::Child && of.name != "addresses_stay"
}

/// All keys of `vrampool_create`, as errors list them: its own, then settings of the table.
#[must_use]
pub fn keys() -> Vec<&'static str> {
    OWN.into_iter().chain(Settings::TABLE.iter().filter(|of| is_option(of)).map(|of| of.name)).collect()
}

/// The values of pairs of `key=value`; of each key the last one.
pub(crate) fn values<'a>(
    text: &'a str,
    keys: &[&'static str],
) -> Result<BTreeMap<&'static str, &'a str>, Failure> {
    if text.len() > MOST_BYTES {
        let reason = format!("the text has {} bytes; at most {MOST_BYTES} are read", text.len());
        return Err(Failure::configuration("options", "", &reason));
    }
    let mut values = BTreeMap::new();
    for pair in text.split([';', '\n']).map(str::trim).filter(|pair| !pair.is_empty()) {
        let Some((key, value)) = pair.split_once('=') else {
            return Err(Failure::configuration(pair, "", "it is not of the form key=value"));
        };
        let (key, value) = (key.trim(), value.trim());
        let Some(known) = keys.iter().find(|known| **known == key) else {
            let reason = format!("unknown option; use one of {}", keys.join(", "));
            return Err(Failure::configuration(key, value, &reason));
        };
        values.insert(*known, value);
    }
    Ok(values)
}

/// A number of bytes.
pub(crate) fn size(key: &str, value: &str) -> Result<u64, Failure> {
    Amount::parse_bytes(value).map_err(|invalid| Failure::configuration(key, value, &invalid.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Status;

    #[test]
    fn pairs_are_read_and_what_is_none_is_named() {
        let options =
            Options::parse(" device = host ; limit=1MiB\nsize_classes=geometric:8:1MiB;;").expect("good");
        assert_eq!(
            (options.device.as_deref(), options.settings.limit),
            (Some("host"), Some(Amount::Bytes(1 << 20)))
        );
        assert_eq!(options.settings.size_classes, Some(SizeClasses::GEOMETRIC));
        assert_eq!(Options::parse("limit=unlimited").expect("good").settings.limit, Some(Amount::Unlimited));
        for (text, overlap) in [
            ("256MiB", Amount::Bytes(256 << 20)),
            ("0", Amount::Bytes(0)),
            ("25%", Amount::Percent(25.0)),
            ("unlimited", Amount::Unlimited),
        ] {
            let options = Options::parse(&format!("overlap={text}")).expect("good");
            assert_eq!(options.settings.overlap, Some(overlap), "{text}");
        }
        for (text, said) in [
            ("limit", "key=value"),
            ("limit=much", "512MiB"),
            ("limits=1", "use one of device, file, host_capacity"),
            ("memory=moon", "device, host or managed"),
            ("offload=moon", "pinned or pageable"),
            ("overlap=much", "512MiB"),
            ("initial=101%", "from 0 to 100"),
            ("source=moon", "direct, arena, virtual, driver"),
            ("size_classes=moon", "power-of-two"),
            ("size_classes=fitted:/nowhere", "/nowhere"),
            ("borrow_classes=-1", "whole number"),
            (&"limit=1;".repeat(8193), "65544 bytes"),
        ] {
            let failure = Options::parse(text).expect_err(text);
            assert_eq!(failure.status, Status::CONFIGURATION, "{text}");
            assert!(failure.text.contains(said), "{text}: {}", failure.text);
        }
    }
}
