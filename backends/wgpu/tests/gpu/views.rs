//! Regions as the program's own shaders have them.

use crate::{BYTES, fill, first_device, memory, of_usages, read};
use vrampool_test_support::BackendExt;
use vrampool_wgpu::wgpu::{self, BufferUsages};
use vrampool_wgpu::{Backend, BackendError, Placement, Region, RegionMut, WgpuDevice};

const ADD: &str = "
@group(0) @binding(0) var<storage, read_write> words: array<u32>;
@compute @workgroup_size(64) fn add(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < arrayLength(&words) { words[id.x] += 0x01010101u; }
}";

fn add(device: &WgpuDevice, binding: wgpu::BufferBinding<'_>) -> wgpu::CommandBuffer {
    let device = device.device();
    let source = wgpu::ShaderSource::Wgsl(ADD.into());
    let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label: None, source });
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: None,
        layout: None,
        module: &module,
        entry_point: Some("add"),
        compilation_options: wgpu::PipelineCompilationOptions::default(),
        cache: None,
    });
    let words = binding.size.map_or(0, |size| size.get() / 4);
    let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
        label: None,
        layout: &pipeline.get_bind_group_layout(0),
        entries: &[wgpu::BindGroupEntry { binding: 0, resource: wgpu::BindingResource::Buffer(binding) }],
    });
    let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
    pass.set_pipeline(&pipeline);
    pass.set_bind_group(0, &group, &[]);
    pass.dispatch_workgroups(words.div_ceil(64) as u32, 1, 1);
    drop(pass);
    encoder.finish()
}

#[test]
fn a_shader_gets_the_region_and_nothing_else() {
    let Some(device) = first_device() else { return };
    let stream = device.stream();
    let memory = memory(&device);
    let alignment = device.properties().alignment;
    assert!(alignment >= u64::from(device.device().limits().min_storage_buffer_offset_alignment));
    for (offset, len) in [(0, BYTES), (alignment, 256), (3 * alignment, 4)] {
        fill(&device, &stream, &memory, 1);
        let region = RegionMut::new(&memory, offset, len, &stream).expect("a region");
        let view = stream.view_mut(region).expect("a view");
        assert_eq!((view.region().offset(), view.len(), view.is_empty()), (offset, len, false));
        let binding = view.binding().expect("a binding");
        assert_eq!((binding.offset, binding.size.map(std::num::NonZero::get)), (offset, Some(len)));
        // Straight to the queue: the fill is submitted since the view was made.
        device.queue().submit([add(&device, binding)]);
        let bytes = read(&device, &stream, &memory);
        for (at, &byte) in (0..).zip(&bytes) {
            assert_eq!(byte, if (offset..offset + len).contains(&at) { 2 } else { 1 }, "{at}");
        }
    }
}

#[test]
fn an_impossible_binding_is_refused() {
    let Some(device) = first_device() else { return };
    let stream = device.stream();
    let other = device.stream();
    let memory = memory(&device);
    let vertices = device.memory(64, of_usages(Placement::Device, BufferUsages::VERTEX));
    let view = |memory, offset, len| {
        stream.view(Region::new(memory, offset, len, &stream).expect("a region")).expect("a view")
    };
    for error in [
        view(&memory, 4, 4).binding().expect_err("the offset is not aligned"),
        view(&memory, 0, 0).binding().expect_err("it is empty"),
        view(&vertices, 0, 64).binding().expect_err("vertices are not bound"),
        stream.view(Region::whole(&memory, &other)).expect_err("it is another stream's"),
    ] {
        assert!(matches!(error, BackendError::InvalidArgument { .. }), "{error}");
    }
    let empty = view(&memory, 0, 0).binding().expect_err("it is empty").to_string();
    assert!(empty.contains("it has 0 bytes; a binding has at least 1"), "{empty}");
    // The buffer and the offset are for commands that need no alignment.
    let part = view(&memory, 4, 4);
    assert_eq!((part.buffer(), part.offset()), (memory.buffer(), 4));
}

#[test]
fn uniforms_are_bound_too() {
    let Some(device) = first_device() else { return };
    let stream = device.stream();
    let kind = of_usages(Placement::Device, BufferUsages::UNIFORM | BufferUsages::COPY_DST);
    let memory = device.memory(1 << 20, kind);
    let largest = device.device().limits().max_uniform_buffer_binding_size;
    let view = |len| stream.view(Region::new(&memory, 0, len, &stream).expect("a region")).expect("a view");
    assert!(view(256).binding().is_ok());
    match view(1 << 20).binding() {
        Ok(_) => assert!(largest >= 1 << 20),
        Err(error) => {
            let sentence = format!("it has 1048576 bytes; the device binds at most {largest}");
            assert!(largest < 1 << 20 && error.to_string().contains(&sentence), "{error}");
        }
    }
}
