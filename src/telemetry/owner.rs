//! Owners of statistics: pools, and what other crates define.

use super::owner_figures::OwnerFigures;
use std::any::Any;
use std::sync::{Arc, Weak};
use vrampool_backend::Backend;

/// An owner of statistics: a [`Pool`](crate::Pool), or a type of another crate.
///
/// ```
/// use std::sync::Arc;
/// use vrampool::figures::{FigureLabel, Group};
/// use vrampool::host::HostDevice;
/// use vrampool::telemetry::{Owner, OwnerFigures, Watch, WatchArc, publish};
///
/// vrampool::figures! {
///     /// Statistics of a queue.
///     #[derive(Debug, Clone, Default)]
///     pub struct QueueStats("queue_", FigureLabel::None) {
///         Counter pushes: u64, "pushes", "Entries that were added.";
///     }
/// }
///
/// struct Queue(Arc<QueueStats>, HostDevice);
///
/// impl Owner for Queue {
///     type Device = HostDevice;
///
///     const LABEL: &'static str = "queue";
///
///     fn name(&self) -> &str {
///         "main"
///     }
///
///     fn device(&self) -> &HostDevice {
///         &self.1
///     }
///
///     fn figures(&self) -> OwnerFigures {
///         OwnerFigures::of(&*self.0)
///     }
///
///     fn watch(&self) -> impl Watch + 'static {
///         WatchArc::new(&self.0, OwnerFigures::of)
///     }
/// }
///
/// assert_eq!(QueueStats::table()[0].metric, "vrampool_queue_pushes_total");
/// publish(&Queue(Arc::default(), HostDevice::new()));
/// ```
pub trait Owner {
    /// The device's type.
    type Device: Backend;

    /// The label of all its series whose value is the name, for example `broker`.
    const LABEL: &'static str;

    /// Returns the value of that label.
    fn name(&self) -> &str;

    /// Returns the device, which is a label too.
    fn device(&self) -> &Self::Device;

    /// Returns the figures of this moment.
    fn figures(&self) -> OwnerFigures;

    /// Returns a watch that does not keep the owner alive.
    fn watch(&self) -> impl Watch + 'static;
}

/// Watches an [`Owner`] without keeping it alive. Calls never run at the same time.
pub trait Watch: Send {
    /// Returns the figures of the owner, or how it ended.
    fn observe(&mut self) -> Observed;

    /// Whether the owner has a handle.
    fn is_there(&self) -> bool;

    /// Returns the owner's address, which is unique while the owner exists.
    fn place(&self) -> usize;
}

/// The state of an [`Owner`], as its [`Watch`] finds it.
#[derive(Debug)]
pub enum Observed {
    /// Its figures; and the owner itself, if all other handles were dropped meanwhile.
    There(OwnerFigures, Option<Closing>),
    /// It is being dropped on another thread.
    Ending,
    /// It has ended; with its last figures, unless taking them failed.
    Ended(Option<OwnerFigures>),
}

/// The last handle to an owner, when only a publisher still has it. It is dropped outside of all locks.
pub type Closing = Box<dyn Any + Send>;

/// A [`Watch`] of an owner in an [`Arc`]. Its last figures are unknown once it has ended.
#[derive(Debug)]
pub struct WatchArc<T> {
    owner: Weak<T>,
    figures: fn(&T) -> OwnerFigures,
}

impl<T> WatchArc<T> {
    /// Watches `owner`, whose figures `figures` returns.
    #[must_use]
    pub fn new(owner: &Arc<T>, figures: fn(&T) -> OwnerFigures) -> Self {
        Self { owner: Arc::downgrade(owner), figures }
    }
}

impl<T: Any + Send + Sync> Watch for WatchArc<T> {
    fn observe(&mut self) -> Observed {
        let Some(owner) = self.owner.upgrade() else { return Observed::Ended(None) };
        let figures = (self.figures)(&owner);
        Observed::There(figures, Arc::into_inner(owner).map(|last| Box::new(last) as Closing))
    }

    fn is_there(&self) -> bool {
        self.owner.strong_count() > 0
    }

    fn place(&self) -> usize {
        self.owner.as_ptr().addr()
    }
}
