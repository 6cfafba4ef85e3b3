//! A compute loop with a wgpu pipeline of the program's own: buffers come from the pool, and bind groups take their
//! regions. Without a Vulkan driver it prints why, and ends.

mod wgpu_kernel;

use std::error::Error;
use vrampool::wgpu::WgpuDevice;
use vrampool::wgpu::wgpu::{BindGroupDescriptor, BindGroupEntry, BindingResource};
use vrampool::{Backend, Pool};
use wgpu_kernel::{dispatch, pipeline};

const FLOATS: u32 = 1 << 16;

const SHADER: &str = "
    @group(0) @binding(0) var<storage, read_write> numbers: array<f32>;
    @compute @workgroup_size(64)
    fn add_one(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&numbers) { numbers[id.x] += 1.0; }
    }";

fn main() -> Result<(), Box<dyn Error>> {
    // A program that has a `wgpu::Device` and a `wgpu::Queue` passes them to `WgpuDevice::from_parts`.
    let device = match WgpuDevice::open(0) {
        Ok(device) => device,
        Err(error) if error.is_unavailable() => {
            println!("{error}");
            return Ok(());
        }
        Err(error) => return Err(error.into()),
    };
    let pipeline = pipeline(device.device(), SHADER, "add_one");
    let stream = device.create_stream()?;
    let pool = Pool::builder(&device).limit(64 << 20).build()?;
    for step in 0..10 {
        let mut numbers = pool.allocate_elements::<f32>(FLOATS.into(), &stream)?; // from the second step on a hit
        numbers.fill(0, &stream)?;
        {
            // While this view exists, its memory is in use on the stream.
            let view = stream.view_mut(numbers.on_mut(&stream)?)?;
            let group = device.device().create_bind_group(&BindGroupDescriptor {
                label: None,
                layout: &pipeline.get_bind_group_layout(0),
                entries: &[BindGroupEntry { binding: 0, resource: BindingResource::Buffer(view.binding()?) }],
            });
            stream.encode(|encoder| dispatch(encoder, &pipeline, &group, FLOATS / 64))?;
        }
        assert_eq!(numbers.read_vec::<f32>(&stream)?, [1.0; FLOATS as usize], "step {step}");
    }
    println!("{}: hit rate {:.2}", device.properties().name, pool.stats().hit_rate());
    Ok(())
}
