//! Kernels of a program's own, by way of another crate: what is not `vrampool_opencl`'s here is `opencl3`'s.

use opencl3::command_queue::enqueue_nd_range_kernel;
use opencl3::context::{Context, context::retain_context};
use opencl3::event::release_event;
use opencl3::kernel::Kernel;
use opencl3::program::Program;
use parking_lot::Mutex;
use std::time::{Duration, Instant};
use vrampool_opencl::{
    Backend, Event, OpenClDevice, OpenClMemory, OpenClStream, OpenClView, OpenClViewMut, Placement,
    RegionMut, list,
};
use vrampool_test_support::{BackendExt, require};

const SOURCE: &str = "
__kernel void add_one(__global const float *from, ulong from_first, __global float *to, ulong to_first) {
    size_t i = get_global_id(0);
    to[to_first + i] = from[from_first + i] + 1;
}
// Computes for a number of rounds, then sets bytes.
__kernel void set_slowly(__global uchar *to, ulong first, ulong count, uint value, uint rounds) {
    uint x = value + 1;
    for (uint i = 0; i < rounds; i++) x = (x * 1664525u + 1013904223u) ^ (x >> 3);
    // Always 0, which the compiler cannot know.
    uint extra = x == 0xFFFFFFFFu && rounds % 7 == 3 ? 1 : 0;
    for (ulong i = 0; i < count; i++) to[first + i] = (uchar)(value + extra);
}
";

/// Returns every device, or skips the test without one.
pub(crate) fn all_devices() -> Vec<OpenClDevice> {
    let devices = require("opencl", list).unwrap_or_default();
    devices.iter().map(|device| OpenClDevice::open(device.ordinal).expect("a listed device")).collect()
}

/// The program's kernels on one device.
pub(crate) struct Programs {
    device: OpenClDevice,
    add_one: Mutex<Kernel>,
    set_slowly: Mutex<Kernel>,
    /// Rounds of `set_slowly` in a millisecond, about.
    rounds: u32,
}

impl Programs {
    pub(crate) fn new(device: &OpenClDevice) -> Self {
        // SAFETY: the context is alive; `opencl3` releases one count of it.
        unsafe { retain_context(device.context()) }.expect("a context");
        let context = Context::new(device.context(), &[device.device()]);
        let program = Program::create_and_build_from_source(&context, SOURCE, "").expect("a program");
        let kernel = |name| Mutex::new(Kernel::create(&program, name).expect("a kernel"));
        let mut programs = Self {
            device: device.clone(),
            add_one: kernel("add_one"),
            set_slowly: kernel("set_slowly"),
            rounds: 20_000,
        };
        let stream = device.stream();
        let memory = device.memory(1, Placement::Device);
        let time = |milliseconds| {
            let began = Instant::now();
            programs.set_slowly(&stream, &memory, 1, milliseconds);
            device.synchronize(&stream).expect("a wait");
            began.elapsed()
        };
        time(1);
        let took = time(100).max(Duration::from_micros(100));
        programs.rounds = (f64::from(programs.rounds) * 0.1 / took.as_secs_f64()).max(1000.0) as u32;
        programs
    }

    #[allow(dead_code, reason = "each test program uses a part of it")]
    pub(crate) fn add_one(
        &self,
        stream: &OpenClStream,
        from: &OpenClView<'_, f32>,
        to: &OpenClViewMut<'_, f32>,
    ) {
        let kernel = self.add_one.lock();
        set(&kernel, 0, from.cl_mem());
        set(&kernel, 1, from.first());
        set(&kernel, 2, to.cl_mem());
        set(&kernel, 3, to.first());
        run(stream, &kernel, from.len().min(to.len()));
    }

    /// Sets all bytes of `memory` after about so many milliseconds.
    pub(crate) fn set_slowly(
        &self,
        stream: &OpenClStream,
        memory: &OpenClMemory,
        value: u8,
        milliseconds: u32,
    ) {
        let view = stream.view_mut::<u8>(RegionMut::whole(memory, stream)).expect("a view");
        let kernel = self.set_slowly.lock();
        set(&kernel, 0, view.cl_mem());
        set(&kernel, 1, view.first());
        set(&kernel, 2, view.len() as u64);
        set(&kernel, 3, u32::from(value));
        set(&kernel, 4, self.rounds * milliseconds);
        run(stream, &kernel, 1);
    }

    #[allow(dead_code, reason = "each test program uses a part of it")]
    /// Whether the device works on one queue while another is busy, as seen. A device that does may not do it
    /// every time.
    pub(crate) fn runs_queues_at_once(&self) -> bool {
        let [busy, idle] = [0; 2].map(|_| self.device.stream());
        let [one, two] = [0; 2].map(|_| self.device.memory(1, Placement::Device));
        (0..10).any(|_| {
            self.set_slowly(&busy, &one, 1, 50);
            let done = self.device.record(&busy).expect("an event");
            self.device.fill(&idle, RegionMut::whole(&two, &idle), 1).expect("a fill");
            self.device.synchronize(&idle).expect("a wait");
            let at_once = !done.is_complete().expect("an answer");
            self.device.synchronize(&busy).expect("a wait");
            at_once
        })
    }
}

fn set<T>(kernel: &Kernel, index: u32, value: T) {
    // SAFETY: the callers set what the kernels above take, in their order.
    unsafe { kernel.set_arg(index, &value) }.expect("an argument");
}

/// On the stream's queue, past the stream.
fn run(stream: &OpenClStream, kernel: &Kernel, items: usize) {
    let none = std::ptr::null();
    // SAFETY: the kernel's arguments are set, and it works on as many items as its buffers have elements.
    let event = unsafe {
        enqueue_nd_range_kernel(stream.queue(), kernel.get(), 1, none, &raw const items, none, 0, none.cast())
    };
    // SAFETY: the event is the launch's own.
    unsafe { release_event(event.expect("a launch")) }.expect("an event");
}
