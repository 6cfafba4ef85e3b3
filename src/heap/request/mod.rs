//! The way of a request that the fast bins of magazines do not serve, and the requests that wait.
//!
//! * `allocate`: finds idle memory, makes new memory beside that of other streams, else makes a miss;
//!   `observed`: the same, with hooks; `at_address`: memory at an address;
//! * `permit`: whether a miss may ask the source; `make_room`: releases and waits until it may, or until a
//!   share has room; `reservation`: bytes counted before the source delivers them; `ladder`: what is tried when the
//!   source refuses; `refusal`: the figures of a lack of memory, and how it counts; `device_pools`: other pools on the device, which release memory then;
//! * `queue` and `position`: requests that wait, in order of arrival; `in_time` and `driver_threads`: requests with a
//!   deadline, which a call of the driver may outlast.

pub(crate) mod allocate;
pub(crate) mod at_address;
pub(crate) mod device_pools;
pub(crate) mod driver_threads;
pub(crate) mod in_time;
pub(crate) mod ladder;
pub(crate) mod make_room;
pub(crate) mod observed;
pub(crate) mod permit;
pub(crate) mod position;
pub(crate) mod queue;
pub(crate) mod refusal;
pub(crate) mod reservation;

use crate::heap::PoolCore;
use crate::heap::request::position::Position;
use crate::heap::store::supply::Supply;
use crate::source::Key;
use crate::streams::order::Need;
use std::sync::Arc;
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
