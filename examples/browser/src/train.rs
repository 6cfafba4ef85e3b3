//! The network and the data of `vrampool train`.

#![allow(dead_code, reason = "the program uses more of these files")]

#[path = "../../../demos/src/train/compute.rs"]
pub(crate) mod compute;
#[path = "../../../demos/src/train/digits.rs"]
pub(crate) mod digits;
#[path = "../../../demos/src/train/layer.rs"]
mod layer;
#[path = "../../../demos/src/train/loader.rs"]
pub(crate) mod loader;
#[path = "../../../demos/src/train/matrix.rs"]
pub(crate) mod matrix;
#[path = "../../../demos/src/train/network.rs"]
pub(crate) mod network;
#[path = "../../../demos/src/train/tally.rs"]
pub(crate) mod tally;
