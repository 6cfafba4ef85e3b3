//! The arena's self-check for tests: walks all records and verifies every invariant.

use super::operations::Arena;
use super::record::{BlockState, Record};
use super::table::end_of;
use super::zone::Zone;
use std::collections::HashSet;

impl Arena {
    /// Checks all records, in a step for each block; for tests.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        let mut records = 0;
        for zone in [Zone::Stable, Zone::Dynamic] {
            records += self.check_zone(zone).map_err(|wrong| format!("{zone} zone: {wrong}"))?;
        }
        let (slots, vacancies) = self.table.slots();
        if slots != records || vacancies != self.table.check_vacant() {
            return Err(format!("{records} records in {slots} slots, {vacancies} vacant"));
        }
        if self.peak < self.used() {
            return Err(format!("a peak of {} bytes with {} used", self.peak, self.used()));
        }
        Ok(())
    }

    /// Checks one zone. Returns its number of records.
    fn check_zone(&self, zone: Zone) -> Result<usize, String> {
        let space = self.space(zone);
        let (mut records, mut at, mut before) = (0, space.start, end_of(zone));
        let (mut used, mut held, mut available, mut live, mut largest) = (0, 0, 0, 0, 0);
        let mut free = HashSet::new();
        for index in self.indices(zone) {
            let record = &self.table[index];
            let wrong =
                |what: String| format!("record {index}, {} bytes at {}, {what}", record.bytes, record.offset);
            if record.offset != at || record.bytes == 0 {
                return Err(wrong(format!("is empty or leaves a gap after {at}")));
            }
            self.check_record(zone, record, before).map_err(|what| wrong(what.to_owned()))?;
            match record.state() {
                None => {
                    free.insert(index);
                    available += record.bytes;
                    largest = largest.max(record.bytes);
                }
                Some(BlockState::Live | BlockState::Moving) => {
                    used += record.bytes;
                    live += 1;
                }
                Some(_) => held += record.bytes,
            }
            (records, at, before) = (records + 1, record.end(), index);
        }
        if at != space.end || self.table[end_of(zone)].before != before {
            return Err(format!("ends at {at} and not at {}", space.end));
        }
        let reported = (self.used_in(zone), space.held, self.available(zone), self.live_blocks(zone));
        if reported != (used, held, available, live) {
            return Err(format!("reports {reported:?} and has {:?}", (used, held, available, live)));
        }
        if self.free_blocks(zone) as usize != free.len() || self.largest_free_block(zone) != largest {
            return Err("miscounts its free blocks or their largest".into());
        }
        let mut stray = None;
        space.free.check(&self.table, |index| {
            if !free.remove(&index) {
                stray = Some(index);
            }
        })?;
        match (stray, free.len()) {
            (None, 0) => Ok(records),
            _ => Err(format!("bins hold {stray:?} wrongly and lack {free:?}")),
        }
    }

    /// Checks one record against its neighbours. `before` is the record in front of it.
    fn check_record(&self, zone: Zone, record: &Record, before: u32) -> Result<(), &'static str> {
        if record.before != before {
            return Err("does not lead back to the one in front");
        }
        if !(record.offset | record.bytes).is_multiple_of(self.alignment()) {
            return Err("is not aligned");
        }
        let (front, after) = (&self.table[before], &self.table[record.after]);
        let Some(tag) = record.tag() else {
            return if front.is_free() { Err("is free next to a free one") } else { Ok(()) };
        };
        if !record.offset.is_multiple_of(1 << tag.alignment) {
            return Err("does not have the requested alignment");
        }
        let follows_hole = matches!(front.state(), Some(BlockState::Reserved | BlockState::Vacated));
        match tag.state {
            BlockState::NoBlock => Err("is no block"),
            BlockState::Moving if !follows_hole || zone == Zone::Stable => {
                Err("moves without a destination, or out of the stable zone")
            }
            BlockState::Reserved if after.state() != Some(BlockState::Moving) => {
                Err("is reserved, and no moving block follows")
            }
            _ => Ok(()),
        }
    }
}
