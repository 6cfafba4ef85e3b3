//! Programs, and kernels whose launches are recorded with the device's own operations.

use crate::device::WgpuDevice;
use crate::error::blame;
use crate::memory::WgpuMemory;
use crate::operand::Operand;
use crate::recorder::{PARAMETERS, PARAMETERS_SIZE};
use crate::shared::DeviceCore;
use crate::stream::WgpuStream;
use std::num::NonZero;
use vrampool_backend::{
    BackendError, Region, RegionMut, arguments,
    fork::{self, ForkArc},
};

/// A shader module in WGSL, compiled for one device: for kernels that are launched often and among the pool's
/// operations. A launch is recorded with these operations and submitted with them, unlike commands of
/// [`WgpuStream::encode`], which are a submission each.
///
/// ```no_run
/// use vrampool_wgpu::{AllocationRequest, Backend, Placement, Program, RegionMut, WgpuDevice};
/// # fn main() -> Result<(), vrampool_wgpu::BackendError> {
/// let source = "
///     struct Parameters { to_at: u32, count: u32 }
///     @group(0) @binding(0) var<uniform> parameters: Parameters;
///     @group(0) @binding(1) var<storage, read_write> to: array<f32>;
///     @compute @workgroup_size(64)
///     fn ones(@builtin(global_invocation_id) id: vec3<u32>) {
///         if id.x < parameters.count { to[parameters.to_at + id.x] = 1.0; }
///     }";
/// let device = WgpuDevice::open(0)?;
/// let ones = Program::build(&device, source)?.kernel("ones", 1)?;
/// let stream = device.create_stream()?;
/// let memory = device.allocate(&AllocationRequest::new(4 * 100, Placement::Device))?;
/// ones.launch(&stream, &[], &[RegionMut::whole(&memory, &stream)], &[100], (2, 1))?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Program {
    module: ForkArc<wgpu::ShaderModule>,
    device: ForkArc<DeviceCore>,
}

/// A kernel of a [`Program`]. Threads may share it.
///
/// Its bindings are in group 0. Binding 0 is `var<uniform>`, words of 32 bits: for each region the number of
/// its first word within its binding, then the parameters of the launch. Bindings 1 and on are the regions,
/// those that are read first, each `var<storage, read_write>`: regions of an arena are parts of one buffer,
/// which one dispatch may either read or write. A binding begins at an aligned offset at or before its
/// region, so words before the region's first one belong to others.
#[derive(Debug)]
pub struct Kernel {
    compiled: ForkArc<(wgpu::ComputePipeline, wgpu::BindGroupLayout)>,
    regions: u32,
    device: ForkArc<DeviceCore>,
}

impl Program {
    /// Compiles `source` for `device`.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] with wgpu's text when it refuses the source; else what wgpu reports.
    pub fn build(device: &WgpuDevice, source: &str) -> Result<Self, BackendError> {
        fork::check()?;
        let gpu = &device.core.gpu;
        let source = wgpu::ShaderSource::Wgsl(source.into());
        let descriptor = wgpu::ShaderModuleDescriptor { label: Some("vrampool"), source };
        let module =
            gpu.ask("Device::create_shader_module", || gpu.device().create_shader_module(descriptor));
        let module = module.map_err(|error| blame("source", error))?;
        Ok(Self { module: ForkArc::new(module), device: device.core.clone() })
    }

    /// The entry point of this name, which takes so many regions.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] with wgpu's text when there is no such entry point, or its bindings
    /// are not those of a [`Kernel`]; else what wgpu reports.
    pub fn kernel(&self, name: &str, regions: u32) -> Result<Kernel, BackendError> {
        fork::check()?;
        let entry = |binding, ty, has_dynamic_offset, min_binding_size| wgpu::BindGroupLayoutEntry {
            binding,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer { ty, has_dynamic_offset, min_binding_size },
            count: None,
        };
        let parameters = entry(0, wgpu::BufferBindingType::Uniform, true, PARAMETERS_SIZE);
        let storage = wgpu::BufferBindingType::Storage { read_only: false };
        let bindings = (1..=regions).map(|binding| entry(binding, storage, false, NonZero::new(4)));
        let entries: Vec<_> = std::iter::once(parameters).chain(bindings).collect();
        let gpu = &self.device.gpu;
        let made = gpu.ask("Device::create_compute_pipeline", || {
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
                module: &self.module,
                entry_point: Some(name),
                compilation_options: wgpu::PipelineCompilationOptions::default(),
                cache: None,
            });
            (pipeline, layout)
        });
        let compiled = ForkArc::new(made.map_err(|error| blame("kernel", error))?);
        Ok(Kernel { compiled, regions, device: self.device.clone() })
    }
}

