//! A pool under a wgpu program that has its own instance, device, queue and pipeline: the program records and submits its
//! commands as before, and only its buffers come from the pool. Without a device it prints why, and ends.

use std::error::Error;
use vrampool::wgpu::WgpuDevice;
use vrampool::wgpu::wgpu::{self, util::DeviceExt};
use vrampool::{Backend, Pool};

const SHADER: &str = "
    @group(0) @binding(0) var<storage, read> factors: array<f32>;
    @group(0) @binding(1) var<storage, read_write> numbers: array<f32>;
    @compute @workgroup_size(64)
    fn scale(@builtin(global_invocation_id) id: vec3<u32>) {
        if id.x < arrayLength(&numbers) { numbers[id.x] *= factors[0]; }
    }";

fn main() -> Result<(), Box<dyn Error>> {
    // The program's own. wgpu is the version of `vrampool::wgpu::wgpu`: 30.
    let instance = wgpu::Instance::default();
    let adapter = match block_on(instance.request_adapter(&wgpu::RequestAdapterOptions::default())) {
        Ok(adapter) => adapter,
        Err(error) => {
            println!("{error}");
            return Ok(());
        }
    };
    let (device, queue) = block_on(adapter.request_device(&wgpu::DeviceDescriptor::default()))?;
    let pipeline = pipeline(&device, SHADER, "scale");
    let factors = device.create_buffer_init(&wgpu::util::BufferInitDescriptor {
        label: Some("factors"),
        contents: &3f32.to_ne_bytes(),
        usage: wgpu::BufferUsages::STORAGE,
    });

    // The pool is on the same device and queue. The program keeps its handles.
    let pooled = WgpuDevice::from_parts(device.clone(), queue)?;
    let stream = pooled.create_stream()?;
    let pool = Pool::builder(&pooled).limit(64 << 20).build()?;
    for step in 0..10u32 {
        let count = 1000 + 100 * step; // sizes vary; most steps reuse the buffer of the step before
        let mut numbers = pool.upload(&vec![step as f32; count as usize], &stream)?;
        {
            // While this view exists, its memory is in use on the stream.
            let view = stream.view_mut(numbers.on_mut(&stream)?)?;
            let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &pipeline.get_bind_group_layout(0),
                entries: &[
                    wgpu::BindGroupEntry { binding: 0, resource: factors.as_entire_binding() },
                    wgpu::BindGroupEntry {
                        binding: 1,
                        resource: wgpu::BindingResource::Buffer(view.binding()?),
                    },
                ],
            });
            let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            dispatch(&mut encoder, &pipeline, &group, count.div_ceil(64));
            // In order with the pool's own work, where `queue.submit` would not be.
            stream.submit([encoder.finish()])?;
        }
        assert_eq!(numbers.read_vec::<f32>(&stream)?, vec![3.0 * step as f32; count as usize]);
    }
    println!("{}: {}", pooled.properties().name, pool.stats());
    Ok(())
}

/// These futures are ready at once outside a browser.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}

/// Compiles WGSL `source` and builds a pipeline of its function `entry_point`.
fn pipeline(device: &wgpu::Device, source: &str, entry_point: &str) -> wgpu::ComputePipeline {
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor {
        label: None,
        source: wgpu::ShaderSource::Wgsl(source.into()),
    });
    device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: Some(entry_point),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    })
}

/// Records a pass that runs `pipeline` on the buffers of `group`, `workgroups` times its workgroup.
fn dispatch(
    encoder: &mut wgpu::CommandEncoder,
    pipeline: &wgpu::ComputePipeline,
    group: &wgpu::BindGroup,
    workgroups: u32,
) {
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    pass.set_pipeline(pipeline);
    pass.set_bind_group(0, group, &[]);
    pass.dispatch_workgroups(workgroups, 1, 1);
}
