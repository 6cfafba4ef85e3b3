//! The way of a request that the fast bins of magazines do not serve, and the requests that wait.
//!
//! * `allocate`: finds idle memory, makes new memory beside that of other streams, else makes a miss;
//!   `observed`: the same, with hooks; `at_address`: memory at an address;
//! * `permit`: whether a miss may ask the source, and the bytes counted before it delivers them; `make_room`: releases
//!   and waits until it may, or until a share has room; `ladder`: what is tried when the source refuses; `refusal`: the
//!   figures of a lack of memory, and how it counts; `device_pools`: other pools on the device, which release memory
//!   then;
//! * `queue` and `position`: requests that wait, in order of arrival; `in_time`: requests with a deadline, which a call
//!   of the driver may outlast.

mod allocate;
pub(crate) mod at_address;
pub(crate) mod device_pools;
mod in_time;
mod ladder;
mod make_room;
mod observed;
mod permit;
mod position;
mod queue;
mod refusal;

pub(crate) use {make_room::reserve_share, observed::allocate_observed, position::GRACE};

use crate::error::Error;
use crate::heap::store::Supply;
use crate::heap::{Block, PoolCore};
use crate::source::Key;
use crate::streams::Need;
use crate::sync::Instant;
use std::cell::OnceCell;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use vrampool_backend::{Backend, HookEvent};

/// A request past the magazines.
struct Request<'a, B: Backend> {
    pool: &'a Arc<PoolCore>,
    key: Key,
    requested: u64,
    stream: &'a B::Stream,
    /// Set if hooks observe it.
    announced: Option<&'a HookEvent<'a>>,
    position: &'a Position<'a>,
}

impl<'a, B: Backend> Request<'a, B> {
    fn need(&self) -> Need {
        Need { requested: self.requested, class: self.key.class }
    }

    fn supply(&self) -> &'a Supply<B> {
        self.pool.supply()
    }
}

/// The number of a request, also on the thread that serves it.
type Number = Arc<AtomicU64>;

/// The position of a request, which is queued once it waits. Dropping it, also by a panic, lets later requests go on.
/// It must not be dropped under the lock.
#[derive(Debug)]
pub(crate) struct Position<'a> {
    pool: &'a PoolCore,
    has_deadline: bool,
    /// [`Queue::LAST`] until it is queued. It changes under the lock.
    number: OnceCell<Number>,
    /// The time after which the request begins no further call of the driver, and no wait. `None` if it has no
    /// deadline.
    until: Option<Instant>,
    /// Whether the request is another thread's, whose position leaves the queue.
    is_of_other: bool,
}

/// Bytes that a miss may take from the device. Dropping it uncommitted, also by a panic, cancels them.
#[derive(Debug)]
struct Reservation {
    pool: Arc<PoolCore>,
    /// 0 once it is committed.
    class: u64,
    /// A record for the memory, if one was kept.
    record: Option<Box<Block>>,
}

/// Why a reservation was refused.
#[derive(Debug)]
pub(crate) enum NoRoom {
    /// No reservation is needed: a block became idle that serves the request.
    Idle,
    /// Memory in transit, or what earlier requests wait for, has to be awaited.
    Wait,
    /// A limit.
    Limit,
    /// A limit, which has room only for bytes that earlier requests wait for.
    Reserved,
    /// A capture forbids a release of memory, or the pool is closed or asleep.
    Refused(Error),
}
