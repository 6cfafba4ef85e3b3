//! One array of a plan.

use super::request::{ChunkLayout, Role};
use super::{ArrayId, ClientId};
use vrampool_backend::MemoryKind;

#[derive(Debug, Clone)]
pub(crate) struct PlanArray {
    pub(crate) id: ArrayId,
    pub(crate) client: ClientId,
    pub(crate) label: String,
    pub(crate) layout: ChunkLayout,
    pub(crate) role: Role,
    pub(crate) kind: MemoryKind,
}

impl PlanArray {
    /// Whether all streams use the same memory.
    pub(crate) fn is_shared(&self) -> bool {
        !self.layout.is_cut && self.role != Role::Scratch
    }

    /// Whether it restricts the plan to one stream.
    pub(crate) fn is_sole(&self) -> bool {
        !self.layout.is_cut && self.role.is_downloaded()
    }
}
