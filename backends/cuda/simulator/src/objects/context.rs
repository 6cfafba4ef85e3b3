//! Contexts.

use crate::code::Code;
use std::collections::{HashMap, HashSet};
use std::thread::ThreadId;

#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) device: usize,
    pub(crate) handle: usize,
    pub(crate) is_primary: bool,
    /// References to a primary context.
    pub(crate) retained: usize,
    /// The code that its work failed with; every later call returns it.
    pub(crate) lost: Option<Code>,
    /// Devices whose memory its kernels may touch besides its own.
    pub(crate) peers: HashSet<usize>,
    /// The null stream.
    pub(crate) legacy: u64,
    pub(crate) per_thread: HashMap<ThreadId, u64>,
}
