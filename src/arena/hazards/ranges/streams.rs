//! A set of streams.

use smallvec::SmallVec;
use vrampool_backend::Stream;

/// Streams, each once; rarely more than two.
pub(crate) type Streams<S> = SmallVec<[S; 2]>;

/// Adds a stream unless it is present.
pub(crate) fn add<S: Stream>(streams: &mut Streams<S>, stream: &S) {
    if streams.iter().all(|known| known.id() != stream.id()) {
        streams.push(stream.clone());
    }
}
