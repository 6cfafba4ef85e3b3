//! The label values that tell one pool or broker from another.

use crate::broker::Broker;
use crate::pool::Pool;
use vrampool_backend::Backend;

/// The labels that all samples of one pool or broker have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Series {
    /// The label that has the name: `pool` or `broker`.
    owner: &'static str,
    name: String,
    backend: &'static str,
    device: String,
}

impl Series {
    pub(super) fn of_pool<B: Backend>(pool: &Pool<B>) -> Self {
        Self::new("pool", pool.name(), pool.device())
    }

    pub(super) fn of_broker<B: Backend>(broker: &Broker<B>) -> Self {
        Self::new("broker", broker.name(), broker.device())
    }

    fn new<B: Backend>(owner: &'static str, name: &str, device: &B) -> Self {
        Self { owner, name: name.to_owned(), backend: device.id().backend, device: device.label() }
    }

    /// The same for the second, third … of its name; `number` starts at 1.
    pub(super) fn numbered(&self, number: u64) -> Self {
        match number {
            0 | 1 => self.clone(),
            _ => Self { name: format!("{}#{number}", self.name), ..self.clone() },
        }
    }

    pub(super) fn labels(&self) -> [(&'static str, &str); 3] {
        [(self.owner, &self.name), ("backend", self.backend), ("device", &self.device)]
    }
}
