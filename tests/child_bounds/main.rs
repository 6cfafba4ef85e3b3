//! A child's limit holds at every instant, and its share of the pool's limit is there whenever it asks.

mod arena;
mod errors;
mod graphs;
mod interference;
mod private_arena;
mod sources;
mod tenants;
mod threads;
mod twin;
mod waits;

use vrampool::Backend;
use vrampool::host::{HostDevice, HostStream};
use vrampool_test_support::AuditDevice;

type Device = AuditDevice<HostDevice>;

const KIB: u64 = 1024;

fn device() -> Device {
    AuditDevice::new(HostDevice::builder().memory_limit(1 << 40).build())
}

fn device_and_stream() -> (Device, HostStream) {
    let device = device();
    let stream = device.create_stream().expect("a stream");
    (device, stream)
}
