//! A CUDA driver without a GPU: `libcuda.so.1` for tests.
//!
//! Programs load it in place of NVIDIA's driver. Devices have the host's memory; streams run later, in order,
//! on threads; virtual memory is reserved address space with memory files mapped into it. Beyond what a
//! driver does, it
//!
//! * finds races: each operation declares the byte ranges that it reads and writes, and two operations on the
//!   same bytes, one of them a write, that no stream order, event or synchronisation orders are reported with
//!   both places (`detector`);
//! * reports memory that is freed or unmapped under pending work, and the use of destroyed handles;
//! * fails the n-th call of any function with any code (`fault`);
//! * holds a stream until it is released (`api`'s control functions).
//!
//! The way of an operation: an exported function (`api`) → the state under one lock (`world`) → a stream's
//! queue (`world::streams`) → a worker thread (`world::executor`). `README.md` lists the settings and the control functions.
//!
//! Known results of the real driver are in `tests/facts`, which runs on hardware and on the
//! simulator.

mod api;
mod boundary;
mod code;
mod detector;
mod fault;
mod kernels;
mod objects;
mod pages;
mod settings;
mod world;
