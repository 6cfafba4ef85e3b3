//! Traces as data and as files: events, formats, reading and writing. Independent of pools.

pub(crate) mod bounds;
pub(in crate::trace) mod contradiction;
pub(in crate::trace) mod csv;
pub(crate) mod error;
pub(crate) mod event;
pub(in crate::trace) mod export;
pub(in crate::trace) mod format;
pub(in crate::trace) mod import;
pub(in crate::trace) mod ledger;
pub(in crate::trace) mod lines;
pub(in crate::trace) mod other_devices;
pub(crate) mod position;
pub(crate) mod reader;
pub(in crate::trace) mod summary;
