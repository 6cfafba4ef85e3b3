//! The exported functions, by theme. Each says how it follows CUDA's header in `tests/facts`, not here.

mod contexts;
mod control;
mod devices;
mod events;
mod graphs;
mod launches;
mod memory;
mod pools;
mod streams;
mod transfers;
mod virtual_memory;
