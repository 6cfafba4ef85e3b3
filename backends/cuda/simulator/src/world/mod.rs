//! The whole state of the driver, under one lock, and what is reported.

use crate::code::{Answer, Code};
use crate::detector::{Clock, Point, Shadow, Site, Span};
use crate::fault::Faults;
use crate::objects::capture::Capture;
use crate::objects::context::Context;
use crate::objects::device::Device;
use crate::objects::event::Event;
use crate::objects::handle::{Handles, Object};
use crate::objects::memory::Memory;
use crate::objects::module::{Function, Module};
use crate::objects::pool::Pool;
use crate::objects::stream::Stream;
use crate::objects::work::{Graph, Program};
use crate::settings::Settings;
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::OnceLock;

pub(crate) mod captures;
pub(crate) mod contexts;
mod devices;
mod events;
pub(crate) mod executor;
mod handles;
mod memory;
mod modules;
mod pools;
mod streams;
mod virtual_memory;
mod work;

pub(crate) struct World {
    pub(crate) settings: Settings,
    pub(crate) initialized: bool,
    pub(crate) devices: Vec<Device>,
    pub(crate) handles: Handles,
    pub(crate) contexts: HashMap<u64, Context>,
    pub(crate) streams: HashMap<u64, Stream>,
    pub(crate) events: HashMap<u64, Event>,
    pub(crate) pools: HashMap<u64, Pool>,
    pub(crate) modules: HashMap<u64, Module>,
    pub(crate) functions: HashMap<u64, Function>,
    pub(crate) captures: HashMap<u64, Capture>,
    pub(crate) graphs: HashMap<u64, Graph>,
    pub(crate) execs: HashMap<u64, Program>,
    pub(crate) memory: Memory,
    /// Memory of graphs that a launch allocated and nothing has freed.
    pub(crate) graph_memory: HashSet<u64>,
    pub(crate) faults: Faults,
    /// The call that is at work.
    pub(crate) site: Site,
    /// The clock of operations that the host has seen complete.
    pub(crate) seen: Clock,
    pub(crate) shadow: Shadow,
    pub(crate) reports: Vec<String>,
    /// Whether reports are expected now, and how many there were.
    pub(crate) expected: Option<u64>,
    /// Calls of `cuStreamWaitEvent` so far.
    pub(crate) waits: u64,
    /// Streams with an operation that can run.
    pub(crate) ready: VecDeque<u64>,
    pub(crate) workers: usize,
    pub(crate) idle_workers: usize,
    /// Host threads that wait for operations.
    pub(crate) sleepers: usize,
    numbers: u64,
}

/// An operation of some stream is complete.
pub(crate) static PROGRESS: Condvar = Condvar::new();

impl World {
    pub(crate) fn lock() -> MutexGuard<'static, Self> {
        static WORLD: OnceLock<Mutex<World>> = OnceLock::new();
        WORLD.get_or_init(|| Mutex::new(Self::new())).lock()
    }

    fn new() -> Self {
        let settings = Settings::from_environment().unwrap_or_else(|error| {
            eprintln!("simulator: {error}");
            Settings { devices: 0, ..Settings::default() }
        });
        let mut handles = Handles::default();
        handles.reuse = settings.reuse;
        Self {
            initialized: false,
            devices: (0..settings.devices).map(Device::new).collect(),
            handles,
            contexts: HashMap::new(),
            streams: HashMap::new(),
            events: HashMap::new(),
            pools: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
            captures: HashMap::new(),
            graphs: HashMap::new(),
            execs: HashMap::new(),
            memory: Memory::default(),
            graph_memory: HashSet::new(),
            faults: Faults::new(settings.faults.clone()),
            site: Site { call: "", number: 0 },
            seen: Clock::default(),
            shadow: Shadow::default(),
            reports: Vec::new(),
            expected: None,
            waits: 0,
            ready: VecDeque::new(),
            workers: 0,
            idle_workers: 0,
            sleepers: 0,
            numbers: 0,
            settings,
        }
    }

    /// A number that no other object has.
    pub(crate) fn next_number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Notes what the program did wrong. Ends the process in strict mode.
    pub(crate) fn report(&mut self, text: String) {
        if let Some(expected) = &mut self.expected {
            *expected += 1;
            return;
        }
        let text = format!("{text} [{}]", self.site);
        eprintln!("simulator: {text}");
        self.reports.push(text);
        if self.settings.strict {
            std::process::abort();
        }
    }

    /// Checks what an operation touches against everything that is not ordered before it.
    pub(crate) fn check(&mut self, spans: &[Span], point: Point, clock: &Clock) {
        if !self.settings.detector {
            return;
        }
        let site = self.site;
        let mut races = Vec::new();
        for span in spans {
            let ordered = |earlier: Point| self.seen.has(earlier) || clock.has(earlier);
            if let Some(earlier) = self.shadow.touch(*span, point, site, &ordered) {
                races.push((*span, earlier));
            }
        }
        for (span, earlier) in races {
            let verb = |write| if write { "writes" } else { "reads" };
            self.report(format!(
                "race: {} on stream {} {} bytes {:#x} to {:#x} of memory {}, which {} on stream {} {}; nothing orders them",
                site,
                point.stream,
                verb(span.write),
                span.start,
                span.end,
                span.backing,
                earlier.site,
                earlier.point.stream,
                verb(earlier.write),
            ));
        }
    }

    /// Reports work that the host does not know to be complete, and that touches a range that goes away.
    pub(crate) fn check_unused(&mut self, backing: u64, start: u64, end: u64, verb: &str) {
        if !self.settings.detector {
            return;
        }
        let seen = &self.seen;
        if let Some(access) = self.shadow.pending(backing, (start, end), &|access| seen.has(access.point)) {
            self.report(format!(
                "memory {backing}, bytes {start:#x} to {end:#x}, is {verb} while {} on stream {} may still use it",
                access.site, access.point.stream
            ));
        }
    }

    /// The host knows that what the clock has is complete.
    pub(crate) fn learn(&mut self, clock: &Clock) {
        self.seen.join(clock);
    }

    /// The code that the context's work failed with, if it did.
    pub(crate) fn usable(&self, context: u64) -> Answer {
        let context = self.contexts.get(&context).ok_or(Code::CONTEXT_IS_DESTROYED)?;
        context.lost.map_or(Ok(()), Err)
    }

    /// Waits until `is_done`.
    pub(crate) fn wait_until(guard: &mut MutexGuard<'_, Self>, is_done: impl Fn(&Self) -> bool) {
        while !is_done(guard) {
            guard.sleepers += 1;
            PROGRESS.wait(guard);
            guard.sleepers -= 1;
        }
    }

    /// Returns the objects that were not released: a line for each kind.
    pub(crate) fn leaks(&self) -> Vec<String> {
        let mut leaks = self.memory.leaks();
        let mut add = |count: usize, name: &str| {
            if count > 0 {
                leaks.push(format!("{count} {name}"));
            }
        };
        add(self.handles.count(|object| matches!(object, Object::Stream(_))), "streams");
        add(self.handles.count(|object| matches!(object, Object::Event(_))), "events");
        add(self.pools.values().filter(|pool| !pool.is_default).count(), "memory pools");
        add(self.handles.count(|object| matches!(object, Object::Module(_))), "modules");
        add(self.handles.count(|object| matches!(object, Object::Graph(_))), "graphs");
        add(self.handles.count(|object| matches!(object, Object::Exec(_))), "executable graphs");
        add(self.contexts.values().map(|context| context.retained).sum(), "references to primary contexts");
        leaks
    }
}
