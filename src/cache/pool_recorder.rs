//! The optional recorder of a pool, and the lists that the pool would have without it.
//!
//! Without the feature `trace` no pool has a recorder.

use crate::cache::magazine::class_table::ClassTable;
use crate::cache::size_class::SizeClasses;
#[cfg(feature = "trace")]
use crate::recorder::{Recorder, WeakRecorder};
use vrampool_backend::spi::Hooks;

/// The recorder that a pool's handles keep alive, if any.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordedBy(#[cfg(feature = "trace")] Option<Recorder>);

/// A weak reference to the recorder, in a pool's shared state. It does not keep the recorder alive, because
/// threads keep a pool's shared state as long as they live.
#[derive(Debug, Default)]
pub(crate) struct PoolRecorder(#[cfg(feature = "trace")] pub(super) Option<Recording>);

/// The recorder, and the lists that the pool would have without it.
#[cfg(feature = "trace")]
#[derive(Debug)]
pub(super) struct Recording {
    pub(super) number: u64,
    pub(super) recorder: WeakRecorder,
    /// `None` with hooks, which see every request.
    pub(super) lists: Option<ClassTable>,
}

impl RecordedBy {
    #[cfg(feature = "trace")]
    pub(crate) fn new(recorder: &Recorder) -> Self {
        Self(Some(recorder.clone()))
    }

    /// Returns the class table of a pool with this recorder, and the pool's reference to the recorder.
    pub(crate) fn class_table(
        &self,
        hooks: &Hooks,
        classes: &SizeClasses,
        largest: u64,
    ) -> (ClassTable, PoolRecorder) {
        let is_watched = !hooks.is_empty();
        #[cfg(feature = "trace")]
        if let Some(recorder) = &self.0 {
            let (lists, own) = match is_watched {
                true => (ClassTable::watched(largest), None),
                false => (ClassTable::recorded(classes, largest), Some(ClassTable::new(classes, largest))),
            };
            let (number, recorder) = (recorder.number(), recorder.downgrade());
            return (lists, PoolRecorder(Some(Recording { number, recorder, lists: own })));
        }
        let lists = if is_watched { ClassTable::watched(largest) } else { ClassTable::new(classes, largest) };
        (lists, PoolRecorder::default())
    }
}
