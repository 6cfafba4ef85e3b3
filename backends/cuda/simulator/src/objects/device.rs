//! Devices, and how much of their memory is taken.

use crate::code::Code;

/// Memory that the driver keeps for itself, bytes.
const KEPT: u64 = 2 << 20;

#[derive(Debug)]
pub(crate) struct Device {
    pub(crate) ordinal: usize,
    /// Bytes taken of its memory.
    pub(crate) used: u64,
    /// Its primary context, once some code retained it.
    pub(crate) primary: Option<u64>,
    /// The handle of its primary contexts, one after the other.
    pub(crate) primary_handle: Option<usize>,
    /// Flags of its primary contexts.
    pub(crate) flags: u32,
    /// References to a primary context that was reset.
    pub(crate) orphaned: usize,
    /// The code that work on the device failed with; no context works any more.
    pub(crate) lost: Option<Code>,
    pub(crate) default_pool: Option<u64>,
    /// The pool of `cuMemAllocAsync`; the default one if unset.
    pub(crate) current_pool: Option<u64>,
}

impl Device {
    pub(crate) fn new(ordinal: usize) -> Self {
        Self {
            ordinal,
            used: KEPT,
            primary: None,
            primary_handle: None,
            flags: 0,
            orphaned: 0,
            lost: None,
            default_pool: None,
            current_pool: None,
        }
    }

    pub(crate) fn name(&self) -> &'static str {
        "Simulated GPU"
    }

    pub(crate) fn uuid(&self) -> [u8; 16] {
        let mut uuid = *b"vrampool-simul00";
        uuid[0] = uuid[0].wrapping_add(self.ordinal as u8);
        uuid
    }
}
