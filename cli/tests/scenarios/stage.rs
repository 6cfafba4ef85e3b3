//! The environment of a scenario: its clock, and the targets that Prometheus scrapes.

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use vrampool::host::{HostDevice, HostStream};
use vrampool::telemetry::{Exporter, Owner};
use vrampool::{Backend, Buffer, Pool, PoolBuilder};

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;

/// An address whose port the system chooses.
pub(crate) const FREE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0));

pub(crate) type Builder = PoolBuilder<HostDevice>;

/// A condition, and the alerts that it should raise.
#[derive(Clone)]
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    pub(crate) expected: &'static [&'static str],
    pub(crate) allowed: &'static [&'static str],
    pub(crate) run: fn(&Stage),
}

impl Scene {
    pub(crate) const fn new(name: &'static str, expected: &'static [&'static str], run: fn(&Stage)) -> Self {
        Self { name, expected, allowed: &[], run }
    }

    /// Alerts that may fire as well: they are true, and depend on the moment.
    pub(crate) const fn or(mut self, allowed: &'static [&'static str]) -> Self {
        self.allowed = allowed;
        self
    }
}

/// The addresses that Prometheus scrapes, with the scenario of each.
pub(crate) struct Targets {
    folder: PathBuf,
    list: Mutex<BTreeMap<SocketAddr, &'static str>>,
}

impl Targets {
    pub(crate) fn new(folder: &Path) -> Self {
        let targets = Self { folder: folder.to_owned(), list: Mutex::default() };
        targets.change(|_| {});
        targets
    }

    fn change(&self, change: impl FnOnce(&mut BTreeMap<SocketAddr, &'static str>)) {
        let mut list = self.list.lock().expect("no panic");
        change(&mut list);
        let groups: Vec<_> = list
            .iter()
            .map(|(address, scenario)| {
                serde_json::json!({ "targets": [address.to_string()], "labels": { "scenario": scenario } })
            })
            .collect();
        let (new, file) = (self.folder.join("targets.new"), self.folder.join("targets.json"));
        fs::write(&new, serde_json::Value::from(groups).to_string()).expect("written");
        fs::rename(new, file).expect("replaced");
    }
}

/// A served process: its exporter.
pub(crate) struct Process {
    pub(crate) exporter: Exporter,
}

impl Process {
    pub(crate) fn and(self, owner: &impl Owner) -> Self {
        self.exporter.add(owner).expect("a new one");
        self
    }
}

/// A pool on a device of its own, served until this is dropped.
pub(crate) struct Served {
    pub(crate) device: HostDevice,
    pub(crate) stream: HostStream,
    pub(crate) pool: Pool<HostDevice>,
    pub(crate) process: Process,
}

impl Served {
    /// As [`allocate`].
    pub(crate) fn allocate(&self, sizes: &[u64]) -> Vec<Buffer<HostDevice>> {
        allocate(&self.pool, &self.stream, sizes)
    }

    /// As [`Stage::cycle`].
    pub(crate) fn cycle(&self, stage: &Stage, sizes: &[u64]) {
        stage.cycle(&self.pool, &self.stream, sizes);
    }
}

pub(crate) struct Stage {
    pub(crate) name: &'static str,
    end: Instant,
    targets: Arc<Targets>,
}

impl Stage {
    pub(crate) fn new(name: &'static str, end: Instant, targets: Arc<Targets>) -> Self {
        Self { name, end, targets }
    }

    /// A device with a stream, and a pool's builder named after the scenario.
    pub(crate) fn device(&self, bytes: u64) -> (HostDevice, HostStream, Builder) {
        let device = HostDevice::builder().memory_limit(bytes).build();
        let stream = device.create_stream().expect("a stream");
        let builder = Pool::builder(&device).name(self.name);
        (device, stream, builder)
    }

    /// A served pool named after the scenario, on a device of so many bytes.
    pub(crate) fn served(&self, bytes: u64, set: impl FnOnce(Builder) -> Builder) -> Served {
        self.served_at(FREE, bytes, set)
    }

    pub(crate) fn served_at(
        &self,
        address: SocketAddr,
        bytes: u64,
        set: impl FnOnce(Builder) -> Builder,
    ) -> Served {
        let (device, stream, builder) = self.device(bytes);
        let pool = set(builder).build().expect("a pool");
        let process = self.serve_at(address).and(&pool);
        Served { device, stream, pool, process }
    }

    /// Serves a process at a free address.
    pub(crate) fn serve(&self) -> Process {
        self.serve_at(FREE)
    }

    pub(crate) fn serve_at(&self, address: SocketAddr) -> Process {
        let exporter = Exporter::listen(address).expect("a free port");
        let address = exporter.address();
        self.targets.change(|targets| _ = targets.insert(address, self.name));
        Process { exporter }
    }

    /// Ends a process that does not come back, as a pod.
    pub(crate) fn end(&self, process: Process) {
        self.targets.change(|targets| _ = targets.remove(&process.exporter.address()));
    }

    /// Lets time pass. Returns `false` once the scenario is over.
    pub(crate) fn pass(&self, time: Duration) -> bool {
        let until = (Instant::now() + time).min(self.end);
        while Instant::now() < until {
            std::thread::park_timeout(until - Instant::now());
        }
        Instant::now() < self.end
    }

    pub(crate) fn seconds(&self, seconds: u64) -> bool {
        self.pass(Duration::from_secs(seconds))
    }

    /// Until the end, ten times a second: requests of all sizes, which are freed together.
    pub(crate) fn cycle(&self, pool: &Pool<HostDevice>, stream: &HostStream, sizes: &[u64]) {
        self.every(Duration::from_millis(100), || drop(allocate(pool, stream, sizes)));
    }

    /// Until the end, again and again.
    pub(crate) fn every(&self, time: Duration, mut step: impl FnMut()) {
        while self.pass(time) {
            step();
        }
    }
}

/// Allocates each size, and returns the buffers of the requests that succeed.
pub(crate) fn allocate(
    pool: &Pool<HostDevice>,
    stream: &HostStream,
    sizes: &[u64],
) -> Vec<Buffer<HostDevice>> {
    sizes.iter().filter_map(|&bytes| pool.allocate(bytes, stream).ok()).collect()
}
