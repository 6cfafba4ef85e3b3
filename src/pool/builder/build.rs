//! Builds a pool from its settings: resolves what depends on the device and on other settings.

use super::{BORROW_CLASSES, BUDGET, MAGAZINES_TO_A_CAP, PoolBuilder, VIRTUAL_CACHED, VIRTUAL_CLASS};
use crate::environment::{UNLIMITED, as_cap, as_limit};
use crate::error::Error;
use crate::heap::arena::{ArenaBuilder, DeviceArena};
use crate::heap::core::PoolCore;
use crate::heap::ledger::caps::Caps;
use crate::heap::size_class::SizeClasses;
use crate::heap::store::supply::Supply;
use crate::pool::Pool;
use crate::pool::settings::{Origin, Settings};
use crate::source::Source;
use std::sync::Arc;
use vrampool_backend::spi::{Hooks, Ledger};
use vrampool_backend::{Amount, Backend, Capabilities, DeviceKind, Hook, MemoryKind, fork, logging};

impl<B: Backend> PoolBuilder<B> {
    /// Makes the pool. Only an arena of fixed size and [`initial`](Self::initial) allocate memory at this time.
    ///
    /// # Errors
    /// [`Error::Configuration`] for invalid settings; with [`Source::Arena`] and [`Source::Virtual`] those of
    /// [`ArenaBuilder::build`](crate::arena::ArenaBuilder::build).
    pub fn build(mut self) -> Result<Pool<B>, Error> {
        fork::opening()?;
        self.given.check()?;
        if self.parent.is_some() {
            // One for all pools below a root.
            for settings in [&mut self.given, &mut self.environment, &mut self.file] {
                (settings.max_cached_bytes, settings.budget) = (None, None);
            }
        }
        let source = self.resolved_source()?;
        let is_private = self.setting(|of| of.private) == Some(true);
        if is_private {
            let of = &mut self.given;
            (of.max_cached_bytes, of.max_buffers_per_bucket) = (Some(Amount::Unlimited), Some(None));
            of.magazine_bytes = Some(Amount::Bytes(0));
            // An arena cuts and joins what is free, and keeps it.
            of.cached_class =
                Some(if source == Source::Virtual { Amount::Bytes(0) } else { Amount::Unlimited });
        }
        if self.arena.is_some() {
            self.given.source = Some(source);
        }
        let is_virtual = source == Source::Virtual;
        let classes = self.setting(|of| of.size_classes.clone()).unwrap_or(match is_virtual {
            true => SizeClasses::Tight,
            false => SizeClasses::default(),
        });
        classes.validate()?;
        let mut defaults = Caps::default();
        if is_virtual {
            (defaults.max_cached_bytes, defaults.cached_class) = (VIRTUAL_CACHED, VIRTUAL_CLASS);
            defaults.max_buffers_per_bucket = UNLIMITED;
        }
        let least_above = self.least_above();
        let whole = self.whole()?;
        let bytes = |of: fn(&Settings) -> Option<Amount>| self.bytes(whole, of);
        let max_cached_bytes = bytes(|of| of.max_cached_bytes).unwrap_or(defaults.max_cached_bytes);
        let limit = bytes(|of| of.limit).unwrap_or(defaults.limit);
        let least_limit = limit.min(least_above);
        let share = bytes(|of| of.share).unwrap_or(0);
        if self.parent.is_none() && (share > 0 || is_private) {
            let (field, value) =
                if is_private { ("private", "true".into()) } else { ("share", share.to_string()) };
            let reason = "the pool is no child of another one; make it by `Pool::child`";
            return Err(Error::configuration(field, value, reason));
        }
        let max_buffers = self.setting(|of| of.max_buffers_per_bucket).map(as_cap);
        let magazines = if is_virtual { MAGAZINES_TO_A_CAP / 8 } else { MAGAZINES_TO_A_CAP };
        let magazine_bytes = defaults.magazine_bytes.min(max_cached_bytes.min(least_limit) / magazines);
        let is_discrete = self.device.properties().kind == DeviceKind::Discrete;
        let default_budget = if is_discrete { as_cap(BUDGET.bytes_of(whole)) } else { UNLIMITED };
        let caps = Caps {
            max_cached_bytes,
            max_buffers_per_bucket: max_buffers.unwrap_or(defaults.max_buffers_per_bucket),
            cached_class: bytes(|of| of.cached_class).unwrap_or(defaults.cached_class),
            limit,
            magazine_bytes: bytes(|of| of.magazine_bytes).unwrap_or(magazine_bytes),
            magazine_class: bytes(|of| of.magazine_class).unwrap_or(defaults.magazine_class),
            overlap: self.setting(|of| of.overlap).unwrap_or_default(),
            budget: bytes(|of| of.budget).unwrap_or(default_budget),
        };
        let kind = self.setting(|of| of.memory);
        let kind = kind.unwrap_or_else(|| self.device.properties().preferred_placement().into());
        let piece_bytes = bytes(|of| of.piece_bytes).unwrap_or(UNLIMITED);
        let has_own = is_virtual && self.arena.is_none();
        let unbounded = self.environment.initial.filter(|&of| of == Amount::Unlimited);
        if !has_own || self.parent.is_some() {
            // The variable is for all pools that can have such memory.
            self.environment.initial = None;
        }
        let wrong = self.own_initial().filter(|&of| !has_own || of == Amount::Unlimited);
        if let Some(initial) = wrong.or(unbounded) {
            return Err(Error::configuration(
                "initial",
                initial.to_string(),
                "it is bytes or a percentage, and needs the virtual source and the pool's own arena; set that source, or \
                 the arena's `initial_bytes`",
            ));
        }
        // That of the environment as far as the limit allows it.
        let initial = self.bytes(whole, |of| of.initial).unwrap_or(0);
        let mut initial = if self.own_initial().is_some() { initial } else { initial.min(limit) };
        let name = self.setting(|of| of.name.clone()).unwrap_or_default();
        let ledger = match &self.parent {
            Some(pool) => pool.core().supply::<B>().ledger.named_child(&name, as_limit(caps.limit)),
            None => Ledger::named(&name, as_limit(caps.limit)),
        };
        let above = self.parent.as_ref().and_then(|pool| pool.arena().filter(|of| !of.is_growing()));
        let is_shared =
            |of: &&DeviceArena<B>| self.arena.is_none() && source == Source::Arena && of.kind() == kind;
        let above = above.filter(is_shared).cloned();
        let is_of_parent = above.is_some();
        let arena = match (source, above) {
            (Source::Direct | Source::Driver, _) => None,
            (Source::Arena, Some(of_parent)) => Some(of_parent),
            _ => Some(self.arena_for(
                source,
                kind,
                (&caps, least_limit),
                &ledger,
                (&mut initial, piece_bytes),
            )?),
        };
        let addresses_stay = self.setting(|of| of.addresses_stay).unwrap_or_default();
        let borrow_classes = self.setting(|of| of.borrow_classes).unwrap_or(BORROW_CLASSES);
        let effective = Settings {
            name: Some(name.clone()),
            source: Some(source),
            limit: Some(caps.limit.into()),
            budget: Some(caps.budget.into()),
            max_cached_bytes: Some(caps.max_cached_bytes.into()),
            max_buffers_per_bucket: Some(as_limit(caps.max_buffers_per_bucket)),
            cached_class: Some(caps.cached_class.into()),
            size_classes: Some(classes.clone()),
            borrow_classes: Some(borrow_classes),
            magazine_bytes: Some(caps.magazine_bytes.into()),
            magazine_class: Some(caps.magazine_class.into()),
            overlap: Some(caps.overlap),
            initial: Some(initial.into()),
            piece_bytes: Some(piece_bytes.into()),
            memory: Some(kind),
            addresses_stay: Some(addresses_stay),
            share: Some(share.into()),
            private: Some(is_private),
        };
        let inherited = if self.parent.is_some() { Origin::Parent } else { Origin::Default };
        let origins = [
            (&self.given, Origin::Argument),
            (&self.environment, Origin::Environment),
            (&self.file, Origin::File),
            (&self.inherited, inherited),
        ];
        let settings = effective.with_origins(origins);
        logging::debug!(
            "pool {name}: {}",
            settings.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        );
        let hooks = with_own_names(self.hooks)?;
        let owns_arena = self.arena.is_none() && !is_of_parent;
        let id = self.device.id();
        let device = self.device;
        let supply =
            Supply { device, source, arena: arena.clone(), owns_arena, is_of_parent, addresses_stay, ledger };
        let parent = self.parent.map(|pool| (Arc::clone(pool.core()), is_private));
        let core = PoolCore::new(name, kind, caps, classes, borrow_classes, hooks, (supply, parent));
        let core = core.ok_or_else(|| {
            Error::configuration(
                "arena",
                id.to_string(),
                "the arena serves, or served, another pool, and an arena serves only one; build one for this pool",
            )
        })?;
        core.supply::<B>().set_private(is_private);
        arena.iter().filter(|_| !is_of_parent).for_each(DeviceArena::restart_reserved_peak);
        let pool = Pool::of_core(core, effective, settings);
        if share > 0 {
            pool.set_share(share)?;
        }
        Ok(pool)
    }

