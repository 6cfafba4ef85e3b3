//! Writes of a part of a word: wgpu copies whole words alone, so a kernel joins the new bytes with those that stay.

use crate::recorder::Commands;
use vrampool_backend::BackendError;
use wgpu::BufferUsages;

/// The word as it is, which becomes the result; the new bytes; the mask of those that are written.
const WGSL: &str = "
@group(0) @binding(0) var<storage, read_write> words: array<u32, 3>;
@compute @workgroup_size(1) fn join() { words[0] = (words[0] & ~words[2]) | (words[1] & words[2]); }
";

/// The kernel, and the words that it works on. Lists of commands use them in order.
#[derive(Debug)]
pub(crate) struct PartialWord {
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
    words: wgpu::Buffer,
}

impl PartialWord {
    pub(crate) fn new(device: &wgpu::Device) -> Self {
        let label = Some("vrampool: part of a word");
        let source = wgpu::ShaderSource::Wgsl(WGSL.into());
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label, source });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: None,
            module: &module,
            entry_point: None,
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        let words = device.create_buffer(&wgpu::BufferDescriptor {
            label,
            size: 12,
            usage,
            mapped_at_creation: false,
        });
        let group = device.create_bind_group(&wgpu::BindGroupDescriptor {
            label,
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[wgpu::BindGroupEntry { binding: 0, resource: words.as_entire_binding() }],
        });
        Self { pipeline, group, words }
    }

    /// Writes the first `tail` bytes of the word at `to` from the word at `from`.
    pub(crate) fn write(
        &self,
        commands: &mut Commands<'_>,
        from: (&wgpu::Buffer, u64),
        to: (&wgpu::Buffer, u64),
        tail: u64,
    ) -> Result<(), BackendError> {
        let (mask, mask_at) = commands.stage(&((1u32 << (8 * tail)) - 1).to_le_bytes())?;
        let encoder = commands.encoder();
        encoder.copy_buffer_to_buffer(to.0, to.1, &self.words, 0, Some(4));
        encoder.copy_buffer_to_buffer(from.0, from.1, &self.words, 4, Some(4));
        encoder.copy_buffer_to_buffer(&mask, mask_at, &self.words, 8, Some(4));
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.group, &[]);
        pass.dispatch_workgroups(1, 1, 1);
        drop(pass);
        encoder.copy_buffer_to_buffer(&self.words, 0, to.0, to.1, Some(4));
        Ok(())
    }
}
