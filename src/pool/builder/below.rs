//! Settings of a pool below another one.

use crate::environment::as_limit;
use crate::heap::Caps;
use crate::pool::Pool;
use crate::pool::builder::PoolBuilder;
use crate::pool::settings::Settings;
use vrampool_backend::{Backend, fork};

impl<B: Backend> PoolBuilder<B> {
    /// The settings of a child of `pool`: those of the pool, but its name, limit, initial bytes,
    /// share and whether idle memory is private.
    pub(crate) fn below(pool: &Pool<B>, name: String) -> Self {
        // Caps may have changed since the pool was built.
        let caps = match fork::is_forked() {
            // Its build fails.
            true => Caps::default(),
            false => pool.core().depot().accounts.caps,
        };
        let inherited = Settings {
            name: None,
            limit: None,
            budget: Some(caps.budget.into()),
            max_cached_bytes: Some(caps.max_cached_bytes.into()),
            max_buffers_per_bucket: Some(as_limit(caps.max_buffers_per_bucket)),
            initial: None,
            share: None,
            private: None,
            ..pool.handle.settings.clone()
        };
        let core = pool.core();
        Self {
            parent: Some(pool.clone()),
            hooks: core.hooks.iter().cloned().collect(),
            given: Settings { name: Some(name), ..Settings::default() },
            ..Self::new(&core.supply::<B>().device, inherited)
        }
    }
}
