//! A kernel that breaks its context: what is asked of the device afterwards is a typed error, drops do no
//! harm, and the device is opened again in another context. Alone in its process.

use opencl3::command_queue::enqueue_nd_range_kernel;
use opencl3::context::{Context, context::retain_context};
use opencl3::kernel::Kernel;
use opencl3::program::Program;
use vrampool_opencl::{Backend, BackendError, OpenClDevice, OpenClStream, Placement, RegionMut, list};
use vrampool_test_support::{BackendExt, require};

const SOURCE: &str = "__kernel void nowhere(__global int *to, ulong far) { to[far + get_global_id(0)] = 1; }";

/// The first of NVIDIA's devices, whose contexts are lost together; elsewhere such a write is the process's
/// own, or nothing.
fn guarded_device() -> Option<OpenClDevice> {
    let devices = require("opencl", list)?;
    let found = devices.iter().find(|device| device.interface.contains("NVIDIA"));
    if found.is_none() {
        vrampool_test_support::skipped("no device here guards its memory");
    }
    found.map(|device| OpenClDevice::open(device.ordinal).expect("a listed device"))
}

/// Writes far beyond `view`'s buffer.
fn write_to_nowhere(device: &OpenClDevice, stream: &OpenClStream) {
    let memory = device.memory(4096, Placement::Device);
    let view = stream.view_mut::<u8>(RegionMut::whole(&memory, stream)).expect("a view");
    // SAFETY: the context is alive; `opencl3` releases one count of it.
    unsafe { retain_context(device.context()) }.expect("a context");
    let context = Context::new(device.context(), &[device.device()]);
    let program = Program::create_and_build_from_source(&context, SOURCE, "").expect("a program");
    let kernel = Kernel::create(&program, "nowhere").expect("a kernel");
    let (items, none) = (64usize, std::ptr::null());
    // SAFETY: the arguments are the kernel's.
    unsafe { kernel.set_arg(0, &view.cl_mem()) }.expect("an argument");
    // SAFETY: as above.
    unsafe { kernel.set_arg(1, &(1u64 << 44)) }.expect("an argument");
    // SAFETY: the kernel's write faults on the device, which has memory of its own, and harms nothing of the
    // host's.
    let launched = unsafe {
        enqueue_nd_range_kernel(stream.queue(), kernel.get(), 1, none, &raw const items, none, 0, none.cast())
    };
    launched.expect("a launch");
    // `opencl3` panics if the release of a dropped object fails.
    std::mem::forget((kernel, program, context));
}

#[test]
fn a_bad_address_loses_the_device_and_says_so() {
    let Some(device) = guarded_device() else { return };
    let stream = device.stream();
    let memory = device.memory(4096, Placement::Device);
    let pinned = device.memory(4096, Placement::HostVisible);
    write_to_nowhere(&device, &stream);
    let lost = |answer: Result<(), BackendError>| {
        let error = answer.expect_err("the context is lost");
        assert!(error.is_device_lost(), "{error}");
    };
    lost(device.synchronize(&stream));
    lost(
        device
            .fill(&stream, RegionMut::whole(&memory, &stream), 1)
            .and_then(|()| device.synchronize(&stream)),
    );
    let again = OpenClDevice::open(device.listed().ordinal);
    assert!(again.is_err() || again.is_ok_and(|again| again.id() != device.id()), "it is another context");
    drop((memory, pinned, stream, device));
}