    /// Returns a setting: its argument, or that of the environment, the file or the parent.
    fn setting<T>(&self, of: impl FnMut(&Settings) -> Option<T>) -> Option<T> {
        [&self.given, &self.environment, &self.file, &self.inherited].into_iter().find_map(of)
    }

    /// The least limit of the pools above.
    fn least_above(&self) -> u64 {
        self.parent.as_ref().map_or(UNLIMITED, |pool| pool.core().depot().accounts.least_limit())
    }

    /// Returns the whole of percentages: the device's memory, or a smaller limit above.
    fn whole(&self) -> Result<u64, Error> {
        let whole = [self.device.properties().total_bytes, self.least_above()];
        let whole = whole.into_iter().filter(|&bytes| bytes > 0).min().unwrap_or(UNLIMITED);
        let reason = "the device does not report how much memory it has; state bytes";
        let mut set = [&self.given, &self.environment, &self.file].into_iter().flat_map(Settings::iter);
        // A percentage of `overlap` refers to other bytes.
        let is_share =
            |(name, text): &(_, String)| text.ends_with('%') && !["name", "overlap"].contains(name);
        match set.find(is_share).filter(|_| whole == UNLIMITED) {
            Some((field, value)) => Err(Error::configuration(field, value, reason)),
            None => Ok(whole),
        }
    }

