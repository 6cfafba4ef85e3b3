//! The network and the data of `vrampool train`.

#![allow(dead_code, reason = "the program uses more of these files")]

#[path = "../../../cli/src/train/compute.rs"]
pub(crate) mod compute;
#[path = "../../../cli/src/train/digits.rs"]
pub(crate) mod digits;
#[path = "../../../cli/src/train/layer.rs"]
mod layer;
#[path = "../../../cli/src/train/loader.rs"]
pub(crate) mod loader;
#[path = "../../../cli/src/train/matrix.rs"]
pub(crate) mod matrix;
#[path = "../../../cli/src/train/network.rs"]
pub(crate) mod network;
#[path = "../../../cli/src/train/tally.rs"]
pub(crate) mod tally;
