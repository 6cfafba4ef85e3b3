//! Completion of events; queries and drops that must not wait.

use crate::{fill, first_device, memory, own_device, read};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use vrampool_test_support::BackendExt;
use vrampool_wgpu::{
    Backend, DeviceKind, Event, Placement, RegionMut, TestKernels, WgpuDevice, WgpuMemory, WgpuStream, wgpu,
};

/// Bytes that busy work goes through.
const BUSY: u64 = 1 << 20;

/// A device that works behind a submission. Mesa's OpenGL on the processor works within it.
fn asynchronous_device() -> Option<WgpuDevice> {
    let device = first_device()?;
    if device.listed().kind == DeviceKind::Cpu && device.listed().interface == "gl" {
        vrampool_test_support::skipped(format_args!("{} works within a submission", device.listed().device));
        return None;
    }
    Some(device)
}

/// Enqueues work that takes a while on any device, so many rounds for each word of a memory. The memory is
/// returned: what is dropped under work is waited for by the next allocation.
#[must_use]
fn busy(device: &WgpuDevice, kernels: &TestKernels, stream: &WgpuStream, rounds: u32) -> WgpuMemory {
    let memory = device.memory(BUSY, Placement::Device);
    kernels.occupy(stream, RegionMut::whole(&memory, stream), rounds).expect("queued");
    memory
}

#[test]
fn asking_an_event_starts_its_work_and_waits_for_none() {
    let Some(device) = asynchronous_device() else { return };
    let kernels = TestKernels::load(&device).expect("kernels");
    let stream = device.stream();
    let mut rounds = 1;
    loop {
        assert!(rounds <= 1 << 24, "every answer came when the work was done: does asking wait for it?");
        let _memory = busy(&device, &kernels, &stream, rounds);
        let event = device.record(&stream).expect("an event");
        let mut answers = 0;
        while !event.is_complete().expect("an answer") {
            answers += 1;
            std::thread::yield_now();
        }
        if answers > 0 {
            break;
        }
        rounds *= 2;
    }
}

#[test]
fn dropping_memory_and_waiting_on_a_stream_wait_for_nothing() {
    let Some(device) = asynchronous_device() else { return };
    let kernels = TestKernels::load(&device).expect("kernels");
    let (one, two) = (device.stream(), device.stream());
    let mut rounds = 1;
    loop {
        assert!(rounds <= 1 << 24, "the work was always done: does one of the calls wait for it?");
        let _memory = busy(&device, &kernels, &one, rounds);
        let event = device.record(&one).expect("an event");
        one.flush().expect("a submission");
        device.wait(&two, &event).expect("a wait");
        drop(memory(&device));
        let behind = device.record(&two).expect("an event");
        if !event.is_complete().expect("an answer") {
            assert!(!behind.is_complete().expect("an answer") || event.is_complete().expect("an answer"));
            break;
        }
        rounds *= 2;
    }
    device.synchronize(&two).expect("a wait");
}

#[test]
fn an_event_is_complete_when_its_stream_was_waited_for() {
    let Some(device) = first_device() else { return };
    let (stream, memory) = (device.stream(), memory(&device));
    for round in 0..200u8 {
        fill(&device, &stream, &memory, round);
        // Half of them with nothing between the last submission and the event.
        if round % 2 == 0 {
            stream.flush().expect("a submission");
        }
        let event = device.record(&stream).expect("an event");
        device.synchronize(&stream).expect("a wait");
        assert!(event.is_complete().expect("an answer"), "round {round}");
    }
}

/// A poll calls back for finished work, and may call back for other work first.
#[test]
fn an_event_is_complete_behind_a_wait_while_another_thread_is_being_called_back() {
    let Some(device) = own_device(|_| ()) else { return };
    let stream = device.stream();
    let memory = memory(&device);
    fill(&device, &stream, &memory, 1);
    let event = device.record(&stream).expect("an event");
    stream.flush().expect("a submission");
    let (begin, begun) = channel();
    let (go, signal) = channel::<()>();
    let buffer = device.device().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 4,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    buffer.map_async(wgpu::MapMode::Read, .., move |_| {
        begin.send(()).expect("it listens");
        let _ = signal.recv();
    });
    std::thread::scope(|scope| {
        scope.spawn(|| device.device().poll(wgpu::PollType::wait_indefinitely()).expect("a wait"));
        begun.recv().expect("it is called back");
        device.synchronize(&stream).expect("a wait");
        let is_complete = event.is_complete();
        drop(go);
        assert_eq!(is_complete, Ok(true));
    });
}

/// Nothing says so but the callback of its submission: the queue is never empty.
#[test]
fn an_event_becomes_complete_while_the_program_goes_on_submitting() {
    let Some(device) = own_device(|_| ()) else { return };
    let (stream, target) = (device.stream(), memory(&device));
    let [from, to] = [(); 2].map(|()| {
        let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let buffer = wgpu::BufferDescriptor { label: None, size: 16 << 20, usage, mapped_at_creation: false };
        device.device().create_buffer(&buffer)
    });
    // Dropped when this thread has asked, or panicked.
    let is_asking = Arc::new(());
    let asks = Arc::downgrade(&is_asking);
    std::thread::scope(|scope| {
        let _is_asking = is_asking;
        scope.spawn(|| {
            while asks.strong_count() > 0 {
                let mut encoder =
                    device.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
                (0..16).for_each(|_| encoder.copy_buffer_to_buffer(&from, 0, &to, 0, 16 << 20));
                device.queue().submit([encoder.finish()]);
            }
        });
        for _ in 0..4 {
            fill(&device, &stream, &target, 1);
            let event = device.record(&stream).expect("an event");
            stream.flush().expect("a submission");
            assert!(becomes_complete(&event));
        }
    });
}

/// Only a test that fails asks for so long.
fn becomes_complete(event: &impl Event) -> bool {
    let began = Instant::now();
    while event.is_complete() != Ok(true) {
        if began.elapsed() > Duration::from_secs(20) {
            return false;
        }
    }
    true
}

/// wgpu looks at the device and at its own lists one after the other: another thread may come between.
#[test]
fn events_are_asked_while_other_threads_read_what_they_wrote() {
    let Some(device) = own_device(|_| ()) else { return };
    // Dropped when both have read, or panicked.
    let is_reading = Arc::new(());
    let read_on = Arc::downgrade(&is_reading);
    std::thread::scope(|scope| {
        for (reader, is_reading) in [Arc::clone(&is_reading), is_reading].into_iter().enumerate() {
            let device = &device;
            scope.spawn(move || {
                let _is_reading = is_reading;
                let stream = device.stream();
                let memory = memory(device);
                for round in 0..200 {
                    let value = (round * 2 + reader) as u8;
                    fill(device, &stream, &memory, value);
                    let bytes = read(device, &stream, &memory);
                    assert!(bytes.iter().all(|&byte| byte == value), "other bytes");
                }
            });
        }
        for _ in 0..2 {
            scope.spawn(|| {
                let stream = device.stream();
                let memory = memory(&device);
                while read_on.strong_count() > 0 {
                    fill(&device, &stream, &memory, 1);
                    let event = device.record(&stream).expect("an event");
                    assert!(becomes_complete(&event));
                }
            });
        }
    });
}