impl Kernel {
    /// Enqueues the kernel on `stream` in `groups` workgroups, in two dimensions, and returns.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] for a stream of another device than the program's, regions of other
    /// streams or devices, of memory without the usage `STORAGE`, of no words or not whole ones, or larger
    /// than the device can bind; for written regions that overlap others, more or fewer regions than the
    /// kernel takes, more than 16 words for regions and parameters together, and more groups than the device
    /// runs. Else what wgpu reports.
    pub fn launch(
        &self,
        stream: &WgpuStream,
        read: &[Region<'_, WgpuMemory>],
        written: &[RegionMut<'_, WgpuMemory>],
        parameters: &[u32],
        groups: (u32, u32),
    ) -> Result<(), BackendError> {
        fork::check()?;
        arguments::check_stream(stream, self.device.id)?;
        let written: Vec<_> = written.iter().map(RegionMut::as_region).collect();
        let (read, written): (Vec<_>, Vec<_>) = (read.iter().collect(), written.iter().collect());
        stream.check_regions(&read, &written)?;
        let operands = read.into_iter().chain(written).map(|region| Operand::new(stream, region));
        let operands = operands.collect::<Result<Vec<_>, _>>()?;
        if operands.len() != self.regions as usize {
            let reason = format!("the kernel takes {}, not {}", self.regions, operands.len());
            return Err(BackendError::invalid("regions", reason));
        }
        if operands.iter().any(|operand| operand.words == 0) {
            return Err(BackendError::invalid("region", "it has 0 bytes; a binding has at least 4"));
        }
        let words: Vec<u32> =
            operands.iter().map(|operand| operand.at).chain(parameters.iter().copied()).collect();
        if size_of_val(&words[..]) as u64 > PARAMETERS {
            let reason = format!("{} words with those of the regions; {PARAMETERS} bytes fit", words.len());
            return Err(BackendError::invalid("parameters", reason));
        }
        let most = self.device.limits.max_compute_workgroups_per_dimension;
        if groups.0 > most || groups.1 > most {
            let reason = format!("{} x {}; the device runs at most {most} a side", groups.0, groups.1);
            return Err(BackendError::invalid("groups", reason));
        }
        self.run(&operands.iter().collect::<Vec<_>>(), &words, groups)
    }

    /// Enqueues it with these words as all of its parameters, in groups that the device runs.
    pub(crate) fn run(
        &self,
        operands: &[&Operand<'_>],
        parameters: &[u32],
        groups: (u32, u32),
    ) -> Result<(), BackendError> {
        let (gpu, (pipeline, layout)) = (&self.device.gpu, &*self.compiled);
        self.device.recorder.record(gpu, |commands| {
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
            let descriptor = wgpu::BindGroupDescriptor { label: None, layout, entries: &entries };
            // By itself: a group that is refused must not get among the commands, which it would take with
            // it.
            let group =
                gpu.ask("Device::create_bind_group", || gpu.device().create_bind_group(&descriptor))?;
            let offset = commands.parameters(bytemuck::cast_slice(parameters));
            let mut pass = commands.encoder().begin_compute_pass(&wgpu::ComputePassDescriptor::default());
            pass.set_pipeline(pipeline);
            pass.set_bind_group(0, &group, &[offset]);
            pass.dispatch_workgroups(groups.0, groups.1, 1);
            Ok(())
        })
    }
}
