//! Configuration of a pool.

mod build;

use crate::environment::{self, Lookup, as_limit};
use crate::error::Error;
use crate::heap::Caps;
use crate::heap::arena::DeviceArena;
use crate::heap::size_class::SizeClasses;
use crate::pool::Pool;
use crate::pool::settings::Settings;
use crate::settings_table::rows;
use crate::source::Source;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vrampool_backend::{Amount, Backend, Hook, MemoryKind, Placement, fork};

/// The budget of a pool on a discrete device by default (netcl's).
const BUDGET: Amount = Amount::Percent(85.0);

/// From how many larger classes an empty geometric one borrows by default (netcl's).
const BORROW_CLASSES: u32 = 2;

/// The cap on idle bytes of a pool whose source is virtual: it keeps small classes only, bytes.
const VIRTUAL_CACHED: u64 = 64 << 20;

/// The largest of these classes, bytes: a quarter of a GPU's page. Of larger ones so few fit in a page that much of it
/// stays free.
const VIRTUAL_CLASS: u64 = 512 << 10;

/// How many threads' magazines the cap on idle bytes, and the limit, have room for by default.
const MAGAZINES_TO_A_CAP: u64 = 64;

/// The smallest class of [`PoolBuilder::pinned`], bytes.
const SMALLEST_PINNED: u64 = 512;

/// The settings of a [`Pool`]. Each has a default. Only [`from_environment`](Self::from_environment) reads
/// environment variables. An argument overrides a variable, a variable a [file](Self::from_file), and a file the
/// default. [`Settings::TABLE`] has all with their texts, defaults and variables.
///
/// ```
/// # use vrampool::{Pool, SizeClasses, host::HostDevice};
/// let pool = Pool::builder(&HostDevice::new())
///     .name("activations")
///     .max_cached_bytes(2 << 30)
///     .max_buffers_per_bucket(32)
///     .limit(8 << 30)
///     .size_classes(SizeClasses::GEOMETRIC)
///     .build()?;
/// # Ok::<(), vrampool::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct PoolBuilder<B: Backend> {
    device: B,
    arena: Option<DeviceArena<B>>,
    parent: Option<Pool<B>>,
    hooks: Vec<Arc<dyn Hook>>,
    /// Arguments.
    given: Settings,
    /// Environment variables, for settings without an argument.
    environment: Settings,
    /// A file's settings, for those without an argument and a variable.
    file: Settings,
    /// The parent's settings, and a name, for the others.
    pub(crate) inherited: Settings,
}

impl<B: Backend> Pool<B> {
    /// A pool on `device` with the defaults of a [builder](Self::builder).
    ///
    /// # Errors
    /// As [`PoolBuilder::build`].
    pub fn new(device: &B) -> Result<Self, Error> {
        Self::builder(device).build()
    }

    /// How to make a pool on `device`.
    pub fn builder(device: &B) -> PoolBuilder<B> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let name = format!("pool-{}", NEXT.fetch_add(1, Ordering::Relaxed));
        PoolBuilder::new(device, Settings { name: Some(name), ..Settings::default() })
    }
}

impl<B: Backend> PoolBuilder<B> {
    fn new(device: &B, inherited: Settings) -> Self {
        Self {
            device: device.clone(),
            arena: None,
            parent: None,
            hooks: Vec::new(),
            given: Settings::default(),
            inherited,
            environment: Settings::default(),
            file: Settings::default(),
        }
    }

