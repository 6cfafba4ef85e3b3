//! Builds a pool from its settings: resolves what depends on the device and on other settings.

use super::{BUDGET_FRACTION, MAGAZINES_TO_A_CAP, PoolBuilder, VIRTUAL_CACHED, VIRTUAL_CLASS};
use crate::environment;
use crate::environment::{UNLIMITED, as_limit};
use crate::error::Error;
use crate::heap::arena::{ArenaBuilder, DeviceArena};
use crate::heap::caps::Caps;
use crate::heap::core::PoolCore;
use crate::heap::size_class::SizeClasses;
use crate::heap::supply::Supply;
use crate::initial::Initial;
use crate::overlap::Overlap;
use crate::pool::Pool;
use crate::pool::settings::PoolSettings;
use crate::source::Source;
use std::sync::Arc;
use vrampool_backend::spi::{Hooks, Ledger};
use vrampool_backend::{Backend, Capabilities, DeviceKind, Hook, MemoryKind, fork, logging};

impl<B: Backend> PoolBuilder<B> {
    /// Makes the pool. Only an arena of fixed size and [`initial`](Self::initial) allocate memory at this time.
    ///
    /// # Errors
    /// [`Error::Configuration`] for invalid settings; with [`Source::Arena`] and [`Source::Virtual`] those of
    /// [`ArenaBuilder::build`](crate::arena::ArenaBuilder::build).
    pub fn build(self) -> Result<Pool<B>, Error> {
        fork::opening()?;
        let source = self.resolved_source()?;
        let is_virtual = source == Source::Virtual;
        let classes = self.setting(|of| of.size_classes.clone().or(of.large_bucket.map(classes_of)));
        let classes = classes.unwrap_or(match is_virtual {
            true => SizeClasses::Tight,
            false => SizeClasses::default(),
        });
        classes.validate()?;
        let mut defaults = Caps::default();
        if is_virtual {
            (defaults.max_cached_bytes, defaults.cached_class) = (VIRTUAL_CACHED, VIRTUAL_CLASS);
            defaults.max_buffers_per_bucket = UNLIMITED;
        }
        let above = self.parent.as_ref().map(|pool| {
            let depot = pool.core().depot();
            (depot.accounts.caps, depot.accounts.least_limit())
        });
        let own_or =
            |own: Option<u64>, of: fn(&Caps) -> u64| above.as_ref().map(|(caps, _)| of(caps)).or(own);
        let max_cached_bytes = own_or(self.setting(|of| of.max_cached_bytes), |caps| caps.max_cached_bytes);
        let max_cached_bytes = max_cached_bytes.unwrap_or(defaults.max_cached_bytes);
        let limit = self.setting(|of| of.limit).unwrap_or(defaults.limit);
        let least_limit = limit.min(above.map_or(UNLIMITED, |(_, least)| least));
        let (share, is_private) = (self.share, self.is_private);
        if self.parent.is_none() && (share > 0 || is_private) {
            let (field, value) =
                if is_private { ("private", "true".into()) } else { ("share", share.to_string()) };
            let reason = "the pool is no child of another one; make it by `Pool::child`";
            return Err(Error::configuration(field, value, reason));
        }
        let max_buffers = self.setting(|of| of.max_buffers_per_bucket);
        let magazines = if is_virtual { MAGAZINES_TO_A_CAP / 8 } else { MAGAZINES_TO_A_CAP };
        let magazine_bytes = defaults.magazine_bytes.min(max_cached_bytes.min(least_limit) / magazines);
        let mut caps = Caps {
            max_cached_bytes,
            max_buffers_per_bucket: max_buffers.unwrap_or(defaults.max_buffers_per_bucket),
            cached_class: self.cached_class.unwrap_or(defaults.cached_class),
            limit,
            magazine_bytes: self.magazine_bytes.unwrap_or(magazine_bytes),
            magazine_class: self.magazine_class.unwrap_or(defaults.magazine_class),
            overlap: self.resolved_overlap(),
            budget: own_or(self.budget, |caps| caps.budget).unwrap_or_else(|| self.default_budget()),
        };
        if is_private {
            (caps.max_cached_bytes, caps.max_buffers_per_bucket) = (UNLIMITED, UNLIMITED);
            (caps.cached_class, caps.magazine_bytes) = (UNLIMITED, 0);
        }
        let kind = self.kind.unwrap_or_else(|| self.device.properties().preferred_placement().into());
        if let Some(initial) = self.given.initial.filter(|_| !is_virtual || self.arena.is_some()) {
            return Err(Error::configuration(
                "initial",
                initial.to_string(),
                "it needs the virtual source and the pool's own arena; set that source, or the arena's `initial_bytes`",
            ));
        }
        let ledger = match &self.parent {
            Some(pool) => pool.core().supply::<B>().ledger.named_child(&self.name, as_limit(caps.limit)),
            None => Ledger::named(&self.name, as_limit(caps.limit)),
        };
        let above = self.parent.as_ref().and_then(|pool| pool.arena().filter(|of| !of.is_growing()));
        let above = above.filter(|of| self.arena.is_none() && source == Source::Arena && of.kind() == kind);
        let arena = match (source, above) {
            (Source::Direct, _) => None,
            (Source::Driver, _) => self.check_driver_pool().map(|()| None)?,
            (Source::Arena, Some(of_parent)) => Some(of_parent.clone()),
            _ => Some(self.arena_for(source, kind, (&caps, least_limit), &ledger)?),
        };
        let hooks = with_own_names(self.hooks)?;
        let is_of_parent = above.is_some();
        let owns_arena = self.arena.is_none() && !is_of_parent;
        let id = self.device.id();
        let (device, addresses_stay) = (self.device.clone(), self.addresses_stay);
        let piece_bytes = self.piece_bytes.unwrap_or(UNLIMITED);
        let supply = Supply {
            device,
            source,
            arena: arena.clone(),
            owns_arena,
            is_of_parent,
            addresses_stay,
            piece_bytes,
            ledger,
        };
        let parent = self.parent.map(|pool| (Arc::clone(pool.core()), is_private));
        let core =
            PoolCore::new(self.name, kind, caps, classes, self.borrow_classes, hooks, (supply, parent));
        let core = core.ok_or_else(|| {
            Error::configuration(
                "arena",
                id.to_string(),
                "the arena serves, or served, another pool, and an arena serves only one; build one for this pool",
            )
        })?;
        arena.iter().filter(|_| !is_of_parent).for_each(DeviceArena::restart_reserved_peak);
        let pool = Pool::of_core(core);
        if share > 0 {
            pool.set_share(share)?;
        }
        Ok(pool)
    }

