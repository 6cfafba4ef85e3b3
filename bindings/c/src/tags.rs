//! Tags: their pools, and which one a thread allocates under.

use crate::failure::{Failure, Status};
use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vrampool::any::AnyDevice;
use vrampool::{Pool, internal};
use vrampool_sleep::SleepArena;

/// The pool of a tag.
#[derive(Debug)]
pub(crate) struct Tagged {
    pub(crate) tag: Box<str>,
    pub(crate) pool: Pool<AnyDevice>,
    /// Nothing is allocated then; what is freed is idle until it wakes.
    pub(crate) asleep: AtomicBool,
    /// Its arena, if memory is virtual.
    pub(crate) arena: Option<SleepArena<AnyDevice>>,
}

impl Tagged {
    pub(crate) fn new(tag: &str, pool: Pool<AnyDevice>) -> Self {
        let arena = pool.arena().filter(|arena| arena.is_growing()).cloned().map(SleepArena::new);
        Self { tag: tag.into(), pool, asleep: AtomicBool::new(false), arena }
    }

    /// Releases its pool's idle memory; a failure is logged.
    pub(crate) fn trim(&self) {
        self.trim_to(0);
    }

    /// Releases idle memory of its pool beyond `idle_bytes`, and returns the released bytes. A failure is
    /// logged.
    pub(crate) fn trim_to(&self, idle_bytes: u64) -> u64 {
        self.pool.trim_to(idle_bytes).unwrap_or_else(|error| {
            log::warn!("tag {}: idle memory was not released: {error}", self.tag);
            0
        })
    }

    pub(crate) fn is_asleep(&self) -> bool {
        // Relaxed: who uses memory while another thread puts it to sleep is wrong whatever it reads here.
        self.asleep.load(Ordering::Relaxed)
    }

    /// # Errors
    /// [`Status::ASLEEP`] for a request of `bytes` while the tag is asleep.
    #[inline(always)]
    pub(crate) fn check_awake(&self, bytes: u64) -> Result<(), Failure> {
        if self.is_asleep() { Err(self.asleep(bytes)) } else { Ok(()) }
    }

    #[cold]
    fn asleep(&self, bytes: u64) -> Failure {
        let tag = &self.tag;
        Failure::new(
            Status::ASLEEP,
            format!("{bytes} bytes were requested under the tag {tag}, which is asleep; wake it first"),
        )
    }
}

struct Scopes {
    /// How many are open: what every request asks first.
    open: Cell<usize>,
    /// Of which pools, the innermost last.
    of: RefCell<Vec<(u64, Arc<Tagged>)>>,
}

thread_local! {
    static SCOPES: Scopes = const { Scopes { open: Cell::new(0), of: RefCell::new(Vec::new()) } };
}

/// Whether any thread ever opened one: most programs have none, and then no request looks at its thread's.
static WERE_ANY: AtomicBool = AtomicBool::new(false);

/// Opens a scope on this thread.
pub(crate) fn begin(pool: u64, tagged: Arc<Tagged>) {
    // Relaxed, here and below: only this thread has to see it.
    WERE_ANY.store(true, Ordering::Relaxed);
    internal::forget_known();
    // A thread that is ending has none.
    let _ = SCOPES.try_with(|scopes| {
        scopes.of.borrow_mut().push((pool, tagged));
        scopes.open.set(scopes.open.get() + 1);
    });
}

/// Ends this thread's innermost scope of a pool.
pub(crate) fn end(pool: u64) -> Result<(), Failure> {
    let ended = SCOPES.try_with(|scopes| {
        let mut of = scopes.of.borrow_mut();
        let innermost = of.iter().rposition(|(other, _)| *other == pool)?;
        scopes.open.set(scopes.open.get() - 1);
        Some(of.remove(innermost))
    });
    // Dropped here: it may be the last of a pool.
    match ended.ok().flatten() {
        Some(_) => Ok(()),
        None => Err(Failure::invalid("tag", "this thread has no open scope of the pool")),
    }
}

/// What this thread allocates from now, if it is in a scope of the pool.
#[inline(always)]
pub(crate) fn current(pool: u64) -> Option<Arc<Tagged>> {
    if !WERE_ANY.load(Ordering::Relaxed) {
        return None;
    }
    SCOPES
        .try_with(|scopes| if scopes.open.get() == 0 { None } else { scopes.innermost(pool) })
        .ok()
        .flatten()
}

impl Scopes {
    #[cold]
    fn innermost(&self, pool: u64) -> Option<Arc<Tagged>> {
        self.of.borrow().iter().rev().find(|(other, _)| *other == pool).map(|(_, tagged)| Arc::clone(tagged))
    }
}
