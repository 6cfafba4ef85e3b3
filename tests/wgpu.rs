//! The pool and the arena on a device of wgpu's. Every test is skipped, and says so, where there
//! is none.
#![cfg(feature = "wgpu")]

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use vrampool::arena::DeviceArena;
use vrampool::wgpu::{WgpuDevice, wgpu};
use vrampool::{Backend, Placement, Pool, SizeClasses};
use vrampool_test_support::require;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

fn device() -> Option<WgpuDevice> {
    require("wgpu", || WgpuDevice::open(0))
}

/// A program that takes a buffer's memory, says so, and submits commands of its own straight to wgpu's queue.
#[test]
fn commands_of_the_programs_own_come_after_what_was_enqueued() {
    let Some(device) = device() else { return };
    let stream = device.create_stream().expect("a stream");
    let arena = DeviceArena::builder(&device).limit(MIB).build().expect("an arena");
    for pool in [Pool::builder(&device), Pool::builder(&device).arena(&arena)] {
        let pool = pool.build().expect("a pool");
        let mut buffer = pool.allocate(256, &stream).expect("memory");
        let offset = buffer.on(&stream).expect("a region").offset();
        for value in 1..=4u8 {
            buffer.write(&[value; 256], &stream).expect("queued");
            match value % 2 {
                0 => buffer.used_on(&stream).expect("no fault"),
                _ => buffer.record_stream(&stream).expect("no fault"),
            }
            assert_eq!(own_copy(&device, buffer.memory().buffer(), offset), [value; 256]);
        }
    }
}

/// Returns the bytes that the program's own commands read.
fn own_copy(device: &WgpuDevice, from: &wgpu::Buffer, offset: u64) -> Vec<u8> {
    let (queue, device) = (device.queue(), device.device());
    let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
    let descriptor = wgpu::BufferDescriptor { label: None, size: 256, usage, mapped_at_creation: false };
    let to = device.create_buffer(&descriptor);
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    encoder.copy_buffer_to_buffer(from, offset, &to, 0, Some(256));
    queue.submit([encoder.finish()]);
    to.slice(..).map_async(wgpu::MapMode::Read, |mapped| mapped.expect("it is mapped"));
    device.poll(wgpu::PollType::wait_indefinitely()).expect("no fault");
    to.slice(..).get_mapped_range().expect("it is mapped").to_vec()
}

fn own_device_with(change: impl FnOnce(&mut wgpu::Limits)) -> WgpuDevice {
    let mut required_limits = wgpu::Limits::default();
    change(&mut required_limits);
    let descriptor = wgpu::DeviceDescriptor { required_limits, ..wgpu::DeviceDescriptor::default() };
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let parts = async {
        let adapters = instance.enumerate_adapters(wgpu::Backends::PRIMARY).await;
        let adapter = adapters.into_iter().next().expect("an adapter");
        adapter.request_device(&descriptor).await.expect("a device")
    };
    match pin!(parts).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready((device, queue)) => WgpuDevice::from_parts(device, queue).expect("a device"),
        Poll::Pending => unreachable!("it is ready outside a browser"),
    }
}

/// A pool on a device whose buffers are small: what it allocates can be written, filled and read.
#[test]
fn a_pool_on_a_device_of_small_buffers_transfers_what_it_allocates() {
    if device().is_none() {
        return;
    }
    for largest in [4 * MIB, 512 * KIB] {
        let device = own_device_with(|limits| {
            limits.max_buffer_size = largest;
            limits.max_storage_buffer_binding_size = limits.max_storage_buffer_binding_size.min(largest);
            limits.max_uniform_buffer_binding_size = limits.max_uniform_buffer_binding_size.min(largest);
        });
        let stream = device.create_stream().expect("a stream");
        let arena = DeviceArena::builder(&device).limit(largest).build().expect("an arena");
        for pool in [Pool::builder(&device), Pool::builder(&device).arena(&arena)] {
            let pool = pool.size_classes(SizeClasses::Exact(256)).build().expect("a pool");
            for bytes in [1001, largest * 3 / 4, largest] {
                let mut buffer = pool.allocate(bytes, &stream).expect("memory");
                let data: Vec<u8> = (0..bytes).map(|byte| (byte * 7 + (byte >> 8)) as u8).collect();
                let mut read = vec![0; bytes as usize];
                buffer.write(&data, &stream).expect("a write");
                buffer.read(&mut read, &stream).expect("a read");
                assert!(read == data, "{bytes} of {largest}");
                device.fill(&stream, buffer.on_mut(&stream).expect("a region"), 9).expect("a fill");
                buffer.read(&mut read, &stream).expect("a read");
                assert!(read == vec![9; bytes as usize], "{bytes} of {largest}");
            }
            let error = pool.allocate(largest + 256, &stream).expect_err("larger than a buffer may be");
            assert!(!error.is_device_lost(), "{error}");
        }
    }
}

/// In a process of its own, whose address space is soon full: idle memory of one kind makes room for the other.
#[test]
#[cfg(target_os = "linux")]
fn idle_memory_makes_room_for_host_visible_memory() {
    use vrampool_test_support::{is_inside, passed, test_behind};
    let Some(device) = device() else { return };
    if !device.properties().is_integrated() {
        return vrampool_test_support::skipped(format_args!(
            "an address space does not limit the memory of {}",
            device.properties().name
        ));
    }
    if is_inside() {
        return fill_with_idle_memory(&device);
    }
    // KiB: what the driver's compiler takes, and some buffers.
    let name = "idle_memory_makes_room_for_host_visible_memory";
    let said = passed(&mut test_behind("ulimit -v 2200000", name));
    assert!(said.contains("idle memory made room"), "{said}");
}

#[cfg(target_os = "linux")]
fn fill_with_idle_memory(device: &WgpuDevice) {
    const PIECE: u64 = 128 * MIB;
    let stream = device.create_stream().expect("a stream");
    for (idle, wanted) in
        [(Placement::Device, Placement::HostVisible), (Placement::HostVisible, Placement::Device)]
    {
        let pool = Pool::builder(device).size_classes(SizeClasses::Multiple(MIB)).build().expect("a pool");
        let mut held = Vec::new();
        let error = loop {
            match pool.allocate_kind(PIECE, idle, &stream) {
                Ok(buffer) => held.push(buffer),
                Err(error) => break error,
            }
            assert!(held.len() < 64, "the address space is not limited");
        };
        assert!(error.is_out_of_memory(), "{error}");
        let error = pool.allocate_kind(200 * MIB, wanted, &stream).expect_err("all of it is live");
        assert!(error.is_out_of_memory(), "{error}");
        let all = held.len() as u64 * PIECE;
        drop(held);
        assert_eq!(pool.stats().idle_bytes, all, "{idle:?}");
        let trims = pool.stats().rungs.trim;
        drop(pool.allocate_kind(200 * MIB, wanted, &stream).expect("what is idle makes room"));
        assert!(pool.stats().rungs.trim > trims, "{idle:?}");
    }
    println!("idle memory made room");
}
