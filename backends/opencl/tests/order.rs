//! Streams keep their order and wait for each other, on queues of either order; without the waits they do
//! not. What is dropped under work is freed behind it. One test at a time, and alone in their process,
//! because others' work would be in the way of what is to run at the same time.

#[path = "programs/mod.rs"]
mod programs;

use opencl3::command_queue::enqueue_copy_buffer;
use opencl3::event::release_event;
use parking_lot::{Mutex, MutexGuard};
use programs::Programs;
use vrampool_backend::AllocationRequest;
use vrampool_opencl::{
    Backend, Capabilities, Event, Memory, OpenClDevice, OpenClMemory, OpenClStream, Placement, QueueOrder,
    Region, Stream, list,
};
use vrampool_test_support::{copy, fill, read, require};

const BYTES: u64 = 64 * 1024;

/// Returns every device, or skips the test without one.
fn all_devices() -> Vec<OpenClDevice> {
    let devices = require("opencl", list).unwrap_or_default();
    devices.iter().map(|device| OpenClDevice::open(device.ordinal).expect("a listed device")).collect()
}

/// Keeps the other tests away.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock()
}

fn memory(device: &OpenClDevice) -> OpenClMemory {
    device.allocate(&AllocationRequest::new(BYTES, Placement::Device)).expect("memory")
}

/// A generator of numbers, so that a round that fails can be had again.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % bound
    }
}

/// Random work on several streams and memories, the same as the model's; how many memories are not what the
/// model says.
fn wrong_memories(device: &OpenClDevice, programs: &Programs, streams: &[OpenClStream], waits: bool) -> u32 {
    const MEMORIES: usize = 3;
    let mut wrong = 0;
    for seed in 0..20 {
        let mut random = Random(seed);
        let memories = [0; MEMORIES].map(|_| memory(device));
        let mut model = [0u8; MEMORIES];
        // By which stream each was used last.
        let mut last: [Option<OpenClStream>; MEMORIES] = [const { None }; MEMORIES];
        for memory in &memories {
            fill(device, &streams[0], memory, 0);
        }
        device.synchronize(&streams[0]).expect("a wait");
        for _ in 0..24 {
            let stream = &streams[random.below(streams.len())];
            let (from, to) = (random.below(MEMORIES), random.below(MEMORIES));
            for used in [from, to] {
                let before = last[used].replace(stream.clone());
                if let Some(before) = before.filter(|before| waits && before.id() != stream.id()) {
                    device.wait(stream, &device.record(&before).expect("an event")).expect("a wait");
                }
            }
            if from == to {
                model[to] = random.below(256) as u8;
                programs.set_slowly(stream, &memories[to], model[to], 1);
            } else {
                model[to] = model[from];
                copy(device, stream, &memories[from], &memories[to]);
            }
            // Sent on its way, so that nothing is in order because it has not begun.
            device.record(stream).expect("an event");
        }
        for stream in streams {
            device.synchronize(stream).expect("a wait");
        }
        for (memory, value) in memories.iter().zip(model) {
            wrong += u32::from(read(device, &streams[0], memory).iter().any(|&byte| byte != value));
        }
    }
    wrong
}

fn streams(device: &OpenClDevice, orders: &[QueueOrder]) -> Vec<OpenClStream> {
    let device = |order| device.clone().with_queue_order(order);
    orders.iter().map(|&order| device(order).create_stream().expect("a stream")).collect()
}

#[test]
fn random_work_on_several_queues_is_what_the_model_says_with_the_waits_alone() {
    let _alone = alone();
    use QueueOrder::{InOrder, OutOfOrder};
    for device in all_devices() {
        let programs = Programs::new(&device);
        let at_once = programs.runs_queues_at_once();
        for orders in [&[InOrder, InOrder][..], &[OutOfOrder, OutOfOrder], &[InOrder, OutOfOrder, InOrder]] {
            let streams = streams(&device, orders);
            assert_eq!(wrong_memories(&device, &programs, &streams, true), 0, "{orders:?}");
            if at_once {
                let wrong = wrong_memories(&device, &programs, &streams, false);
                assert!(wrong > 0, "{orders:?}: the test does not see a missing wait");
            }
        }
        if !at_once {
            vrampool_test_support::skipped(format_args!(
                "{} runs one queue at a time",
                device.properties().name
            ));
        }
    }
}

/// How many of `rounds` read bytes that the stream's own work before had not written yet. `copy_to` makes the
/// copy.
fn stale_reads(
    device: &OpenClDevice,
    programs: &Programs,
    rounds: u32,
    copy_to: impl Fn(&OpenClStream, &OpenClMemory, &OpenClMemory),
) -> u32 {
    let stream = device.create_out_of_order_stream().expect("a stream");
    let (written, seen) = (memory(device), memory(device));
    let mut stale = 0;
    for round in 0..rounds {
        let round = round as u8;
        programs.set_slowly(&stream, &written, round, 2);
        copy_to(&stream, &written, &seen);
        device.synchronize(&stream).expect("a wait");
        stale += u32::from(read(device, &stream, &seen).iter().any(|&byte| byte != round));
    }
    stale
}

