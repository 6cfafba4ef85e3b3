//! The sleeps and wakes of a pool, and its memory by tag, in metrics.

use crate::pool::CPool;
use std::sync::{Arc, Weak};
use vrampool::any::AnyDevice;
use vrampool::telemetry::{Observed, Owner, OwnerFigures, Watch};
use vrampool_sleep::figures_of;

/// A pool that can sleep.
pub(crate) struct Sleeping(Arc<CPool>);

struct Watched(Weak<CPool>);

impl Sleeping {
    /// Returns `None` for a pool without virtual memory, which cannot sleep.
    pub(crate) fn of(pool: Arc<CPool>) -> Option<Self> {
        pool.main.arena.is_some().then_some(Self(pool))
    }

    #[cfg(test)]
    pub(crate) fn pool(&self) -> &CPool {
        &self.0
    }
}

impl Owner for Sleeping {
    type Device = AnyDevice;

    const LABEL: &'static str = "sleeper";

    fn name(&self) -> &str {
        self.0.main.pool.name()
    }

    fn device(&self) -> &AnyDevice {
        &self.0.home.device
    }

    fn figures(&self) -> OwnerFigures {
        let tags = self.0.tags_and_graphs();
        let arenas = tags.iter().filter_map(|tagged| Some((&*tagged.tag, tagged.arena.as_ref()?)));
        figures_of(arenas, &self.0.sleep_counts.lock())
    }

    fn watch(&self) -> impl Watch + 'static {
        Watched(Arc::downgrade(&self.0))
    }
}

impl Watch for Watched {
    fn observe(&mut self) -> Observed {
        let Some(pool) = self.0.upgrade() else { return Observed::Ended(None) };
        let sleeping = Sleeping(pool);
        let figures = sleeping.figures();
        Observed::There(figures, Arc::into_inner(sleeping.0).map(|last| Box::new(last) as _))
    }

    fn is_there(&self) -> bool {
        self.0.strong_count() > 0
    }

    fn place(&self) -> usize {
        self.0.as_ptr().addr()
    }
}
