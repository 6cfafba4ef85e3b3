//! Owners of statistics: pools, and what other crates define.

use super::owner_figures::OwnerFigures;
use std::any::Any;
use vrampool_backend::Backend;

/// An owner of statistics: a [`Pool`](crate::Pool), or a type of another crate.
///
/// ```
/// use std::sync::{Arc, Weak};
/// use vrampool::figures::{FigureLabel, Group};
/// use vrampool::host::HostDevice;
/// use vrampool::telemetry::{Observed, Owner, OwnerFigures, Watch, publish};
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
/// struct WatchedQueue(Weak<QueueStats>);
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
///         WatchedQueue(Arc::downgrade(&self.0))
///     }
/// }
///
/// impl Watch for WatchedQueue {
///     fn observe(&mut self) -> Observed {
///         match self.0.upgrade() {
///             Some(stats) => Observed::There(OwnerFigures::of(&*stats), None),
///             None => Observed::Ended(None),
///         }
///     }
///
///     fn is_there(&self) -> bool {
///         self.0.strong_count() > 0
///     }
///
///     fn place(&self) -> usize {
///         self.0.as_ptr().addr()
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
