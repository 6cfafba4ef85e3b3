//! The streams that use a block, other than its owner and its last writer.
//!
//! Most of these streams are ordered after the last writer. The exceptions are streams that were only
//! registered, and streams that are ordered only within a capture that has ended.

use smallvec::SmallVec;
use vrampool_backend::{CaptureId, Stream, StreamId};

/// Distinct streams; rarely more than one.
#[derive(Debug)]
pub(crate) struct Readers<S>(SmallVec<[Reader<S>; 1]>);

#[derive(Debug)]
struct Reader<S> {
    stream: S,
    /// Whether it is ordered after the last writer.
    is_behind: bool,
    /// The capture that contains all its uses; `None` if it may have used the block outside of a capture.
    capture: Option<CaptureId>,
}

impl<S> Default for Readers<S> {
    fn default() -> Self {
        Self(SmallVec::new())
    }
}

impl<S> Readers<S> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &S> + Clone {
        self.0.iter().map(|reader| &reader.stream)
    }
}

impl<S: Stream> Readers<S> {
    /// Adds a stream that uses the block, only in `capture` if that is set. Retired streams have finished, so
    /// they are removed: there are never more readers than streams.
    pub(crate) fn add(&mut self, stream: &S, is_behind: bool, capture: Option<CaptureId>) {
        self.0.retain(|reader| !reader.stream.is_retired());
        // Order within a graph does not hold between the streams.
        let is_behind = is_behind && capture.is_none();
        match self.0.iter_mut().find(|reader| reader.stream.id() == stream.id()) {
            Some(reader) => {
                reader.is_behind |= is_behind;
                reader.capture = reader.capture.filter(|known| Some(*known) == capture);
            }
            None => self.0.push(Reader { stream: stream.clone(), is_behind, capture }),
        }
    }

    /// Records that `writer` writes the block, ordered after its last writer, `before`, and all readers. In a
    /// capture the order holds only there, so the earlier users remain.
    pub(crate) fn written_after(&mut self, before: &S, writer: &S, capture: Option<CaptureId>) {
        if capture.is_none() {
            self.0.clear();
        } else if before.id() != writer.id() {
            self.0.retain(|reader| reader.stream.id() != writer.id());
            self.add(before, false, None);
        }
    }

    /// Whether all uses are part of `capture`.
    pub(crate) fn are_all_in(&self, capture: CaptureId) -> bool {
        self.0.iter().all(|reader| reader.capture == Some(capture))
    }

    /// Whether `stream` is a reader ordered after the last writer.
    pub(crate) fn is_behind(&self, stream: StreamId) -> bool {
        self.0.iter().any(|reader| reader.stream.id() == stream && reader.is_behind)
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
        let lasting = device.create_stream().expect("a stream");
        let mut readers = Readers::default();
        readers.add(&lasting, true, None);
        for _ in 0..50 {
            let stream = device.create_stream().expect("a stream");
            readers.add(&stream, false, None);
            assert!(readers.iter().any(|reader| reader.id() == stream.id()), "its work may not be done");
            stream.retire().expect("it has no work");
            assert!(readers.iter().count() <= 2);
        }
        assert!(readers.is_behind(lasting.id()));
    }
}
