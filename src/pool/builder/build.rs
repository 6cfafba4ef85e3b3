//! Builds a pool from its settings: resolves what depends on the device and on other settings.

use super::{BORROW_CLASSES, BUDGET, MAGAZINES_TO_A_CAP, PoolBuilder, VIRTUAL_CACHED, VIRTUAL_CLASS};
use crate::environment::{UNLIMITED, as_cap, as_limit};
use crate::error::Error;
use crate::heap::arena::{ArenaBuilder, DeviceArena};
use crate::heap::size_class::SizeClasses;
use crate::heap::{Caps, PoolCore, Supply};
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
        let (is_virtual, has_own) = (source == Source::Virtual, self.arena.is_none());
        let is_private = self.merged().private == Some(true);
        if is_private {
            let of = &mut self.given;
            (of.max_cached_bytes, of.max_buffers_per_bucket) = (Some(Amount::Unlimited), Some(None));
            of.magazine_bytes = Some(Amount::Bytes(0));
            // An arena cuts and joins what is free, and keeps it.
            of.cached_class = Some(if is_virtual { Amount::Bytes(0) } else { Amount::Unlimited });
        }
        if !has_own {
            self.given.source = Some(source);
        }
        self.check_initial(is_virtual && has_own)?;
        let mut of = self.merged();
        (of.source, of.private) = (Some(source), Some(is_private));
        let classes = if is_virtual { SizeClasses::Tight } else { SizeClasses::default() };
        let classes = of.size_classes.get_or_insert(classes).clone();
        classes.validate()?;
        let mut caps = Caps::default();
        if is_virtual {
            (caps.max_cached_bytes, caps.cached_class) = (VIRTUAL_CACHED, VIRTUAL_CLASS);
            caps.max_buffers_per_bucket = UNLIMITED;
        }
        let whole = self.whole()?;
        // Replaces an amount by its bytes, and returns them.
        let bytes = |amount: &mut Option<Amount>, default: u64| {
            let bytes = amount.map_or(default, |amount| as_cap(amount.bytes_of(whole)));
            *amount = Some(bytes.into());
            bytes
        };
        let share = bytes(&mut of.share, 0);
        if self.parent.is_none() && (share > 0 || is_private) {
            let (field, value) =
                if is_private { ("private", "true".into()) } else { ("share", share.to_string()) };
            let reason = "the pool is no child of another one; make it by `Pool::child`";
            return Err(Error::configuration(field, value, reason));
        }
        caps.max_cached_bytes = bytes(&mut of.max_cached_bytes, caps.max_cached_bytes);
        caps.limit = bytes(&mut of.limit, caps.limit);
        let least_limit = caps.limit.min(self.least_above());
        let max_buffers = as_limit(caps.max_buffers_per_bucket);
        caps.max_buffers_per_bucket = as_cap(*of.max_buffers_per_bucket.get_or_insert(max_buffers));
        of.max_buffers_per_bucket = Some(as_limit(caps.max_buffers_per_bucket));
        caps.cached_class = bytes(&mut of.cached_class, caps.cached_class);
        let magazines = if is_virtual { MAGAZINES_TO_A_CAP / 8 } else { MAGAZINES_TO_A_CAP };
        let magazine_bytes = caps.magazine_bytes.min(caps.max_cached_bytes.min(least_limit) / magazines);
        caps.magazine_bytes = bytes(&mut of.magazine_bytes, magazine_bytes);
        caps.magazine_class = bytes(&mut of.magazine_class, caps.magazine_class);
        caps.overlap = *of.overlap.get_or_insert_default();
        let is_discrete = self.device.properties().kind == DeviceKind::Discrete;
        let budget = if is_discrete { as_cap(BUDGET.bytes_of(whole)) } else { UNLIMITED };
        caps.budget = bytes(&mut of.budget, budget);
        let kind = *of.memory.get_or_insert_with(|| self.device.properties().preferred_placement().into());
        let piece_bytes = bytes(&mut of.piece_bytes, UNLIMITED);
        let initial = bytes(&mut of.initial, 0);
        // That of the environment as far as the limit allows it.
        let mut initial = if self.own_initial().is_some() { initial } else { initial.min(caps.limit) };
        let name = of.name.get_or_insert_default().clone();
        let ledger = match &self.parent {
            Some(pool) => pool.core().supply::<B>().ledger.named_child(&name, as_limit(caps.limit)),
            None => Ledger::named(&name, as_limit(caps.limit)),
        };
        let above = self.parent.as_ref().and_then(|pool| pool.arena().filter(|of| !of.is_growing()));
        let is_shared = |of: &&DeviceArena<B>| has_own && source == Source::Arena && of.kind() == kind;
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
        of.initial = Some(initial.into());
        let above = self.parent.as_ref().filter(|_| is_of_parent);
        let stay_above = above.is_some_and(|pool| pool.core().supply::<B>().addresses_stay);
        let addresses_stay = *of.addresses_stay.get_or_insert_default() || stay_above;
        let borrow_classes = *of.borrow_classes.get_or_insert(BORROW_CLASSES);
        let inherited = if self.parent.is_some() { Origin::Parent } else { Origin::Default };
        let origins = [
            (&self.given, Origin::Argument),
            (&self.environment, Origin::Environment),
            (&self.file, Origin::File),
            (&self.inherited, inherited),
        ];
        let settings = of.with_origins(origins);
        logging::debug!(
            "pool {name}: {}",
            settings.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        );
        let hooks = with_own_names(self.hooks)?;
        let owns_arena = has_own && !is_of_parent;
        let id = self.device.id();
        let device = self.device;
        let supply = Supply {
            device,
            source,
            arena: arena.clone(),
            owns_arena,
            is_of_parent,
            addresses_stay,
            blocks_stay: is_of_parent && (addresses_stay || is_private),
            ledger,
        };
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
        let pool = Pool::of_core(core, of, settings);
        if share > 0 {
            pool.set_share(share)?;
        }
        Ok(pool)
    }

    /// Returns each setting from its argument, or from the environment, the file or the parent.
    fn merged(&self) -> Settings {
        let above = [&self.file, &self.environment, &self.given].into_iter();
        above.fold(self.inherited.clone(), |below, above| below.with(above.clone()))
    }

    /// Checks the initial memory of a pool, which may have some if it `has_own` virtual memory.
    fn check_initial(&mut self, has_own: bool) -> Result<(), Error> {
        let unbounded = self.environment.initial.filter(|&of| of == Amount::Unlimited);
        if !has_own || self.parent.is_some() {
            // The variable is for all pools that can have such memory.
            self.environment.initial = None;
        }
        let wrong = self.own_initial().filter(|&of| !has_own || of == Amount::Unlimited);
        let Some(initial) = wrong.or(unbounded) else { return Ok(()) };
        Err(Error::configuration(
            "initial",
            initial.to_string(),
            "it is bytes or a percentage, and needs the virtual source and the pool's own arena; set that source, or the \
             arena's `initial_bytes`",
        ))
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

    /// The limit of the pool that [`build`](Self::build) makes.
    pub(crate) fn limit_bytes(&self) -> Result<Option<u64>, Error> {
        self.given.check()?;
        let whole = self.whole()?;
        Ok(self.merged().limit.and_then(|limit| as_limit(as_cap(limit.bytes_of(whole)))))
    }

    /// Initial memory whose absence is an error. That of the environment applies only to pools that can have it.
    fn own_initial(&self) -> Option<Amount> {
        self.given.initial.or(self.file.initial.filter(|_| self.environment.initial.is_none()))
    }

    /// The source that is set, or that of the arena that is; the device has it.
    fn resolved_source(&self) -> Result<Source, Error> {
        let own = self.arena.as_ref().map(|of| if of.is_growing() { Source::Virtual } else { Source::Arena });
        let source = own.or(self.merged().source).unwrap_or_default();
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
                        let is_private = self.merged().private == Some(true);
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
                let name = self.merged().name.unwrap_or_default();
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
