//! Kernels that misbehave are errors: a stream's thread goes on, and no thread waits for ever.

use bytemuck::{Pod, Zeroable};
use std::sync::Arc;
use std::sync::mpsc::channel;
use vrampool_host::{Backend, BackendError, Event, HostDevice, Placement, Region, RegionMut};
use vrampool_test_support::{BackendExt, close_gate};

/// Panics when it is dropped, as what a kernel captured or threw may do.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            panic!("a destructor's bug");
        }
    }
}

#[test]
fn a_payload_whose_destructor_panics_does_not_end_the_stream() {
    let device = HostDevice::new();
    let stream = device.stream();
    stream.launch::<u8, 0, 0>([], [], |[], []| std::panic::panic_any(Bomb)).expect("queued");
    assert!(device.synchronize(&stream).is_err());
    let event = device.record(&stream).expect("queued");
    assert!(device.synchronize(&stream).is_err(), "the first failure stays");
    assert!(event.is_complete().expect("no fault"));
}

#[test]
fn a_lost_device_reaches_its_events_whatever_its_queue_holds() {
    let device = HostDevice::new();
    let stream = device.stream();
    let open = close_gate(&stream);
    let bomb = Bomb;
    stream
        .launch::<u8, 0, 0>([], [], move |[], []| {
            let _carried = &bomb;
        })
        .expect("queued");
    let event = device.record(&stream).expect("queued");
    let (waiting, waiter) = (device.clone(), stream.clone());
    let waits = std::thread::spawn(move || waiting.synchronize(&waiter));
    device.faults().lose_device();
    drop(open);
    assert!(waits.join().expect("no panic").is_err());
    assert!(event.is_complete().is_err(), "a lost device answers nothing");
}

#[test]
fn a_kernel_cannot_wait_for_itself() {
    let device = HostDevice::new();
    let stream = device.stream();
    let memory = Arc::new(device.memory(64, Placement::HostVisible));
    let (inside, same) = (device.clone(), Arc::clone(&memory));
    let itself = stream.clone();
    let (sender, receiver) = channel();
    let kernel = move |[]: [&[u8]; 0], [_]: [&mut [u8]; 1]| {
        let answers = [
            inside.read_mapped(&same, 0, &mut [0; 4]),
            inside.write_mapped(&same, 60, &[0; 4]),
            inside.synchronize(&itself),
        ];
        sender.send(answers).expect("the test listens");
    };
    stream.launch([], [RegionMut::whole(&*memory, &stream)], kernel).expect("queued");
    for answer in receiver.recv().expect("it ran") {
        assert!(matches!(answer, Err(BackendError::InvalidArgument { .. })), "{answer:?}");
    }
    device.synchronize(&stream).expect("no failure");
}

#[derive(Clone, Copy)]
#[repr(transparent)]
struct Nothing(());

// SAFETY: it has no bytes, so no byte can be invalid.
unsafe impl Zeroable for Nothing {}
// SAFETY: as above.
unsafe impl Pod for Nothing {}

#[derive(Clone, Copy)]
#[repr(C, align(128))]
struct Wide([u8; 128]);

// SAFETY: it is bytes and nothing else, as many as its alignment.
unsafe impl Zeroable for Wide {}
// SAFETY: as above.
unsafe impl Pod for Wide {}

#[test]
fn elements_that_cannot_be_are_refused_before_they_run() {
    let device = HostDevice::new();
    let stream = device.stream();
    let memory = device.memory(128, Placement::Device);
    let whole = || [RegionMut::whole(&memory, &stream)];
    assert!(stream.launch([], whole(), |[], [_]: [&mut [Nothing]; 1]| {}).is_err());
    assert!(stream.launch([], whole(), |[], [_]: [&mut [Wide]; 1]| {}).is_err());
    let odd = [RegionMut::new(&memory, 2, 8, &stream).expect("inside")];
    assert!(stream.launch([], odd, |[], [_]: [&mut [f32]; 1]| {}).is_err());
    let part = [RegionMut::new(&memory, 0, 7, &stream).expect("inside")];
    assert!(stream.launch([], part, |[], [_]: [&mut [f32]; 1]| {}).is_err());
    device.synchronize(&stream).expect("nothing ran");
}

#[test]
fn an_empty_region_overlaps_nothing() {
    let device = HostDevice::new();
    let stream = device.stream();
    let memory = device.memory(64, Placement::Device);
    let empty = Region::new(&memory, 8, 0, &stream).expect("inside");
    stream
        .launch([empty], [RegionMut::whole(&memory, &stream)], |[_], [bytes]: [&mut [u8]; 1]| bytes.fill(1))
        .expect("queued");
    device.synchronize(&stream).expect("it ran");
}

#[test]
fn a_stream_that_was_waited_for_is_idle() {
    let device = HostDevice::new();
    let stream = device.stream();
    for _ in 0..5_000 {
        stream.launch::<u8, 0, 0>([], [], |_, _| ()).expect("queued");
        device.synchronize(&stream).expect("no fault");
        assert_eq!(device.is_idle(&stream), Ok(true));
    }
}
