//! Several streams, each once.

use smallvec::SmallVec;
use vrampool_backend::Stream;

/// Streams, each once; hardly ever more than two.
pub(crate) type Streams<S> = SmallVec<[S; 2]>;

/// Adds a stream that is not among them.
pub(crate) fn add<S: Stream>(streams: &mut Streams<S>, stream: &S) {
    if streams.iter().all(|known| known.id() != stream.id()) {
        streams.push(stream.clone());
    }
}