    /// The bytes of a setting, with percentages of `whole`.
    fn bytes(&self, whole: u64, of: impl FnMut(&Settings) -> Option<Amount>) -> Option<u64> {
        self.setting(of).map(|amount| as_cap(amount.bytes_of(whole)))
    }

    /// The limit of the pool that [`build`](Self::build) makes.
    pub(crate) fn limit_bytes(&self) -> Result<Option<u64>, Error> {
        self.given.check()?;
        Ok(self.bytes(self.whole()?, |of| of.limit).and_then(as_limit))
    }

    /// Initial memory whose absence is an error. That of the environment applies only to pools that can have it.
    fn own_initial(&self) -> Option<Amount> {
        self.given.initial.or(self.file.initial.filter(|_| self.environment.initial.is_none()))
    }

    /// The source that is set, or that of the arena that is; the device has it.
    fn resolved_source(&self) -> Result<Source, Error> {
        let own = self.arena.as_ref().map(|of| if of.is_growing() { Source::Virtual } else { Source::Arena });
        let source = own.or(self.setting(|of| of.source)).unwrap_or_default();
        let has_driver_pool = self.device.properties().capabilities.contains(Capabilities::STREAM_ORDERED);
        let (set, reason) = match (self.given.source, source) {
            (Some(set), _) if set != source => {
                (set, format!("`arena` sets an arena, whose source is {source}; set one of the two"))
            }
            (_, Source::Virtual) if self.device.virtual_memory().is_none() => {
                (source, "the device has no virtual memory; choose direct or arena".into())
            }
            (_, Source::Driver) if !has_driver_pool => {
                (source, "the device's driver has no pool of its own; choose direct or arena".into())
            }
            _ => return Ok(source),
        };
        Err(Error::configuration("source", set.to_string(), reason))
    }

    fn arena_for(
        &mut self,
        source: Source,
        kind: MemoryKind,
        (caps, limit): (&Caps, u64),
        ledger: &Ledger,
        of_virtual: (&mut u64, u64),
    ) -> Result<DeviceArena<B>, Error> {
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
                    // Memory of a private child keeps its addresses, also under a limit that is raised.
                    Source::Virtual => {
                        let is_private = self.setting(|of| of.private) == Some(true);
                        self.growing(builder.reserves_total(is_private).within(ledger), of_virtual)
                    }
                    // Of a root it is all that the limit allows, and other kinds of memory are beside it.
                    _ if self.parent.is_none() => builder.build(),
                    _ => builder.within(ledger).build(),
                }
            }
        }
    }

    /// Builds an arena of the pool's own with its initial memory.
    fn growing(
        &mut self,
        builder: ArenaBuilder<B>,
        (initial, piece_bytes): (&mut u64, u64),
    ) -> Result<DeviceArena<B>, Error> {
        let builder = builder.growing().piece_bytes(piece_bytes);
        match builder.clone().initial_bytes(*initial).build() {
            // The variable is for all pools of the process.
            Err(error) if self.own_initial().is_none() && *initial > 0 && error.is_out_of_memory() => {
                let name = self.setting(|of| of.name.clone()).unwrap_or_default();
                logging::warn!("pool {name}: no initial memory, because {error}");
                (*initial, self.environment.initial, self.file.initial) = (0, None, None);
                builder.build()
            }
            built => built,
        }
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
