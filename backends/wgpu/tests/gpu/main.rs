//! Behaviour of a wgpu device beyond conformance. Without a device every test is skipped with a message.

mod devices;
mod events;
mod futures;
mod held;
mod launches;
mod memory;
mod order;
mod refused;
mod test_kernels;
mod views;

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use vrampool_test_support::{BackendExt, copy, fill, read, require, skipped};
use vrampool_wgpu::{Backend, Capabilities, MemoryKind, Placement, WgpuDevice, WgpuMemory, wgpu};

/// A few tens of KiB: enough that a copy takes a while, little enough that a test of many rounds does not.
const BYTES: u64 = 64 * 1024;

/// Returns the first device, or skips the test without one.
fn first_device() -> Option<WgpuDevice> {
    require("wgpu", || WgpuDevice::open(0))
}

fn memory(device: &WgpuDevice) -> WgpuMemory {
    device.memory(BYTES, Placement::Device)
}

fn of_usages(placement: Placement, usages: wgpu::BufferUsages) -> MemoryKind {
    MemoryKind::new(placement).with_usage(WgpuMemory::usage(usages))
}

/// The interfaces that tests run on: `WGPU_BACKEND=gl`, for example, runs all of them on OpenGL.
fn backends() -> wgpu::Backends {
    wgpu::Backends::from_env().unwrap_or(wgpu::Backends::PRIMARY)
}

/// Whether the device has memory that stays mapped, which takes Vulkan.
fn can_map(device: &WgpuDevice) -> bool {
    device.properties().capabilities.contains(Capabilities::HOST_VISIBLE)
}

/// The first device, or skips the test where that keeps no memory mapped.
fn mapping_device() -> Option<WgpuDevice> {
    let device = first_device()?;
    if !can_map(&device) {
        skipped(format_args!("{} keeps no memory mapped", device.listed().interface));
        return None;
    }
    Some(device)
}

/// A device that no other owner's memory is counted with, or skips the test where wgpu does not count it.
fn counted_device() -> Option<WgpuDevice> {
    let device = own_device(|_| ())?;
    if device.device().generate_allocator_report().is_none() {
        skipped(format_args!("wgpu has no figures of what it holds on {}", device.listed().interface));
        return None;
    }
    Some(device)
}

/// The device of [`others`], which no other test uses, so that no thread of another test runs its callbacks.
fn own_device(change: impl FnOnce(&mut wgpu::Limits)) -> Option<WgpuDevice> {
    first_device()?;
    let (device, queue) = others(change);
    Some(WgpuDevice::from_parts(device, queue).expect("a device"))
}

/// A device and a queue that this crate did not make, without features and with the least limits that `change` leaves.
fn others(change: impl FnOnce(&mut wgpu::Limits)) -> (wgpu::Device, wgpu::Queue) {
    let mut required_limits = wgpu::Limits::default();
    change(&mut required_limits);
    let descriptor = wgpu::DeviceDescriptor { required_limits, ..wgpu::DeviceDescriptor::default() };
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: backends(),
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let device = async {
        let adapters = instance.enumerate_adapters(backends()).await;
        let adapter = adapters.into_iter().next().expect("an adapter");
        adapter.request_device(&descriptor).await.expect("a device")
    };
    match pin!(device).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(parts) => parts,
        Poll::Pending => unreachable!("it is ready outside a browser"),
    }
}
