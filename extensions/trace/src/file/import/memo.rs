//! The memo of a pickle: values by index.

use super::budget::Budget;
use super::pickle_value::Value;
use crate::error::TraceFault;
use std::collections::HashMap;

/// Places are taken one after the other by every pickler; others may be named.
#[derive(Debug, Default)]
pub(super) struct Memo {
    /// Those from 0 on without a gap.
    dense: Vec<Value>,
    /// Those behind a gap.
    sparse: HashMap<u64, Value>,
}

impl Memo {
    /// Returns the number of entries.
    pub(super) fn len(&self) -> u64 {
        (self.dense.len() + self.sparse.len()) as u64
    }

    pub(super) fn put(&mut self, place: u64, value: Value, budget: &mut Budget) -> Result<(), TraceFault> {
        let next = self.dense.len() as u64;
        if let Some(there) = usize::try_from(place).ok().and_then(|place| self.dense.get_mut(place)) {
            *there = value;
        } else if place == next {
            budget.room(&mut self.dense, 1)?;
            self.dense.push(value);
            self.sparse.remove(&place);
        } else {
            budget.room_in_map(&mut self.sparse)?;
            self.sparse.insert(place, value);
        }
        Ok(())
    }

    pub(super) fn get(&self, place: u64) -> Option<Value> {
        let dense = usize::try_from(place).ok().and_then(|place| self.dense.get(place));
        dense.or_else(|| self.sparse.get(&place)).copied()
    }
}
