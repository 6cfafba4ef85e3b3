//! The values of a pickle that was read.

use super::budget::Budget;
use super::packed_value::{Packed, Value};
use super::snapshot_keys::SnapshotKey;
use crate::file::origin::Origin;

/// The values of a pickle.
#[derive(Debug)]
pub(super) struct Pickled {
    pub(super) root: Packed,
    pub(super) nodes: Vec<Node>,
    /// Numbers that do not fit a value.
    pub(super) large: Vec<i128>,
    /// The sites of frames, by number from 1.
    pub(super) origins: Vec<Origin>,
}

#[derive(Debug)]
pub(super) enum Node {
    /// A list's items, or the entries of a dictionary whose keys are [words](SnapshotKey).
    Items(Vec<Packed>),
    /// A list of frames, or one frame: the number of its site; 0 without one.
    Site(u32),
    /// It was the value of a key that nothing asks for, and had nothing in it that means anything.
    Forgotten,
}

impl Pickled {
    pub(super) fn value(&self, packed: Packed) -> Value {
        packed.value(&self.large)
    }

    /// The items of a list.
    pub(super) fn list(&self, value: Value) -> Option<&[Packed]> {
        match value {
            Value::List(node) => self.items(node),
            _ => None,
        }
    }

    /// Says that it is dropped. Returns the origins.
    pub(super) fn dropped(self, budget: &mut Budget) -> Vec<Origin> {
        for node in &self.nodes {
            if let Node::Items(items) = node {
                budget.dropped(items);
            }
        }
        budget.dropped(&self.nodes);
        budget.dropped(&self.large);
        self.origins
    }

    /// Returns the value of `key` in a dictionary. `Err` if the value is not a dictionary.
    pub(super) fn get(&self, value: Value, key: SnapshotKey) -> Result<Option<Value>, ()> {
        let Value::Dictionary(node) = value else { return Err(()) };
        let entries = self.items(node).ok_or(())?;
        Ok(entries.iter().find(|entry| entry.has_key(key)).map(|&entry| self.value(entry)))
    }

    fn items(&self, node: u32) -> Option<&[Packed]> {
        match self.nodes.get(node as usize) {
            Some(Node::Items(items)) => Some(items),
            _ => None,
        }
    }
}
