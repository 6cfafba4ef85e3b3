//! Work runs in the order of the calls, the program's own submissions included, and only calls that wait by
//! contract wait.

use crate::{BYTES, can_map, fill, first_device, mapping_device, memory, read};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use vrampool_test_support::BackendExt;
use vrampool_wgpu::{Backend, Event, Placement, Region, RegionMut, WgpuDevice, WgpuMemory, WgpuStream, wgpu};

/// Few bytes, so that there are many operations.
const LEN: u64 = 4096;
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
        let allocate = |placement: Placement| device.memory(LEN, placement);
        Self {
            device: device.clone(),
            streams: (0..3).map(|_| device.stream()).collect(),
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
                    let (from, to) = (read.buffer(), written.buffer());
                    encoder.copy_buffer_to_buffer(from, read.offset(), to, written.offset(), len);
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
fn work_runs_in_the_order_of_calls_on_any_stream() {
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

#[test]
fn the_programs_commands_are_behind_what_was_enqueued_before_without_any_view() {
    let Some(device) = first_device() else { return };
    let stream = device.stream();
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
    let Some(device) = mapping_device() else { return };
    let stream = device.stream();
    let large = 8 << 20;
    let [one, two] = [0; 2].map(|_| device.memory(large, Placement::Device));
    let seen = device.memory(4, Placement::HostVisible);
    for round in 1..=20u8 {
        fill(&device, &stream, &one, round);
        let written = stream.view_mut(RegionMut::whole(&seen, &stream)).expect("a view");
        let mut encoder = device.device().create_command_encoder(&Default::default());
        for _ in 0..10 {
            encoder.copy_buffer_to_buffer(one.buffer(), 0, two.buffer(), 0, large);
        }
        encoder.copy_buffer_to_buffer(two.buffer(), 0, written.buffer(), 0, 4);
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
    let stream = device.stream();
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
fn work_completes_without_a_query() {
    let Some(device) = first_device() else { return };
    // The same device of wgpu's under another handle, so that the buffer's contents can be read at the end.
    let limited = device.with_memory_limit(1 << 20).expect("a device");
    let buffer = {
        let stream = limited.stream();
        let memory = memory(&limited);
        fill(&limited, &stream, &memory, 0x77);
        memory.buffer().clone()
    };
    drop(limited);
    let stream = device.stream();
    let seen = memory(&device);
    let written = stream.view_mut(RegionMut::whole(&seen, &stream)).expect("a view");
    stream
        .encode(|encoder| encoder.copy_buffer_to_buffer(&buffer, 0, written.buffer(), 0, BYTES))
        .expect("commands");
    assert_eq!(read(&device, &stream, &seen), vec![0x77; BYTES as usize]);
}