#[test]
fn an_out_of_order_queue_keeps_the_order_of_its_stream() {
    let _alone = alone();
    for device in all_devices() {
        let programs = Programs::new(&device);
        let by_us =
            |stream: &OpenClStream, from: &OpenClMemory, to: &OpenClMemory| copy(&device, stream, from, to);
        assert_eq!(stale_reads(&device, &programs, 200, by_us), 0, "a copy ran ahead of a kernel");
        let by_hand = |stream: &OpenClStream, from: &OpenClMemory, to: &OpenClMemory| {
            let view = |memory| stream.view::<u8>(Region::whole(memory, stream)).expect("a view").cl_mem();
            let bytes = from.len() as usize;
            // SAFETY: both buffers have as many bytes, and the driver keeps a count of them.
            let event = unsafe {
                enqueue_copy_buffer(stream.queue(), view(from), view(to), 0, 0, bytes, 0, std::ptr::null())
            };
            // SAFETY: the event is the copy's own.
            unsafe { release_event(event.expect("a copy")) }.expect("an event");
        };
        // On a busy machine it may take more than one attempt.
        let mut attempts = (0..10).map(|_| stale_reads(&device, &programs, 200, by_hand));
        match attempts.find(|&stale| stale > 0).unwrap_or(0) {
            0 => {
                let name = &device.properties().name;
                assert!(!name.starts_with("pthread"), "PoCL does not, so the test does not see it");
                vrampool_test_support::skipped(format_args!(
                    "{name} keeps the order of its queues by itself"
                ));
            }
            stale => eprintln!("{stale} of 200 copies without a barrier ran ahead"),
        }
    }
}

#[test]
fn neither_recording_nor_waiting_blocks_the_host() {
    let _alone = alone();
    for device in all_devices() {
        let programs = Programs::new(&device);
        if !programs.runs_queues_at_once() {
            vrampool_test_support::skipped(format_args!(
                "{} runs work when it is sent",
                device.properties().name
            ));
            continue;
        }
        for order in [QueueOrder::InOrder, QueueOrder::OutOfOrder] {
            let two = streams(&device, &[order, order]);
            let memory = memory(&device);
            // A fast device may complete before the host queries it, so the work gets longer. A blocked
            // host always queries after completion.
            let pending = [300, 1_200, 4_800, 19_200].into_iter().find_map(|delay| {
                programs.set_slowly(&two[0], &memory, 1, delay);
                let event = device.record(&two[0]).expect("an event");
                device.wait(&two[1], &event).expect("a wait");
                let after = device.record(&two[1]).expect("an event");
                let reached = [&event, &after].map(|event| event.is_complete().expect("an answer"));
                (reached == [false, false]).then_some((event, after))
            });
            let (event, after) = pending.expect("the host was blocked, or the wait is not there");
            device.synchronize(&two[1]).expect("a wait");
            assert!(event.is_complete().expect("an answer") && after.is_complete().expect("an answer"));
        }
    }
}

#[test]
fn an_event_that_was_dropped_is_waited_for() {
    let _alone = alone();
    for device in all_devices() {
        let programs = Programs::new(&device);
        let [one, two] = [0; 2].map(|_| device.create_stream().expect("a stream"));
        for round in 0..20u8 {
            let (written, seen) = (memory(&device), memory(&device));
            programs.set_slowly(&one, &written, round, 2);
            device.wait(&two, &device.record(&one).expect("an event")).expect("a wait");
            copy(&device, &two, &written, &seen);
            // Neither is kept for the work that is pending.
            drop(written);
            assert_eq!(read(&device, &two, &seen), vec![round; BYTES as usize]);
        }
    }
}

#[test]
fn memory_that_is_dropped_during_work_is_freed_after_it() {
    let _alone = alone();
    for device in all_devices() {
        let programs = Programs::new(&device);
        if !device.properties().capabilities.contains(Capabilities::MANAGED) {
            vrampool_test_support::skipped(format_args!("{} has no shared memory", device.properties().name));
            continue;
        }
        if !programs.runs_queues_at_once() {
            vrampool_test_support::skipped(format_args!(
                "{} runs work when it is sent",
                device.properties().name
            ));
            continue;
        }
        // Alone in its context: others' memory is not counted.
        let device = OpenClDevice::builder(device.listed().ordinal).build().expect("a device");
        let programs = Programs::new(&device);
        let [one, two] = [0; 2].map(|_| device.create_stream().expect("a stream"));
        // On a discrete device, a thread may still have to release dropped memory.
        while device.deferred_bytes() > 0 {
            std::thread::yield_now();
        }
        let free = device.memory_info().expect("an answer").free_bytes;
        let shared = || device.allocate(&AllocationRequest::new(BYTES, Placement::Managed)).expect("memory");
        let (used, unused) = (shared(), shared());
        fill(&device, &two, &used, 1);
        programs.set_slowly(&one, &used, 1, 200);
        let done = device.record(&one).expect("an event");
        drop((used, unused));
        // The other may still be with that thread.
        while device.deferred_bytes() > BYTES {
            std::thread::yield_now();
        }
        assert_eq!(device.deferred_bytes(), BYTES, "work uses the one, and nothing the other");
        assert_eq!(device.memory_info().expect("an answer").free_bytes, free - BYTES);
        device.synchronize(&two).expect("a wait");
        if device.deferred_bytes() == 0 {
            assert!(done.is_complete().expect("an answer"), "one of two streams is done");
        }
        device.synchronize(&one).expect("a wait");
        while device.deferred_bytes() > 0 {
            std::thread::yield_now();
        }
        assert_eq!(device.memory_info().expect("an answer").free_bytes, free);
    }
}
