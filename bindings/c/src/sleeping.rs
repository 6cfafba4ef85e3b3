//! The sleeps and wakes of a pool, and its memory by tag, in metrics.

use crate::pool::CPool;
use std::sync::Arc;
use vrampool::any::AnyDevice;
use vrampool::telemetry::{Owner, OwnerFigures, Watch, WatchArc};
use vrampool_sleep::figures_of;

/// A pool that can sleep.
pub(crate) struct Sleeping(Arc<CPool>);

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
        figures(&self.0)
    }

    fn watch(&self) -> impl Watch + 'static {
        WatchArc::new(&self.0, figures)
    }
}

fn figures(pool: &CPool) -> OwnerFigures {
    let tags = pool.tags_and_graphs();
    let arenas = tags.iter().filter_map(|tagged| Some((&*tagged.tag, tagged.arena.as_ref()?)));
    figures_of(arenas, &pool.sleep_counts.lock())
}
