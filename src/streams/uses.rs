//! The users of live or free bytes: the last writer, and the streams that read them since.
//!
//! Most readers are ordered after the writer. The exceptions are streams that were only registered, and streams
//! that are ordered only within a capture that has ended.

use parking_lot::Mutex;
use smallvec::SmallVec;
use std::mem;
use std::sync::OnceLock;
use vrampool_backend::{CaptureId, Stream, StreamId};

/// Streams, each once; rarely more than two.
pub(crate) type Streams<S> = SmallVec<[S; 2]>;

/// Adds a stream unless it is present.
pub(crate) fn add<S: Stream>(streams: &mut Streams<S>, stream: &S) {
    if streams.iter().all(|known| known.id() != stream.id()) {
        streams.push(stream.clone());
    }
}

/// Streams to wait for, each once, with the tick of its last free; 0 if that is not known.
pub(crate) type AwaitedUsers<S> = SmallVec<[(S, u64); 1]>;

/// Adds a stream, or raises its tick.
pub(crate) fn await_also<S: Stream>(awaited: &mut AwaitedUsers<S>, stream: &S, tick: u64) {
    match awaited.iter_mut().find(|(known, _)| known.id() == stream.id()) {
        Some((_, known)) => *known = tick.max(*known),
        None => awaited.push((stream.clone(), tick)),
    }
}

/// The kind of a stream's access to bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

#[derive(Debug)]
pub(crate) struct Uses<S> {
    /// The other users since the last write. Unset until the first one: more than one user is rare.
    readers: OnceLock<Box<Mutex<Readers<S>>>>,
    /// The stream that last allocated, wrote or moved the bytes, ordered after all earlier users.
    pub(crate) writer: S,
}

type Readers<S> = SmallVec<[Reader<S>; 1]>;

#[derive(Debug, Clone)]
struct Reader<S> {
    stream: S,
    /// Whether it is ordered after the writer.
    is_behind: bool,
    /// The capture that contains all its uses; `None` if it may have used the bytes outside of a capture.
    capture: Option<CaptureId>,
}

impl<S: Clone> Clone for Uses<S> {
    fn clone(&self) -> Self {
        let readers = self.readers.get().map(|readers| Box::new(Mutex::new(readers.lock().clone())));
        Self { readers: readers.map_or_else(OnceLock::new, OnceLock::from), writer: self.writer.clone() }
    }
}

impl<S> Uses<S> {
    #[inline(always)]
    pub(crate) fn new(writer: S) -> Self {
        Self { readers: OnceLock::new(), writer }
    }

    /// Whether the writer is the only user, and was since it wrote.
    #[inline]
    pub(crate) fn is_sole(&self) -> bool {
        self.readers.get().is_none()
    }

    /// Returns the writer of bytes with a [sole](Self::is_sole) user.
    #[inline]
    pub(crate) fn into_sole(self) -> S {
        // There are none, so nothing is leaked.
        mem::forget(self.readers);
        self.writer
    }

    /// Whether streams other than the writer use the bytes.
    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.readers.get().is_some_and(|readers| !readers.lock().is_empty())
    }

    /// Returns the writer if there is no other user.
    #[inline]
    pub(crate) fn only_user(&self) -> Option<&S> {
        (!self.is_shared()).then_some(&self.writer)
    }

    /// Calls `visit` for each user, the writer last.
    #[inline]
    pub(crate) fn each(&self, mut visit: impl FnMut(&S)) {
        if let Some(readers) = self.readers.get() {
            readers.lock().iter().for_each(|reader| visit(&reader.stream));
        }
        visit(&self.writer);
    }
}

impl<S: Stream> Uses<S> {
    /// All users, the writer last.
    pub(crate) fn users(&self) -> Streams<S> {
        let mut users = Streams::new();
        self.each(|user| users.push(user.clone()));
        users
    }

    /// As [`users`](Self::users), but their ids.
    pub(crate) fn ids(&self) -> SmallVec<[StreamId; 2]> {
        let mut ids = SmallVec::new();
        self.each(|user| ids.push(user.id()));
        ids
    }