    /// The settings of a child of `pool`: those of the pool, except name, limit, initial bytes,
    /// share and whether idle memory is private.
    pub(crate) fn below(pool: &Pool<B>, name: String) -> Self {
        // Caps may have changed since the pool was built.
        let caps = match fork::is_forked() {
            // In a forked child the build fails, so the caps do not matter.
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

    /// Sets a setting from text, as a configuration file has it: one of [`Settings::TABLE`].
    ///
    /// ```
    /// # use vrampool::{Pool, host::HostDevice};
    /// # let device = HostDevice::new();
    /// let pool = Pool::builder(&device).set("limit", "2GiB")?.set("size_classes", "tight")?.build()?;
    /// assert_eq!(pool.limit(), Some(2 << 30));
    /// let error = Pool::builder(&device).set("limit", "much").unwrap_err();
    /// assert!(error.to_string().starts_with("invalid limit `much`: write a size"));
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Settings::set`].
    pub fn set(mut self, key: &str, text: &str) -> Result<Self, Error> {
        self.given.set(key, text)?;
        Ok(self)
    }

    /// Sets all that `settings` sets.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.given = self.given.with(settings);
        self
    }

    /// Reads [settings of a file](Settings::from_file) for settings that have neither an argument nor a variable of the
    /// [environment](Self::from_environment), before or after this call.
    ///
    /// ```no_run
    /// # use vrampool::{Pool, host::HostDevice};
    /// let pool = Pool::builder(&HostDevice::new()).from_file("/etc/vrampool")?.from_environment()?.build()?;
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Settings::from_file`].
    #[allow(clippy::wrong_self_convention, reason = "it is a builder's setting")]
    pub fn from_file(self, path: impl AsRef<Path>) -> Result<Self, Error> {
        let file = self.file.with(Settings::from_file(path)?);
        Ok(Self { file, ..self })
    }

    /// Reads environment variables, by [`Settings::TABLE`], for settings that have no argument, before or after
    /// this call. All variables of settings are checked, whether they are needed or not. An empty one is unset. Of
    /// several of one setting the first that is set is read.
    ///
    /// ```
    /// # use vrampool::{Pool, host::HostDevice};
    /// let pool = Pool::builder(&HostDevice::new()).from_environment()?.limit(1 << 30).build()?;
    /// assert_eq!(pool.limit(), Some(1 << 30));
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Environment`] for a variable whose value is not valid.
    #[allow(clippy::wrong_self_convention, reason = "it is a builder's setting")]
    pub fn from_environment(self) -> Result<Self, Error> {
        self.with_lookup(&environment::process)
    }

    pub(crate) fn with_lookup(self, lookup: Lookup<'_>) -> Result<Self, Error> {
        Ok(Self { environment: Settings::read(lookup)?, ..self })
    }

    /// Serves misses from this arena. The [source](Self::source) is [`Source::Virtual`] for a growing arena, else
    /// [`Source::Arena`]; any other setting is an error. An arena serves one pool in its lifetime: another
    /// [`build`](Self::build) with it fails with [`Error::Configuration`](crate::Error::Configuration).
    /// The program may allocate from it beside the pool; what the arena counts is in the pool's statistics.
    pub fn arena(mut self, arena: &DeviceArena<B>) -> Self {
        self.arena = Some(arena.clone());
        self
    }

    /// Has the pool call `hook` around each request, each allocation of the driver's, and each free; after
    /// those given before. An `Arc` of one is one. A pool without hooks does not know of them; with any, a
    /// hit costs some tens of nanoseconds more. Default: none.
    pub fn hook(mut self, hook: impl Hook + 'static) -> Self {
        self.hooks.push(Arc::new(hook));
        self
    }

    /// netcl's `BufferPool`: powers of two, no memory released by itself. For short programs and tests.
    #[doc(alias = "BufferPool")]
    pub fn unbounded(self) -> Self {
        self.size_classes(SizeClasses::PowerOfTwo)
            .max_cached_bytes(None)
            .max_buffers_per_bucket(None)
            .limit(None)
            .budget(None)
    }

    /// netcl's `PinnedBufferPool`, bounded: host-visible memory, with 8 classes per power of two above 512 bytes.
    #[doc(alias = "PinnedBufferPool")]
    pub fn pinned(self) -> Self {
        let classes = SizeClasses::Geometric { per_doubling: 8, from: SMALLEST_PINNED };
        self.size_classes(classes).memory(Placement::HostVisible).budget(None)
    }
}

macro_rules! methods {
    ($(
        $(#[$doc:meta])* $name:ident($argument:ty): $type:ty, $default:literal, $scope:ident, $since:literal,
        $variables:tt, $help:literal;
    )+) => {
        impl<B: Backend> PoolBuilder<B> {
            $($(#[$doc])* pub fn $name(mut self, $name: $argument) -> Self {
                self.given.$name = Some($name.into());
                self
            })+
        }
    };
}
rows!(methods);

#[cfg(all(test, feature = "host"))]
#[allow(dead_code, unreachable_pub, reason = "the methods are as outside of tests")]
mod tests {
    use super::{Amount, MemoryKind, SizeClasses, Source, rows};
    use crate::pool::settings::added::Settings;
    use std::marker::PhantomData;
    use vrampool_backend::Backend;
    use vrampool_host::HostDevice;

    #[derive(Debug, Default)]
    struct PoolBuilder<B> {
        given: Settings,
        device: PhantomData<B>,
    }

    rows! { methods
        added(impl Into<Amount>): Amount, "1MiB", Any, "0.2", [("VRAMPOOL_ADDED", Text)], "Added for a test.";
    }

    #[test]
    fn a_row_that_is_added_to_the_table_is_a_method() {
        let builder = PoolBuilder::<HostDevice>::default().added(2 << 20).limit(None);
        assert_eq!(
            (builder.given.added, builder.given.limit),
            (Some(Amount::Bytes(2 << 20)), Some(Amount::Unlimited))
        );
    }
}
