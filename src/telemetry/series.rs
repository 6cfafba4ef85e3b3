//! The label values that distinguish one pool or other owner from another.

use super::owner::Owner;
use vrampool_backend::Backend;

/// The labels that all samples of one pool or other owner have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Series {
    /// The label that has the name: `pool`, or that of the owner's kind.
    owner: &'static str,
    name: String,
    backend: &'static str,
    device: String,
}

impl Series {
    pub(super) fn of<O: Owner>(owner: &O) -> Self {
        let (name, device) = (owner.name().to_owned(), owner.device());
        Self { owner: O::LABEL, name, backend: device.id().backend, device: device.label() }
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
