//! Devices: listed, opened, and the program's own.

use crate::{BYTES, backends, fill, first_device, memory, others, read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vrampool_backend::AllocationRequest;
use vrampool_test_support::BackendExt;
use vrampool_wgpu::{Backend, BackendError, Capabilities, DeviceKind, Placement, WgpuDevice, list, wgpu};

#[test]
fn the_list_names_what_can_be_opened_gpus_first() {
    let Some(first) = first_device() else { return };
    let devices = list().expect("a list");
    assert_eq!(first.listed(), &devices[0]);
    assert!(devices.is_sorted_by_key(|device| device.kind == DeviceKind::Cpu), "{devices:?}");
    for (ordinal, listed) in devices.iter().enumerate() {
        assert_eq!(listed.ordinal, ordinal);
        assert!(!listed.device.is_empty(), "{listed:?}");
        if backends() == wgpu::Backends::PRIMARY {
            assert_eq!(listed.interface, "vulkan");
        }
        for name in [format!("wgpu:{ordinal}"), ordinal.to_string()] {
            let device = WgpuDevice::open_by_name(&name).expect("it is listed");
            assert_eq!(device.id().to_string(), format!("wgpu:{ordinal}"), "its id reads as it is listed");
            assert_eq!(device.listed(), listed);
            let properties = device.properties();
            assert_eq!((&properties.name, properties.kind), (&listed.device, listed.kind));
            assert_eq!(properties.is_integrated(), listed.kind != DeviceKind::Discrete);
            assert_eq!(properties.copy_granularity, 4);
            assert!(properties.total_bytes > 0 && properties.max_allocation >= 256 << 20, "{properties:?}");
            assert!(!properties.capabilities.contains(Capabilities::CONCURRENT_STREAMS));
        }
    }
    let error = WgpuDevice::open_by_name("wgpu:99").expect_err("there are fewer").to_string();
    assert!(error.contains("wgpu:0") && error.contains(&devices[0].name), "{error}");
    let error = WgpuDevice::open(devices.len()).expect_err("there is none");
    assert!(matches!(error, BackendError::InvalidArgument { argument: "ordinal", .. }), "{error}");
}

#[test]
fn the_limits_are_the_adapters() {
    let Some(device) = first_device() else { return };
    // wgpu's own default is 256 MiB.
    let bytes = (256 << 20) + 4;
    if device.properties().max_allocation >= bytes {
        device
            .allocate(&AllocationRequest::new(bytes, Placement::Device))
            .expect("more than wgpu's default limit");
    }
}

#[test]
fn a_device_that_is_opened_or_wrapped_twice_is_one_device() {
    let Some(one) = first_device() else { return };
    let two = WgpuDevice::open(0).expect("a device");
    assert_eq!(one.id(), two.id());
    let again = WgpuDevice::from_parts(one.device().clone(), one.queue().clone()).expect("a device");
    assert_eq!(again.id(), one.id());
    let (device, queue) = others(|_| ());
    let own = WgpuDevice::from_parts(device.clone(), queue.clone()).expect("a device");
    let ids: Vec<_> = std::thread::scope(|scope| {
        let wrap = || WgpuDevice::from_parts(device.clone(), queue.clone()).expect("a device").id();
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(wrap)).collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(ids, [own.id(); 4]);
    // No id of a device that is not of the list reads as one that is.
    let listed: Vec<_> =
        list().expect("a list").iter().map(|listed| format!("wgpu:{}", listed.ordinal)).collect();
    for unlisted in [&own, &one.with_memory_limit(1 << 20).expect("a device")] {
        assert!(!listed.contains(&unlisted.id().to_string()), "{}", unlisted.id());
    }
}

fn create_wrong_buffer(device: &wgpu::Device) {
    let usage = wgpu::BufferUsages::empty();
    let wrong = wgpu::BufferDescriptor { label: None, size: 4, usage, mapped_at_creation: false };
    drop(device.create_buffer(&wrong));
}

#[test]
fn the_programs_own_device_conforms_and_keeps_its_handlers() {
    if first_device().is_none() {
        return;
    }
    let (device, queue) = others(|_| ());
    let (errors, losses) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, lost) = (Arc::clone(&errors), Arc::clone(&losses));
    device.on_uncaptured_error(Arc::new(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    device.set_device_lost_callback(move |_, _| {
        lost.fetch_add(1, Ordering::Relaxed);
    });
    let own = WgpuDevice::from_parts(device.clone(), queue).expect("a device");
    // Without the feature for it there is no host-visible memory, and the device's own is used for
    // everything.
    assert!(!own.properties().capabilities.contains(Capabilities::HOST_VISIBLE));
    let report = vrampool_backend::conformance::check(&own).expect("conforms");
    assert_eq!(report.skipped.len(), 8, "{report}");
    own.allocate(&AllocationRequest::new(1 << 40, Placement::Device)).expect_err("too much");
    own.allocate(&AllocationRequest::new(
        4,
        crate::of_usages(Placement::Device, wgpu::BufferUsages::TLAS_INPUT),
    ))
    .expect_err("it needs a feature");
    assert_eq!(errors.load(Ordering::Relaxed), 0, "an error of the pool's got to the program's handler");
    create_wrong_buffer(&device);
    assert_eq!(errors.load(Ordering::Relaxed), 1, "an error of the program's own did not");
    device.destroy();
    let _ = device.poll(wgpu::PollType::wait_indefinitely());
    assert_eq!(losses.load(Ordering::Relaxed), 1, "the program's callback was not called");
}

#[test]
fn an_uncaught_error_of_a_device_is_no_panic() {
    let Some(device) = first_device() else { return };
    create_wrong_buffer(device.device());
    let stream = device.stream();
    let memory = memory(&device);
    fill(&device, &stream, &memory, 3);
    assert_eq!(read(&device, &stream, &memory), vec![3; BYTES as usize]);
}
