//! `Uses` and `Order` against a naive twin: a list of all work, in which each piece of work, when it runs, looks
//! whether everything before it is done that must be.

use super::markers::Markers;
use super::order::{Freed, Need, Order, WaitFor};
use super::ticks::{FreedIn, Ticks};
use super::uses::{Access, Streams, Uses};
use crate::host::{Call, HostDevice, HostStream};
use parking_lot::Mutex;
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use vrampool_backend::{Backend, Stream, StreamId};

const CELLS: usize = 4;
const STREAMS: usize = 4;

/// A piece of work on a cell.
struct Work {
    cell: usize,
    stream: StreamId,
    access: Access,
    is_done: Arc<AtomicBool>,
}

struct Cell {
    uses: Uses<HostStream>,
    /// The tick of the free, while it is free.
    freed: Option<u64>,
}

struct Owner {
    device: HostDevice,
    locked: Mutex<(Markers<HostDevice>, Ticks)>,
}

impl Order<HostDevice> for Owner {
    fn device(&self) -> &HostDevice {
        &self.device
    }

    fn with_markers<T>(&self, act: impl FnOnce(&mut Markers<HostDevice>, &mut Ticks) -> T) -> T {
        let (markers, ticks) = &mut *self.locked.lock();
        act(markers, ticks)
    }
}

struct Scene {
    /// Dropped first: streams that are dropped wait for the stalled work.
    stalled: Vec<Sender<()>>,
    owner: Owner,
    streams: [HostStream; STREAMS],
    cells: Vec<Cell>,
    work: Vec<Work>,
    early: Arc<AtomicU64>,
}

impl Scene {
    fn new() -> Self {
        let device = HostDevice::new();
        let streams = std::array::from_fn(|_| device.create_stream().expect("a stream"));
        let cell = |nth| Cell { uses: Uses::new(HostStream::clone(&streams[nth])), freed: None };
        let cells = (0..CELLS).map(cell).collect();
        let owner = Owner { device, locked: Mutex::new((Markers::new(), Ticks::from_one())) };
        Self { stalled: Vec::new(), owner, streams, cells, work: Vec::new(), early: Arc::default() }
    }

    /// Launches work that counts the earlier work in its way which is not done. Work that the program itself
    /// orders, `is_ordered` not by us, looks at nothing.
    fn launch(&mut self, cell: usize, stream: usize, access: Access, is_ordered: bool) {
        let conflicts = |work: &&Work| {
            work.cell == cell && (access == Access::Write || work.access == Access::Write) && is_ordered
        };
        let before: Vec<_> =
            self.work.iter().filter(conflicts).map(|work| Arc::clone(&work.is_done)).collect();
        let (is_done, early) = (Arc::new(AtomicBool::new(false)), Arc::clone(&self.early));
        let stream = &self.streams[stream];
        self.work.push(Work { cell, stream: stream.id(), access, is_done: Arc::clone(&is_done) });
        let kernel = move |[]: [&[u8]; 0], []: [&mut [u8]; 0]| {
            let open = before.iter().filter(|work| !work.load(Ordering::Acquire)).count();
            early.fetch_add(open as u64, Ordering::Relaxed);
            is_done.store(true, Ordering::Release);
        };
        stream.launch([], [], kernel).expect("queued");
    }

    /// Uses a live cell on a stream. Nothing happens if the device refuses.
    fn touch(&mut self, cell: usize, stream: usize, access: Access) {
        let to = self.streams[stream].clone();
        let users = self.cells[cell].uses.before(&to, access);
        let need = Need { requested: 1, class: 1 };
        let users = users.iter().map(|user| (user, None));
        if let Ok((_, capture)) = need.before(&self.owner.device, users, &to, WaitFor::Data) {
            match access {
                Access::Read => self.cells[cell].uses.read_by(&to, capture),
                Access::Write => self.cells[cell].uses.written_by(&to, capture),
            }
            self.launch(cell, stream, access, true);
        }
    }

    fn free(&mut self, cell: usize) {
        let users = self.cells[cell].uses.users();
        let tick = self.owner.with_markers(|_, ticks| ticks.begin());
        self.cells[cell].freed = Some(tick);
        self.owner.freed(&Freed { users, tick, bytes: 1, freed_in: FreedIn::Arena });
    }

    /// Gives a free cell to a stream, which waits for what is not known to be before it.
    fn take(&mut self, cell: usize, stream: usize, tick: u64) {
        let to = self.streams[stream].clone();
        let users = self.cells[cell].uses.users();
        let awaited = users.iter().map(|user| (user.clone(), tick)).collect();
        let need = Need { requested: 1, class: 1 };
        let Ok(waits) = self.owner.before(&awaited, &to, need) else { return };
        let others = users.iter().filter(|user| user.id() != to.id()).count() as u64;
        assert!(waits <= others, "{waits} waits for {others} streams");
        self.owner.with_markers(|_, ticks| ticks.reused(users[0].id(), FreedIn::Arena, tick, 1));
        self.cells[cell].uses.written_by(&to, None);
        self.cells[cell].freed = None;
        self.launch(cell, stream, Access::Write, true);
    }

