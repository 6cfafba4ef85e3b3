//! What a view of a region may be used for, as a parameter of its type.

/// A view for reading.
#[derive(Debug, Clone, Copy)]
pub enum Read {}

/// A view for reading and writing.
#[derive(Debug)]
pub enum Write {}