    /// Returns the streams that `stream` must wait for before it reads or writes the bytes.
    pub(crate) fn before(&self, stream: &S, access: Access) -> Streams<S> {
        let mut users = match access {
            Access::Write => self.users(),
            Access::Read if self.is_behind(stream.id()) => Streams::new(),
            Access::Read => [self.writer.clone()].into_iter().collect(),
        };
        users.retain(|user| user.id() != stream.id());
        users
    }

    /// Whether `stream` is a reader ordered after the writer.
    fn is_behind(&self, stream: StreamId) -> bool {
        let is_behind = |reader: &Reader<S>| reader.stream.id() == stream && reader.is_behind;
        self.readers.get().is_some_and(|readers| readers.lock().iter().any(is_behind))
    }

    /// Records a read by `stream`, ordered after the writer; only within `capture`, if set.
    pub(crate) fn read_by(&self, stream: &S, capture: Option<CaptureId>) {
        // Order within a graph does not hold between the streams.
        self.add(stream, capture.is_none(), capture);
    }

    /// Records a use by `stream` without any order.
    pub(crate) fn recorded_on(&self, stream: &S) {
        self.add(stream, false, None);
    }

    /// Retired streams have finished, so they are removed: there are never more readers than streams.
    fn add(&self, stream: &S, is_behind: bool, capture: Option<CaptureId>) {
        if stream.id() == self.writer.id() {
            return;
        }
        let mut readers = self.readers.get_or_init(Box::default).lock();
        readers.retain(|reader| !reader.stream.is_retired());
        match readers.iter_mut().find(|reader| reader.stream.id() == stream.id()) {
            Some(reader) => {
                reader.is_behind |= is_behind;
                reader.capture = reader.capture.filter(|known| Some(*known) == capture);
            }
            None => readers.push(Reader { stream: stream.clone(), is_behind, capture }),
        }
    }

    /// Makes `stream` the writer, ordered after all users: a wait for it includes them. In a capture the order
    /// holds only there, so the earlier users remain.
    pub(crate) fn written_by(&mut self, stream: &S, capture: Option<CaptureId>) {
        if capture.is_none() {
            self.forget_readers();
        }
        if stream.id() != self.writer.id() {
            let before = mem::replace(&mut self.writer, stream.clone());
            if let Some(readers) = self.readers.get_mut() {
                readers.get_mut().retain(|reader| reader.stream.id() != stream.id());
            }
            if capture.is_some() {
                self.recorded_on(&before);
            }
        }
    }

    /// The writer is ordered after all readers.
    #[inline]
    pub(crate) fn forget_readers(&mut self) {
        if !self.is_sole() {
            self.readers = OnceLock::new();
        }
    }

    /// Whether all reads since the last write are part of `capture`.
    pub(crate) fn are_reads_in(&self, capture: CaptureId) -> bool {
        let is_in = |reader: &Reader<S>| reader.capture == Some(capture);
        self.readers.get().is_none_or(|readers| readers.lock().iter().all(is_in))
    }
}

#[cfg(all(test, feature = "host"))]
mod tests {
    use super::*;
    use vrampool_backend::Backend;
    use vrampool_host::HostDevice;

    #[test]
    fn streams_that_were_retired_are_not_kept_for_longer_than_until_the_next_one() {
        let device = HostDevice::builder().memory_limit(1 << 20).build();
        let [writer, lasting] = [(); 2].map(|()| device.create_stream().expect("a stream"));
        let uses = Uses::new(writer);
        uses.read_by(&lasting, None);
        for _ in 0..50 {
            let stream = device.create_stream().expect("a stream");
            uses.recorded_on(&stream);
            assert!(uses.ids().contains(&stream.id()), "its work may not be done");
            stream.retire().expect("it has no work");
            assert!(uses.ids().len() <= 3);
        }
        assert!(uses.before(&lasting, Access::Read).is_empty());
    }
}
