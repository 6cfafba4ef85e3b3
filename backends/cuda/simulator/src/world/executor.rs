//! Workers: threads that run the operations of streams.
//!
//! A stream with an operation whose waits are over is *ready*, and a worker runs operations of it until one
//! has to wait. A stream whose first operation waits is noted at the stream that it waits for, which makes it
//! ready again. Workers are added while streams are ready and none is idle, because a worker may be held up
//! in a host function.

use super::{PROGRESS, World};
use crate::objects::stream::Operation;
use crate::objects::work::Work;
use crate::pages::TOUCHING;
use parking_lot::{Condvar, MutexGuard};
use std::cell::Cell;
use std::time::{Duration, Instant};

static READY: Condvar = Condvar::new();

const STACK: usize = 256 << 10;
const MOST_WORKERS: usize = 512;

impl World {
    /// Makes a stream ready, if its first operation can run; else notes what it waits for.
    pub(crate) fn schedule(&mut self, number: u64) {
        let Some(stream) = self.streams.get(&number) else { return };
        if stream.is_scheduled || stream.gates > 0 {
            return;
        }
        let Some(first) = stream.queue.front() else { return };
        let pending = first.waits.iter().find(|point| !self.is_done(point.stream, point.number)).copied();
        if let Some(point) = pending {
            if let Some(other) = self.streams.get_mut(&point.stream)
                && !other.waiters.contains(&number)
            {
                other.waiters.push(number);
            }
            return;
        }
        if let Some(stream) = self.streams.get_mut(&number) {
            stream.is_scheduled = true;
        }
        self.ready.push_back(number);
        // Workers that were notified and have not woken up are idle still, and their streams ready still.
        if self.ready.len() <= self.idle_workers {
            READY.notify_one();
        } else if self.workers < MOST_WORKERS {
            self.workers += 1;
            let worker = std::thread::Builder::new().name("simulated device".into()).stack_size(STACK);
            if worker.spawn(run).is_err() {
                self.workers -= 1;
            }
        }
    }
}

thread_local! {
    static IS_WORKER: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread is one of the driver's: a host function may not call the driver.
pub(crate) fn is_worker() -> bool {
    IS_WORKER.get()
}

fn run() {
    IS_WORKER.set(true);
    let mut world = World::lock();
    loop {
        let Some(number) = world.ready.pop_front() else {
            world.idle_workers += 1;
            READY.wait(&mut world);
            world.idle_workers -= 1;
            continue;
        };
        drain(&mut world, number);
    }
}

/// Runs operations of a stream until it is empty or has to wait.
fn drain(world: &mut MutexGuard<'static, World>, number: u64) {
    loop {
        let is_open = |world: &World| {
            world.streams.get(&number).is_some_and(|stream| {
                stream.gates == 0
                    && stream.queue.front().is_some_and(|first| {
                        first.waits.iter().all(|point| world.is_done(point.stream, point.number))
                    })
            })
        };
        let operation = match is_open(world) {
            true => world.streams.get_mut(&number).and_then(|stream| stream.queue.pop_front()),
            false => None,
        };
        let Some(operation) = operation else { break };
        perform(world, number, operation);
    }
    let Some(stream) = world.streams.get_mut(&number) else { return };
    stream.is_scheduled = false;
    if stream.queue.is_empty() && world.is_destroyed(number) {
        world.remove_stream(number);
    } else {
        world.schedule(number);
    }
}

fn perform(world: &mut MutexGuard<'static, World>, number: u64, operation: Operation) {
    let Some(context) = world.streams.get(&number).map(|stream| stream.context) else { return };
    // Work of a context that is lost is dropped.
    if !operation.work.is_nothing() && world.usable(context).is_ok() {
        match world.may_do(&operation.work, context) {
            Err(code) => world.lose(code),
            Ok(()) => {
                let lag = world.settings.lag;
                let touching = TOUCHING.read();
                MutexGuard::unlocked(world, || {
                    if lag > 0 {
                        std::thread::sleep(Duration::from_micros(fastrand::u64(..=lag)));
                    }
                    touch(&operation.work);
                    drop(touching);
                    run_host(&operation.work);
                });
            }
        }
    }
    if let Some(stamp) = operation.stamp {
        let _ = stamp.set(Instant::now());
    }
    let waiters = match world.streams.get_mut(&number) {
        Some(stream) => {
            stream.done = operation.number;
            std::mem::take(&mut stream.waiters)
        }
        None => Vec::new(),
    };
    for waiter in waiters {
        world.schedule(waiter);
    }
    if world.sleepers > 0 {
        PROGRESS.notify_all();
    }
}

/// Does the part of the work that touches memory, which was found accessible.
fn touch(work: &Work) {
    match work {
        Work::Nothing | Work::Host { .. } | Work::Callback { .. } | Work::Mark { .. } => {}
        Work::Fill { address, value, count } => fill(*address, value, *count),
        Work::Copy { to, from, bytes, .. } => copy(*to, *from, *bytes),
        Work::Upload { to, bytes } => copy(*to, bytes.as_ptr() as u64, bytes.len() as u64),
        Work::Kernel { kernel, arguments } => (kernel.run)(arguments),
        Work::Graph(graph) => graph.nodes.iter().for_each(|node| {
            touch(&node.work);
            run_host(&node.work);
        }),
    }
}

/// Does the part of the work that is the program's own.
fn run_host(work: &Work) {
    match work {
        Work::Host { function, argument } => function(std::ptr::with_exposed_provenance_mut(*argument)),
        Work::Callback { function, stream, argument } => {
            function(*stream, 0, std::ptr::with_exposed_provenance_mut(*argument));
        }
        _ => {}
    }
}

fn fill(address: u64, value: &[u8], count: u64) {
    if let [byte] = value {
        let start = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
        // SAFETY: the range was found accessible when the operation began, and stays mapped while it runs,
        // because unmapping waits for all running operations. The detector reports races of the program.
        unsafe { start.write_bytes(*byte, count as usize) };
        return;
    }
    for index in 0..count {
        copy(address + index * value.len() as u64, value.as_ptr() as u64, value.len() as u64);
    }
}

fn copy(to: u64, from: u64, bytes: u64) {
    let source = std::ptr::with_exposed_provenance::<u8>(from as usize);
    let target = std::ptr::with_exposed_provenance_mut::<u8>(to as usize);
    // SAFETY: as in `fill`; memory of the host outside the driver's is the program's to keep until the copy
    // is done.
    unsafe { std::ptr::copy(source, target, bytes as usize) };
}
