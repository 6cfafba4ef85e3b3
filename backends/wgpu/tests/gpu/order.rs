//! Work is done in the order of the calls, the program's own submissions included, and nobody waits who did
//! not ask for it.

use crate::{BYTES, can_map, copy, fill, first_device, memory, others, read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use vrampool_backend::AllocationRequest;
use vrampool_wgpu::{
    Backend, Event, Memory, Placement, Region, RegionMut, Stream, TestKernels, WgpuDevice, WgpuMemory,
    WgpuStream, wgpu,
};

/// Few bytes, so that there are many operations.
const LEN: u64 = 4096;
/// Bytes that busy work goes through.
const BUSY: u64 = 1 << 20;

/// Memories, streams, and what the memories must hold.
struct World {
    device: WgpuDevice,
    streams: Vec<WgpuStream>,
    memories: Vec<WgpuMemory>,
    expected: Vec<Vec<u8>>,
    rng: fastrand::Rng,
}

impl World {
    fn new(device: &WgpuDevice, seed: u64) -> Self {
        let second = if can_map(device) { Placement::HostVisible } else { Placement::Device };
        let memories = [Placement::Device, second, Placement::Device, Placement::Device];
        let allocate =
            |placement: Placement| device.allocate(&AllocationRequest::new(LEN, placement)).expect("memory");
        Self {
            device: device.clone(),
            streams: (0..3).map(|_| device.create_stream().expect("a stream")).collect(),
            memories: memories.map(allocate).into(),
            expected: vec![vec![0; LEN as usize]; 4],
            rng: fastrand::Rng::with_seed(seed),
        }
    }

    fn step(&mut self) {
        let Self { device, streams, memories, expected, rng } = self;
        let stream = &streams[rng.usize(..streams.len())];
        let to = rng.usize(..memories.len());
        let from = (to + rng.usize(1..memories.len())) % memories.len();
        let start = rng.u64(..LEN / 4) * 4;
        let len = rng.u64(..=(LEN - start) / 4) * 4;
        let range = start as usize..(start + len) as usize;
        let target = || RegionMut::new(&memories[to], start, len, stream).expect("a region");
        let source = || Region::new(&memories[from], start, len, stream).expect("a region");
        let copied = expected[from][range.clone()].to_vec();
        match rng.u8(..9) {
            0 => {
                let value = rng.u8(..3);
                device.fill(stream, target(), value).expect("a fill");
                expected[to][range].fill(value);
            }
            1 => {
                let bytes: Vec<u8> = range.clone().map(|_| rng.u8(..)).collect();
                device.upload(stream, &bytes, target()).expect("an upload");
                expected[to][range].copy_from_slice(&bytes);
            }
            2 | 3 => {
                device.copy(stream, source(), target()).expect("a copy");
                expected[to][range].copy_from_slice(&copied);
            }
            4 => {
                let mut bytes = vec![0; range.len()];
                device.download(stream, source(), &mut bytes).expect("a download");
                assert!(bytes == copied, "a download is not what was there when it was asked for");
            }
            // The program's own copies: recorded here, recorded before, and submitted behind the pool's back.
            way if len > 0 => {
                let (read, written) =
                    (stream.view(source()).expect("a view"), stream.view_mut(target()).expect("a view"));
                let record = |encoder: &mut wgpu::CommandEncoder| {
                    let (from, to) = (read.buffer(), written.as_view().buffer());
                    encoder.copy_buffer_to_buffer(from, read.offset(), to, written.as_view().offset(), len);
                };
                let recorded = || {
                    let mut encoder = device.device().create_command_encoder(&Default::default());
                    record(&mut encoder);
                    encoder.finish()
                };
                match way {
                    5 => stream.encode(record).expect("commands"),
                    6 => stream.submit([recorded()]).expect("commands"),
                    _ => drop(device.queue().submit([recorded()])),
                }
                expected[to][range].copy_from_slice(&copied);
            }
            _ => drop(device.record(stream).expect("an event")),
        }
    }
}

#[test]
fn what_is_done_is_what_was_asked_for_in_that_order_on_any_stream() {
    let Some(device) = first_device() else { return };
    for seed in 0..4 {
        let mut world = World::new(&device, seed);
        for _ in 0..400 {
            world.step();
        }
        for (memory, expected) in world.memories.iter().zip(&world.expected) {
            assert!(read(&device, &world.streams[0], memory) == *expected, "seed {seed}");
        }
    }
}

#[test]
fn so_it_is_while_other_threads_use_the_device() {
    let Some(device) = first_device() else { return };
    std::thread::scope(|scope| {
        for seed in 10..14 {
            let device = &device;
            scope.spawn(move || {
                let mut world = World::new(device, seed);
                for _ in 0..200 {
                    world.step();
                }
            });
        }
    });
}

/// A device that works behind a submission. Mesa's OpenGL on the processor works within it.
fn asynchronous_device() -> Option<WgpuDevice> {
    let device = first_device()?;
    if device.listed().is_cpu() && device.listed().api == "gl" {
        eprintln!("skipped: {} works within a submission", device.listed().name);
        return None;
    }
    Some(device)
}

/// Enqueues work that takes a while on any device, so many rounds for each word of a memory. The memory is
/// returned: what is dropped under work is waited for by the next allocation.
#[must_use]
fn busy(device: &WgpuDevice, kernels: &TestKernels, stream: &WgpuStream, rounds: u32) -> WgpuMemory {
    let memory = device.allocate(&AllocationRequest::new(BUSY, Placement::Device)).expect("memory");
    kernels.occupy(stream, RegionMut::whole(&memory, stream), rounds).expect("queued");
    memory
}

#[test]
fn asking_an_event_starts_its_work_and_waits_for_none() {
    let Some(device) = asynchronous_device() else { return };
    let kernels = TestKernels::load(&device).expect("kernels");
    let stream = device.create_stream().expect("a stream");
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
    let (one, two) = (device.create_stream().expect("a stream"), device.create_stream().expect("a stream"));
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
    let stream = device.create_stream().expect("a stream");
    let memory = memory(&device);
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

/// One whose callbacks no other test's thread gets, and that keeps none of them waiting.
fn own_device() -> Option<WgpuDevice> {
    first_device()?;
    let (device, queue) = others();
    Some(WgpuDevice::from_parts(device, queue).expect("a device"))
}

/// Whoever polls is told of what is done, and may be told of something else before.
#[test]
fn an_event_is_complete_behind_a_wait_while_another_thread_is_being_called_back() {
    let Some(device) = own_device() else { return };
    let stream = device.create_stream().expect("a stream");
    let memory = memory(&device);
    fill(&device, &stream, &memory, 1);
    let event = device.record(&stream).expect("an event");
    stream.flush().expect("a submission");
    let (begin, begun) = channel();
    let (go, told) = channel::<()>();
    let buffer = device.device().create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: 4,
        usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    });
    buffer.map_async(wgpu::MapMode::Read, .., move |_| {
        begin.send(()).expect("it listens");
        let _ = told.recv();
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
    let Some(device) = own_device() else { return };
    let (stream, target) = (device.create_stream().expect("a stream"), memory(&device));
    let [from, to] = [(); 2].map(|()| {
        let usage = wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let buffer = wgpu::BufferDescriptor { label: None, size: 16 << 20, usage, mapped_at_creation: false };
        device.device().create_buffer(&buffer)
    });
    // Gone when this thread has asked, or panicked.
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
    let Some(device) = own_device() else { return };
    // Gone when both have read, or panicked.
    let is_reading = Arc::new(());
    let read_on = Arc::downgrade(&is_reading);
    std::thread::scope(|scope| {
        for (reader, is_reading) in [Arc::clone(&is_reading), is_reading].into_iter().enumerate() {
            let device = &device;
            scope.spawn(move || {
                let _is_reading = is_reading;
                let stream = device.create_stream().expect("a stream");
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
                let stream = device.create_stream().expect("a stream");
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

#[test]
fn the_programs_commands_are_behind_what_was_enqueued_before_without_any_view() {
    let Some(device) = first_device() else { return };
    let stream = device.create_stream().expect("a stream");
    let (from, to) = (memory(&device), memory(&device));
    for round in 1..=20u8 {
        fill(&device, &stream, &from, round);
        let record = |encoder: &mut wgpu::CommandEncoder| {
            encoder.copy_buffer_to_buffer(from.buffer(), 0, to.buffer(), 0, BYTES);
        };
        if round % 2 == 0 {
            stream.encode(record).expect("commands");
        } else {
            let mut encoder = device.device().create_command_encoder(&Default::default());
            record(&mut encoder);
            stream.submit([encoder.finish()]).expect("commands");
        }
        fill(&device, &stream, &from, 0xFF);
        assert_eq!(read(&device, &stream, &to), vec![round; BYTES as usize]);
    }
}

/// An event is behind what the program submitted by itself, of which the device's streams know nothing.
#[test]
fn an_event_covers_what_was_submitted_to_wgpus_queue() {
    let Some(device) = first_device() else { return };
    if !can_map(&device) {
        return eprintln!("skipped: {} keeps no memory mapped", device.listed().api);
    }
    let stream = device.create_stream().expect("a stream");
    let large = 8 << 20;
    let [one, two] =
        [0; 2].map(|_| device.allocate(&AllocationRequest::new(large, Placement::Device)).expect("memory"));
    let seen = device.allocate(&AllocationRequest::new(4, Placement::HostVisible)).expect("memory");
    for round in 1..=20u8 {
        fill(&device, &stream, &one, round);
        let written = stream.view_mut(RegionMut::whole(&seen, &stream)).expect("a view");
        let mut encoder = device.device().create_command_encoder(&Default::default());
        for _ in 0..10 {
            encoder.copy_buffer_to_buffer(one.buffer(), 0, two.buffer(), 0, large);
        }
        encoder.copy_buffer_to_buffer(two.buffer(), 0, written.as_view().buffer(), 0, 4);
        device.queue().submit([encoder.finish()]);
        let event = device.record(&stream).expect("an event");
        while !event.is_complete().expect("an answer") {
            std::thread::yield_now();
        }
        let mut bytes = [0; 4];
        device.read_mapped(&seen, 0, &mut bytes).expect("a read");
        assert_eq!(bytes, [round; 4], "the event came before the program's own work was done");
    }
}

#[test]
fn a_callback_of_wgpus_may_use_the_device() {
    let Some(device) = first_device() else { return };
    let stream = device.create_stream().expect("a stream");
    let memory = Arc::new(memory(&device));
    let calls = Arc::new(AtomicUsize::new(0));
    for round in 1..=20u8 {
        fill(&device, &stream, &memory, 0xEE);
        stream.flush().expect("a submission");
        let (device, stream) = (device.clone(), stream.clone());
        let (target, count) = (Arc::clone(&memory), Arc::clone(&calls));
        device.clone().queue().on_submitted_work_done(move || {
            fill(&device, &stream, &target, round);
            let event = device.record(&stream).expect("an event");
            stream.flush().expect("a submission");
            event.is_complete().expect("an answer");
            count.fetch_add(1, Ordering::Relaxed);
        });
    }
    while calls.load(Ordering::Relaxed) < 20 {
        // Each submits and lets wgpu call back from within.
        fill(&device, &stream, &memory, 0);
        stream.flush().expect("a submission");
    }
    fill(&device, &stream, &memory, 5);
    assert_eq!(read(&device, &stream, &memory), vec![5; BYTES as usize]);
}

#[test]
fn what_nobody_asks_about_is_done_all_the_same() {
    let Some(device) = first_device() else { return };
    // The same device of wgpu's under another handle, so that the buffer's contents can be asked for at the
    // end.
    let limited = device.with_memory_limit(1 << 20).expect("a device");
    let buffer = {
        let stream = limited.create_stream().expect("a stream");
        let memory = memory(&limited);
        fill(&limited, &stream, &memory, 0x77);
        memory.buffer().clone()
    };
    drop(limited);
    let stream = device.create_stream().expect("a stream");
    let seen = memory(&device);
    let written = stream.view_mut(RegionMut::whole(&seen, &stream)).expect("a view");
    stream
        .encode(|encoder| encoder.copy_buffer_to_buffer(&buffer, 0, written.as_view().buffer(), 0, BYTES))
        .expect("commands");
    assert_eq!(read(&device, &stream, &seen), vec![0x77; BYTES as usize]);
}

#[test]
fn streams_are_many_and_their_device_one() {
    let Some(device) = first_device() else { return };
    let (one, two) = (device.create_stream().expect("a stream"), device.create_stream().expect("a stream"));
    assert_ne!(one.id(), two.id());
    assert_eq!((one.device(), two.device()), (device.id(), device.id()));
    let (a, b) = (memory(&device), memory(&device));
    fill(&device, &one, &a, 1);
    copy(&device, &two, &a, &b);
    fill(&device, &one, &a, 2);
    assert_eq!(read(&device, &two, &b), vec![1; BYTES as usize]);
    assert_eq!(a.len(), BYTES);
}
