//! Settings of the simulated driver, from `VRAMPOOL_SIMULATOR`: a list such as
//! `devices=2,memory=4GiB,strict=1`.

use std::ffi::c_int;

/// The environment variable.
const VARIABLE: &str = "VRAMPOOL_SIMULATOR";

#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// Number of devices.
    pub(crate) devices: usize,
    /// Memory of each device, bytes.
    pub(crate) memory: u64,
    /// Whether the devices share the host's memory.
    pub(crate) integrated: bool,
    /// Whether devices may access each other's memory.
    pub(crate) peers: bool,
    /// As `cuDriverGetVersion` reports it.
    pub(crate) version: c_int,
    /// Granularity of virtual memory, bytes.
    pub(crate) granularity: u64,
    /// Whether a report ends the process.
    pub(crate) strict: bool,
    /// Whether the detector runs.
    pub(crate) detector: bool,
    /// The longest random delay before each operation, microseconds.
    pub(crate) lag: u64,
    /// Whether handles of destroyed streams are used again.
    pub(crate) reuse: bool,
    /// Whether devices have virtual memory.
    pub(crate) virtual_memory: bool,
    /// Whether devices have memory pools.
    pub(crate) pools: bool,
    /// The result of `cuMemCreate` for memory for network cards.
    pub(crate) direct_rdma: c_int,
    /// Whether imported memory is reported as memory of another device.
    pub(crate) foreign_imports: bool,
    /// Whether each call is printed to standard error.
    pub(crate) log: bool,
    /// Whether what is left at the process's end is a report.
    pub(crate) leaks: bool,
    /// Faults: function, the number of the call that fails, and its code.
    pub(crate) faults: Vec<(String, u64, c_int)>,
    /// The number of the call of `cuStreamWaitEvent` that has no effect.
    pub(crate) ignored_wait: Option<u64>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            devices: 1,
            memory: 16 << 30,
            integrated: false,
            peers: true,
            version: 13_000,
            granularity: 2 << 20,
            strict: false,
            detector: true,
            lag: 0,
            reuse: false,
            virtual_memory: true,
            pools: true,
            direct_rdma: 0,
            foreign_imports: false,
            log: false,
            leaks: false,
            faults: Vec::new(),
            ignored_wait: None,
        }
    }
}

impl Settings {
    /// The settings of the environment; the text of the first entry that is not understood.
    pub(crate) fn from_environment() -> Result<Self, String> {
        std::env::var(VARIABLE).map_or_else(|_| Ok(Self::default()), |text| Self::parse(&text))
    }

    fn parse(text: &str) -> Result<Self, String> {
        let mut settings = Self::default();
        for entry in text.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
            settings.set(entry).ok_or_else(|| format!("{VARIABLE}: {entry:?} is no setting"))?;
        }
        Ok(settings)
    }

    fn set(&mut self, entry: &str) -> Option<()> {
        let (key, value) = entry.split_once('=')?;
        match key {
            "devices" => self.devices = value.parse().ok()?,
            "memory" => self.memory = bytes(value)?,
            "integrated" => self.integrated = flag(value)?,
            "peers" => self.peers = flag(value)?,
            "version" => self.version = value.parse().ok()?,
            "granularity" => self.granularity = bytes(value).filter(|bytes| bytes.is_power_of_two())?,
            "strict" => self.strict = flag(value)?,
            "detector" => self.detector = flag(value)?,
            "lag" => self.lag = value.parse().ok()?,
            "reuse" => self.reuse = flag(value)?,
            "virtual_memory" => self.virtual_memory = flag(value)?,
            "pools" => self.pools = flag(value)?,
            "direct_rdma" => self.direct_rdma = value.parse().ok()?,
            "foreign_imports" => self.foreign_imports = flag(value)?,
            "log" => self.log = flag(value)?,
            "leaks" => self.leaks = flag(value)?,
            "ignored_wait" => self.ignored_wait = Some(value.parse().ok()?),
            "fail" => {
                let mut parts = value.split(':');
                let fault = (parts.next()?.into(), parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
                self.faults.push(fault);
            }
            _ => return None,
        }
        Some(())
    }
}

fn flag(value: &str) -> Option<bool> {
    match value {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

fn bytes(value: &str) -> Option<u64> {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10), ("", 0)];
    let (number, shift) =
        units.iter().find_map(|(unit, shift)| value.strip_suffix(unit).map(|number| (number, shift)))?;
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}
