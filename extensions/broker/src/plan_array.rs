//! The arrays of a plan.

use crate::error::BrokerError;
use crate::id::{ArrayId, ClientId};
use crate::request::{ChunkLayout, Queued, Role};

#[derive(Debug, Clone)]
pub(crate) struct PlanArray {
    pub(crate) id: ArrayId,
    pub(crate) client: ClientId,
    pub(crate) label: String,
    pub(crate) layout: ChunkLayout,
    pub(crate) role: Role,
}

impl PlanArray {
    pub(crate) fn refused(&self, reason: &str) -> BrokerError {
        BrokerError::Request { label: self.label.clone(), reason: reason.to_owned() }
    }

    /// Whether all streams use the same memory.
    pub(crate) fn is_shared(&self) -> bool {
        !self.layout.is_cut && self.role != Role::Scratch
    }

    /// Whether it restricts the plan to one stream.
    pub(crate) fn is_sole(&self) -> bool {
        !self.layout.is_cut && self.role.is_downloaded()
    }
}

/// Returns the batch of a group: the runs of the first request with more than one, else 1.
pub(crate) fn batch(wanted: &[(ClientId, Vec<Queued>)]) -> u64 {
    let mut runs = wanted.iter().flat_map(|(_, queued)| queued).map(|queued| queued.request.runs());
    runs.find(|&runs| runs > 1).unwrap_or(1)
}

/// Returns the arrays of requests, cut along a batch of `runs`.
pub(crate) fn arrays(wanted: &[(ClientId, Vec<Queued>)], runs: u64) -> Result<Vec<PlanArray>, BrokerError> {
    let all = wanted.iter().flat_map(|(client, queued)| queued.iter().map(|queued| (*client, queued)));
    let array = |(client, Queued { id, request }): (ClientId, &Queued)| {
        Ok(PlanArray {
            id: *id,
            client,
            label: request.label.clone(),
            layout: request.layout(runs)?,
            role: request.role,
        })
    };
    all.map(array).collect()
}
