//! The bounds on a run's memory, which may fall during the run: the reserve, and the shares of its group.

use crate::error::BrokerError;
use crate::footprint::Demand;
use crate::partition::Footprint;
use crate::session::Session;
use crate::slot::{Chunk, StreamSlot};
use vrampool_backend::Backend;

impl<B, F> Session<'_, B, F>
where
    B: Backend,
    F: Fn(&Chunk<'_, B>, &B::Stream) -> Result<(), BrokerError> + Sync,
{
    /// Shortens chunks to restore the reserve if others left less than half of it free, and to keep the group within its
    /// shares. Returns true if the stream released its memory, because the shares have no room for a run on each stream.
    pub(super) fn watch(&self, slot: &mut StreamSlot<B>) -> bool {
        // One thread checks at a time, after all streams have followed the last change.
        let Some(_watching) = self.watching.try_lock() else { return false };
        let Some((len, streams)) = self.course.fitted() else { return false };
        let over_shares = self.core.over_shares(self.group);
        if len == 1 {
            let leaves = over_shares > 0 && streams > 1;
            if leaves {
                self.leave(slot);
            }
            return leaves;
        }
        let missing = self.missing_of_reserve().max(over_shares);
        if missing == 0 {
            return false;
        }
        let demand = Demand { arrays: &self.grant.arrays, rounding: self.rounding.clone() };
        let now = demand.held(len, streams);
        let gives = |len: u64| now.saturating_sub(demand.held(len, streams)) >= missing;
        let (mut enough, mut too_long) = (1, len);
        while enough + 1 < too_long {
            let middle = enough + (too_long - enough) / 2;
            if gives(middle) { enough = middle } else { too_long = middle }
        }
        self.shorten(enough);
        false
    }

    /// Releases the memory of a stream without further chunks if the group is beyond its shares: other streams may work on
    /// for long.
    pub(super) fn end(&self, slot: &mut StreamSlot<B>) {
        if self.core.over_shares(self.group) > 0 {
            self.leave(slot);
        }
    }

    /// Returns what the reserve lacks, if others left less than half of it free.
    fn missing_of_reserve(&self) -> u64 {
        let (reserve, device) = (self.core.settings.reserve, &self.core.device);
        let free = || device.memory_info().map_or(u64::MAX, |info| info.free_bytes);
        if reserve == 0 || free() >= reserve / 2 {
            return 0;
        }
        self.core.trim_pool();
        let missing = reserve.saturating_sub(free());
        if missing <= reserve / 2 { 0 } else { missing }
    }
}
