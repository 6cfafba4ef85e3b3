//! Streams keep their order and wait for each other; without the waits they do not. What is dropped under work is
//! freed behind it. One test at a time, and alone in their process, because others' work would be in the way of what
//! is to run at the same time.

#[path = "programs/mod.rs"]
mod programs;

use parking_lot::{Mutex, MutexGuard};
use programs::{Programs, all_devices};
use vrampool_opencl::{
    Backend, Capabilities, Event, OpenClDevice, OpenClMemory, OpenClStream, Placement, Stream,
};
use vrampool_test_support::{BackendExt, copy, fill, read, skipped, streams};

const BYTES: u64 = 64 * 1024;

/// Keeps the other tests away.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock()
}

fn memory(device: &OpenClDevice) -> OpenClMemory {
    device.memory(BYTES, Placement::Device)
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

/// Whether the device works on several queues at once. Without it, what a test does with that is skipped.
fn runs_queues_at_once(device: &OpenClDevice, programs: &Programs) -> bool {
    let at_once = programs.runs_queues_at_once();
    if !at_once {
        skipped(format_args!("{} runs one queue at a time", device.properties().name));
    }
    at_once
}

#[test]
fn random_work_on_several_queues_is_what_the_model_says_with_the_waits_alone() {
    let _alone = alone();
    for device in all_devices() {
        let programs = Programs::new(&device);
        let streams = streams::<_, 3>(&device);
        assert_eq!(wrong_memories(&device, &programs, &streams, true), 0);
        if runs_queues_at_once(&device, &programs) {
            let wrong = wrong_memories(&device, &programs, &streams, false);
            assert!(wrong > 0, "the test does not see a missing wait");
        }
    }
}

#[test]
fn neither_recording_nor_waiting_blocks_the_host() {
    let _alone = alone();
    for device in all_devices() {
        let programs = Programs::new(&device);
        if !runs_queues_at_once(&device, &programs) {
            continue;
        }
        let ([one, two], memory) = (streams(&device), memory(&device));
        // A fast device may complete before the host queries it, so the work gets longer. A blocked host always
        // queries after completion.
        let pending = [300, 1_200, 4_800, 19_200].into_iter().find_map(|delay| {
            programs.set_slowly(&one, &memory, 1, delay);
            let event = device.record(&one).expect("an event");
            device.wait(&two, &event).expect("a wait");
            let after = device.record(&two).expect("an event");
            let reached = [&event, &after].map(|event| event.is_complete().expect("an answer"));
            (reached == [false, false]).then_some((event, after))
        });
        let (event, after) = pending.expect("the host was blocked, or the wait is not there");
        device.synchronize(&two).expect("a wait");
        assert!(event.is_complete().expect("an answer") && after.is_complete().expect("an answer"));
    }
}

#[test]
fn an_event_that_was_dropped_is_waited_for() {
    let _alone = alone();
    for device in all_devices() {
        let programs = Programs::new(&device);
        let [one, two] = streams(&device);
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
            skipped(format_args!("{} has no shared memory", device.properties().name));
            continue;
        }
        if !runs_queues_at_once(&device, &programs) {
            continue;
        }
        // Alone in its context: others' memory is not counted.
        let device = OpenClDevice::builder(device.listed().ordinal).build().expect("a device");
        let programs = Programs::new(&device);
        let [one, two] = streams(&device);
        // On a discrete device, a thread may still have to release dropped memory.
        while device.deferred_bytes() > 0 {
            std::thread::yield_now();
        }
        let free = device.memory_info().expect("an answer").free_bytes;
        let shared = || device.memory(BYTES, Placement::Managed);
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
