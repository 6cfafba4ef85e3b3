//! Virtual memory is real: reserved addresses, memory that is mapped there and elsewhere, and errors for what
//! is not.
#![cfg(target_os = "linux")]

mod failures;
mod laws;
mod mappings;
mod threads;
