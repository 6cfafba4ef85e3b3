//! The values of a pickle that was read.

use super::snapshot_keys::SnapshotKey;
use crate::file::origin::Origin;

/// What is kept of a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Value {
    /// A whole number of 64 bits. As bytes, so that an [`Item`] takes 16.
    Whole {
        is_negative: bool,
        bits: [u8; 8],
    },
    Key(SnapshotKey),
    /// A list or a tuple: the number of its node.
    List(u32),
    Dictionary(u32),
    /// Frames: the number of their site.
    Site(u32),
    /// Text of a frame, at a place among those of the [sites](super::sites::Sites).
    Text {
        start: u32,
        length: u16,
    },
    /// Anything else.
    Other,
}

/// An item of a list, or the value of a key in a dictionary.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    pub(super) key: Option<SnapshotKey>,
    pub(super) value: Value,
}

#[derive(Debug)]
pub(super) enum Node {
    /// A list's items, or the entries of a dictionary whose keys are [words](SnapshotKey).
    Items(Vec<Item>),
    /// A list of frames, or one frame: the number of its site; 0 without one.
    Site(u32),
}

/// The values of a pickle.
#[derive(Debug)]
pub(super) struct Pickled {
    pub(super) root: Value,
    pub(super) nodes: Vec<Node>,
    /// The sites of frames, by number from 1.
    pub(super) origins: Vec<Origin>,
}

impl Value {
    /// A number; of more than 64 bits, something else.
    pub(super) fn whole(number: i128) -> Self {
        match (u64::try_from(number), i64::try_from(number)) {
            (Ok(number), _) => Self::Whole { is_negative: false, bits: number.to_ne_bytes() },
            (_, Ok(number)) => Self::Whole { is_negative: true, bits: number.to_ne_bytes() },
            _ => Self::Other,
        }
    }

    pub(super) fn number(self) -> Option<i128> {
        match self {
            Self::Whole { is_negative: true, bits } => Some(i64::from_ne_bytes(bits).into()),
            Self::Whole { bits, .. } => Some(u64::from_ne_bytes(bits).into()),
            _ => None,
        }
    }
}

impl Pickled {
    /// The items of a list.
    pub(super) fn list(&self, value: Value) -> Option<&[Item]> {
        match value {
            Value::List(node) => self.items(node),
            _ => None,
        }
    }

    /// Bytes of its nodes.
    pub(super) fn bytes(&self) -> u64 {
        let items = self.nodes.iter().map(|node| match node {
            Node::Items(items) => items.capacity() * size_of::<Item>(),
            Node::Site(_) => 0,
        });
        (items.sum::<usize>() + self.nodes.capacity() * size_of::<Node>()) as u64
    }

    /// Returns the value of `key` in a dictionary; `None` also of another value.
    pub(super) fn get(&self, value: Value, key: SnapshotKey) -> Option<Value> {
        let Value::Dictionary(node) = value else { return None };
        self.items(node)?.iter().find(|entry| entry.key == Some(key)).map(|entry| entry.value)
    }

    fn items(&self, node: u32) -> Option<&[Item]> {
        match self.nodes.get(node as usize) {
            Some(Node::Items(items)) => Some(items),
            _ => None,
        }
    }
}