    /// Returns a setting: its argument, or that of the environment.
    fn setting<T>(&self, of: impl Fn(&PoolSettings) -> Option<T>) -> Option<T> {
        of(&self.given).or_else(|| of(&self.environment))
    }

    pub(crate) fn resolved_overlap(&self) -> Overlap {
        self.setting(|of| of.overlap).unwrap_or_default()
    }

    /// Bytes to map at first, as given, or as read from the environment, within the limit.
    pub(crate) fn initial_bytes(&self, given: Option<Initial>) -> u64 {
        let total = self.device.properties().total_bytes;
        let limit = self.setting(|of| of.limit).unwrap_or(UNLIMITED);
        let of_environment = || self.environment.initial.unwrap_or_default().bytes_of(total).min(limit);
        given.map_or_else(of_environment, |initial| initial.bytes_of(total))
    }

    /// The source that is set, or that of the arena that is.
    fn resolved_source(&self) -> Result<Source, Error> {
        let of_arena = |arena: &DeviceArena<B>| match arena.is_growing() {
            true => Source::Virtual,
            false => Source::Arena,
        };
        match (self.given.source, self.arena.as_ref().map(of_arena)) {
            (Some(source), Some(own)) if source != own => Err(Error::configuration(
                "source",
                source.to_string(),
                format!("`arena` sets an arena, whose source is {own}; set one of the two"),
            )),
            (_, own) => Ok(own.or(self.setting(|of| of.source)).unwrap_or_default()),
        }
    }

    fn check_driver_pool(&self) -> Result<(), Error> {
        match self.device.properties().capabilities.contains(Capabilities::STREAM_ORDERED) {
            true => Ok(()),
            false => Err(Error::configuration(
                "source",
                Source::Driver.to_string(),
                "the device's driver has no pool of its own; choose direct or arena",
            )),
        }
    }

    fn arena_for(
        &self,
        source: Source,
        kind: MemoryKind,
        (caps, limit): (&Caps, u64),
        ledger: &Ledger,
    ) -> Result<DeviceArena<B>, Error> {
        if source == Source::Virtual && self.device.virtual_memory().is_none() {
            return Err(Error::configuration(
                "source",
                source.to_string(),
                "the device has no virtual memory; choose direct or arena",
            ));
        }
        match &self.arena {
            Some(arena) if arena.device().id() == self.device.id() => Ok(arena.clone()),
            Some(arena) => Err(Error::wrong_device(self.device.id(), arena.device().id())),
            None if limit == 0 => Err(Error::configuration(
                "limit",
                limit.to_string(),
                "an arena of 0 bytes cannot serve requests; raise `limit` or choose the direct source",
            )),
            None => {
                let builder = DeviceArena::builder(&self.device).memory(kind).limit(as_limit(limit));
                let builder = builder.overlap(caps.overlap).overlap_within(caps.budget);
                match source {
                    Source::Virtual => self.growing(builder.within(ledger)),
                    // Of a root it is all that the limit allows, and other kinds of memory are beside it.
                    _ if self.parent.is_none() => builder.build(),
                    _ => builder.within(ledger).build(),
                }
            }
        }
    }

    /// Builds an arena of the pool's own with its initial memory.
    fn growing(&self, builder: ArenaBuilder<B>) -> Result<DeviceArena<B>, Error> {
        let builder = builder.growing().piece_bytes(self.piece_bytes.unwrap_or(UNLIMITED));
        let initial = match self.given.initial {
            None if self.parent.is_some() => 0,
            given => self.initial_bytes(given),
        };
        match builder.clone().initial_bytes(initial).build() {
            // The variable is for all pools of the process.
            Err(error) if self.given.initial.is_none() && initial > 0 && error.is_out_of_memory() => {
                logging::warn!("pool {}: no initial memory, because {error}", self.name);
                builder.build()
            }
            built => built,
        }
    }

    fn default_budget(&self) -> u64 {
        let properties = self.device.properties();
        if properties.kind != DeviceKind::Discrete {
            return UNLIMITED;
        }
        let fraction = self.environment.budget_fraction.unwrap_or(BUDGET_FRACTION);
        environment::bytes(fraction, properties.total_bytes as f64)
    }
}

fn with_own_names(hooks: Vec<Arc<dyn Hook>>) -> Result<Hooks, Error> {
    let mut named = Hooks::default();
    for hook in hooks {
        let value = hook.name().to_owned();
        named.add(hook).map_err(|_| {
            Error::configuration(
                "hook",
                value,
                "there is one of that name already; give each hook of a pool a name of its own",
            )
        })?;
    }
    Ok(named)
}

/// netcl's large-bucket variable: 0 = fixed buckets, else the unit that large requests round up to.
fn classes_of(large_bucket: u64) -> SizeClasses {
    match large_bucket {
        0 => SizeClasses::Fixed,
        unit => SizeClasses::Multiple(unit),
    }
}
