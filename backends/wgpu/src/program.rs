//! A compute kernel of this crate's own, and how it is run.

use crate::gpu::Gpu;
use crate::operand::Operand;
use crate::recorder::{PARAMETERS, PARAMETERS_SIZE};
use crate::shared::Shared;
use std::num::NonZero;
use vrampool_backend::BackendError;

/// A pipeline that takes parameters and some storage buffers.
#[derive(Debug)]
pub(crate) struct Program {
    pipeline: wgpu::ComputePipeline,
    layout: wgpu::BindGroupLayout,
}

impl Program {
    /// The entry point `name`, which has `operands` storage buffers.
    pub(crate) fn new(
        gpu: &Gpu,
        module: &wgpu::ShaderModule,
        name: &'static str,
        operands: u32,
    ) -> Result<Self, BackendError> {
        let entry = |binding, ty, has_dynamic_offset, min_binding_size| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset, min_binding_size },
            count: None,
        };
        let parameters = entry(0, wgpu::BufferBindingType::Uniform, true, PARAMETERS_SIZE);
        let storage = wgpu::BufferBindingType::Storage { read_only: false };
        let operands = (1..=operands).map(|binding| entry(binding, storage, false, NonZero::new(4)));
        let entries: Vec<_> = std::iter::once(parameters).chain(operands).collect();
        gpu.ask("Device::create_compute_pipeline", || {
            let device = gpu.device();
            let layout = device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor {
                label: Some(name),
                entries: &entries,
            });
            let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
                label: Some(name),
                bind_group_layouts: &[Some(&layout)],
                immediate_size: 0,
            });
            let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
                label: Some(name),
                layout: Some(&pipeline_layout),
                module,
                entry_point: Some(name),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                cache: None,
            });
            Self { pipeline, layout }
        })
    }

    /// Enqueues it in so many groups, with these words as its parameters.
    pub(crate) fn run(
        &self,
        device: &Shared,
        operands: &[&Operand<'_>],
        parameters: &[u32],
        groups: (u32, u32),
    ) -> Result<(), BackendError> {
        let gpu = device.gpu();
        device.recorder().record(gpu, |commands| {
            let uniforms = commands.uniforms()?;
            let binding = |buffer, offset, size| {
                wgpu::BindingResource::Buffer(wgpu::BufferBinding { buffer, offset, size })
            };
            let first = wgpu::BindGroupEntry { binding: 0, resource: binding(&uniforms, 0, PARAMETERS_SIZE) };
            let others = (1..).zip(operands).map(|(number, operand)| wgpu::BindGroupEntry {
                binding: number,
                resource: binding(operand.buffer, operand.offset, NonZero::new(operand.size)),
            });
            let entries: Vec<_> = std::iter::once(first).chain(others).collect();
            let descriptor =
                wgpu::BindGroupDescriptor { label: None, layout: &self.layout, entries: &entries };
            // By itself: a group that is refused must not get among the commands, which it would take with it.
            let group =
                gpu.ask("Device::create_bind_group", || gpu.device().create_bind_group(&descriptor))?;
            let offset = commands.parameters(bytemuck::cast_slice(parameters));
            let mut pass = commands.encoder().begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(&self.pipeline);
            pass.set_bind_group(0, &group, &[offset]);
            pass.dispatch_workgroups(groups.0, groups.1, 1);
            Ok(())
        })
    }
}

// Eleven words at most.
const _: () = assert!(PARAMETERS >= 11 * 4);
