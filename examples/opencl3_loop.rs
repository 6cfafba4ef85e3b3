//! A loop of kernels that `opencl3` compiles and launches, on buffers of a pool. Without OpenCL it prints why, and
//! ends.

use opencl3::command_queue::CommandQueue;
use opencl3::context::Context;
use opencl3::device::{CL_DEVICE_TYPE_ALL, Device, get_all_devices};
use opencl3::kernel::{ExecuteKernel, Kernel};
use opencl3::program::Program;
use std::error::Error;
use vrampool::opencl::{OpenClDevice, OpenClViewMut, list};
use vrampool::{Backend, Pool};

const FLOATS: u64 = 1 << 16;

const SOURCE: &str = "__kernel void set(__global float *to, ulong first, float value) {
    to[first + get_global_id(0)] = value;
}";

fn main() -> Result<(), Box<dyn Error>> {
    if let Err(error) = list() {
        println!("{error}");
        return Ok(());
    }
    let Some(&id) = get_all_devices(CL_DEVICE_TYPE_ALL)?.first() else { return Ok(()) };
    let context = Context::from_device(&Device::new(id))?;
    let program = Program::create_and_build_from_source(&context, SOURCE, "")?;
    let kernel = Kernel::create(&program, "set")?;
    #[allow(deprecated, reason = "devices of OpenCL 1.2 have no other way")]
    let queue = CommandQueue::create_default(&context, 0)?;

    // SAFETY: the context and its device exist.
    let device = unsafe { OpenClDevice::from_context(context.get(), id) }?;
    // SAFETY: the queue exists, and is of that context.
    let stream = unsafe { device.wrap_queue(queue.get()) }?;
    let pool = Pool::builder(&device).limit(64 << 20).build()?;
    for step in 0..10_u8 {
        let mut numbers = pool.allocate_elements::<f32>(FLOATS, &stream)?; // from the second step on a hit
        {
            let to: OpenClViewMut<'_, f32> = stream.view_mut(numbers.on_mut(&stream)?)?;
            let value = f32::from(step);
            let mut launch = ExecuteKernel::new(&kernel);
            // SAFETY: the kernel's first argument is a buffer.
            unsafe { launch.set_arg(&to.cl_mem()) };
            // SAFETY: its second one is a number of 64 bits.
            unsafe { launch.set_arg(&to.first()) };
            // SAFETY: its third one is a float.
            unsafe { launch.set_arg(&value) };
            // SAFETY: it writes as many floats as `to` has, from its first on.
            unsafe { launch.set_global_work_size(to.len()).enqueue_nd_range(&queue) }?;
        }
        assert_eq!(numbers.read_vec::<f32>(&stream)?, [f32::from(step); FLOATS as usize]);
    }
    println!("{}: hit rate {:.2}", device.properties().name, pool.stats().hit_rate());
    Ok(())
}
