//! Points in the work of streams, from when memory that several of them used was freed: whoever gets it waits for such a point, and
//! not for all that those streams were given since. So a program that runs ahead of the device goes on to overlap what its streams
//! do, with the memory that it had before.

use smallvec::SmallVec;
use std::collections::VecDeque;
use std::sync::Arc;
use vrampool_backend::{Backend, StreamId};

/// How many are kept, of all streams together. A stream of which none is kept is waited for as it is at that moment.
const MARKS: usize = 128;

/// An event behind all that a stream did until an era was over.
#[derive(Debug)]
pub(super) struct Mark<B: Backend> {
    pub(super) stream: StreamId,
    pub(super) era: u64,
    pub(super) event: Arc<B::Event>,
}

impl<B: Backend> Clone for Mark<B> {
    fn clone(&self) -> Self {
        Self { stream: self.stream, era: self.era, event: Arc::clone(&self.event) }
    }
}

type Point<B> = (<B as Backend>::Stream, Option<Mark<B>>);

/// Streams that are to be waited for, each with the point that is far enough, if there is one.
#[derive(Debug)]
pub(super) struct Before<B: Backend> {
    pub(super) streams: SmallVec<[Point<B>; 1]>,
    /// The era that was over when they were asked, for those without.
    pub(super) era: u64,
}

/// The latest ones, in no order.
#[derive(Debug)]
pub(super) struct Marks<B: Backend>(VecDeque<Mark<B>>);

impl<B: Backend> Marks<B> {
    pub(super) fn new() -> Self {
        Self(VecDeque::new())
    }

    /// Answers one that is to be dropped without the lock.
    pub(super) fn add(&mut self, mark: Mark<B>) -> Option<Mark<B>> {
        let oldest = if self.0.len() < MARKS { None } else { self.0.pop_front() };
        self.0.push_back(mark);
        oldest
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The earliest of each stream.
    pub(super) fn first_ones(&self) -> SmallVec<[Mark<B>; 4]> {
        let mut first: SmallVec<[&Mark<B>; 4]> = SmallVec::new();
        for mark in &self.0 {
            match first.iter_mut().find(|first| first.stream == mark.stream) {
                Some(first) if first.era <= mark.era => {}
                Some(first) => *first = mark,
                None => first.push(mark),
            }
        }
        first.into_iter().cloned().collect()
    }

    /// Takes those out that its stream passed before that one, and that one: to be dropped without the lock.
    pub(super) fn take_until(&mut self, passed: &Mark<B>) -> Vec<Mark<B>> {
        let is_passed = |mark: &&Mark<B>| mark.stream == passed.stream && mark.era <= passed.era;
        let gone = self.0.iter().filter(is_passed).cloned().collect();
        self.0.retain(|mark| !is_passed(&mark));
        gone
    }

    /// The earliest point of a stream that is behind what it freed in that era.
    pub(super) fn behind(&self, stream: StreamId, era: u64) -> Option<&Mark<B>> {
        let behind = self.0.iter().filter(|mark| mark.stream == stream && mark.era >= era);
        behind.min_by_key(|mark| mark.era)
    }
}

#[cfg(test)]
mod tests {
    use crate::DeviceArena;
    use crate::host::HostDevice;
    use std::sync::mpsc::channel;
    use vrampool_backend::Backend;

    /// One that was begun before a resize is put among those of the next range.
    #[test]
    fn a_mark_is_behind_nothing_that_was_freed_after_it_was_made() {
        const BYTES: u64 = 1 << 16;
        let device = HostDevice::new();
        let [writer, reader] = [(); 2].map(|()| device.create_stream().expect("a stream"));
        let arena = DeviceArena::builder(&device).limit(BYTES).build().expect("an arena");
        let free = || {
            let block = arena.allocate(BYTES, &writer).expect("memory");
            block.used_on(&reader).expect("no fault");
        };
        (0..9).for_each(|_| free());
        let era = arena.shared.state.lock().unsettled.begin_era();
        arena.resize(BYTES).expect("memory");
        arena.shared.mark(&reader, era);
        device.synchronize(&reader).expect("no fault");
        let (go, told) = channel::<()>();
        let kernel = move |[]: [&[u8]; 0], []: [&mut [u8]; 0]| _ = told.recv();
        reader.launch([], [], kernel).expect("queued");
        free();
        let waits = arena.stream_waits();
        let _next = arena.allocate(BYTES, &writer).expect("memory");
        assert_eq!(arena.stream_waits(), waits + 1, "the reader is not done with it");
        go.send(()).expect("it listens");
    }
}
