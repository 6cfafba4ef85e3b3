//! Traces as data and as files: events, formats, reading and writing. Independent of pools.

pub(crate) mod csv;
pub(crate) mod event;
pub(crate) mod export;
pub(crate) mod import;
pub(crate) mod ledger;
pub(crate) mod lines;
pub(crate) mod origin;
pub(crate) mod other_devices;
pub(crate) mod reader;
pub(crate) mod summary;
