//! The pool on the simulated CUDA driver: each driver call fails once, each wait is left out once, and random
//! work on two devices is free of races. Skipped, with a line that says so, on another driver and without
//! one.
#![cfg(feature = "cuda")]

mod captures;
mod control;
mod deadlines;
#[allow(dead_code, reason = "other tests use all of it")]
#[path = "../detached/mod.rs"]
mod detached;
mod detector;
mod each_call;
mod each_wait;
mod faults;
mod green_contexts;
mod ignored_waits;
mod random_work;
mod refused_calls;
mod scene;
mod scenes;
mod several_devices;
mod side_by_side;
mod simulated;