    /// Work that is known to be complete is complete, and bytes in flight do not exceed free bytes.
    fn check(&self) {
        for (nth, cell) in self.cells.iter().enumerate() {
            let Some(tick) = cell.freed else { continue };
            let known = self.owner.with_markers(|_, ticks| {
                cell.uses
                    .ids()
                    .into_iter()
                    .filter(|user| ticks.are_done(*user, tick))
                    .collect::<BTreeSet<_>>()
            });
            let is_of = |work: &&Work| work.cell == nth && known.contains(&work.stream);
            assert!(self.work.iter().filter(is_of).all(|work| work.is_done.load(Ordering::Acquire)));
        }
        let free = self.cells.iter().filter(|cell| cell.freed.is_some()).count() as u64;
        assert!(self.owner.with_markers(|_, ticks| ticks.in_flight()) <= free);
    }

    fn step(&mut self, (step, cell, stream): (u8, usize, usize)) {
        match (step, self.cells[cell].freed) {
            (0..6, None) => self.touch(cell, stream, if step < 4 { Access::Read } else { Access::Write }),
            (6..8, None) => {
                self.launch(cell, stream, Access::Read, false);
                self.cells[cell].uses.recorded_on(&self.streams[stream]);
            }
            (8..12, None) => self.free(cell),
            (0..12, Some(tick)) => self.take(cell, stream, tick),
            (12..14, _) => {
                let (go, signal) = channel::<()>();
                let kernel = move |[]: [&[u8]; 0], []: [&mut [u8]; 0]| _ = signal.recv();
                self.streams[stream].launch([], [], kernel).expect("queued");
                self.stalled.push(go);
            }
            (14..16, _) => {
                self.stalled.clear();
                self.owner.device.synchronize(&self.streams[stream]).expect("no fault");
            }
            (16..18, _) => self.owner.poll(),
            (18, freed) => {
                let users: Streams<_> = self.cells[cell].uses.users();
                // Of free memory: users of live memory may still begin work on it in that tick.
                if freed.is_some() {
                    let tick = self.owner.with_markers(|_, ticks| ticks.begin());
                    self.owner.ask(users, tick);
                }
            }
            _ => {
                let call = [Call::Record, Call::Wait, Call::Query][cell % 3];
                self.owner.device.faults().fail_nth(call, 1 + stream as u64 % 2);
            }
        }
    }
}

/// Work never runs before what it must follow, whatever the device refuses.
#[test]
fn no_work_runs_before_what_it_must_follow() {
    let steps = prop::collection::vec((0..20u8, 0..CELLS, 0..STREAMS), 1..120);
    proptest!(|(steps in steps)| {
        let mut scene = Scene::new();
        for step in steps {
            scene.step(step);
            scene.check();
        }
        scene.owner.device.faults().clear();
        scene.stalled.clear();
        scene.streams.iter().for_each(|stream| scene.owner.device.synchronize(stream).expect("no fault"));
        prop_assert_eq!(scene.early.load(Ordering::Relaxed), 0);
        scene.owner.poll();
        scene.check();
    });
}

/// The twin of a cell's uses is a list of all of them, in order.
#[test]
fn uses_are_those_since_the_last_write() {
    let device = HostDevice::new();
    let streams: [HostStream; STREAMS] = std::array::from_fn(|_| device.create_stream().expect("a stream"));
    let steps = prop::collection::vec((0..4u8, 0..STREAMS), 0..40);
    proptest!(|(steps in steps)| {
        let mut uses = Uses::new(streams[0].clone());
        // The stream, whether it wrote, and whether it came after the writer.
        let mut twin = vec![(streams[0].id(), true, true)];
        for (step, stream) in steps {
            let (stream, id) = (&streams[stream], streams[stream].id());
            match step {
                0 => uses.written_by(stream, None),
                1 => uses.read_by(stream, None),
                2 => uses.recorded_on(stream),
                _ => uses = uses.clone(),
            }
            if step < 3 {
                twin.push((id, step == 0, step != 2));
            }
            let last = twin.iter().rposition(|(_, wrote, _)| *wrote).expect("one wrote");
            let users: BTreeSet<_> = twin[last..].iter().map(|(user, ..)| *user).collect();
            let writer = twin[last].0;
            prop_assert_eq!(uses.ids().into_iter().collect::<BTreeSet<_>>(), users.clone());
            prop_assert_eq!((uses.writer.id(), uses.ids().len()), (writer, users.len()));
            prop_assert_eq!((uses.is_shared(), uses.only_user().is_none()), (users.len() > 1, users.len() > 1));
            for to in &streams {
                let is_behind = twin[last..].iter().any(|(user, _, behind)| *user == to.id() && *behind);
                let before = |access| uses.before(to, access).iter().map(Stream::id).collect::<BTreeSet<_>>();
                let others: BTreeSet<_> = users.iter().copied().filter(|user| *user != to.id()).collect();
                prop_assert_eq!(before(Access::Write), others);
                prop_assert_eq!(before(Access::Read), [writer].into_iter().filter(|_| !is_behind).collect());
            }
        }
    });
}
