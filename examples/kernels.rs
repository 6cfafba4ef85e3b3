//! One kernel on the device that is named: `kernels [DEVICE]`, by default `auto`. It computes
//! `errors = slope * x + intercept - y` on the host, by OpenCL, by wgpu or by CUDA, with the features that are on.

use std::error::Error;
use vrampool::any::{self, AnyDevice, AnyMemory, AnyStream};
use vrampool::{Backend, Pool, Region, RegionMut};

type Read<'a> = Region<'a, AnyMemory>;
type Written<'a> = RegionMut<'a, AnyMemory>;

fn main() -> Result<(), Box<dyn Error>> {
    let name = std::env::args().nth(1).unwrap_or_else(|| "auto".into());
    let device = any::open(&name)?;
    let stream = device.create_stream()?;
    let pool = Pool::builder(&device).limit(64 << 20).build()?;

    let count = 10_000;
    let x = pool.upload(&vec![2.0f32; count], &stream)?;
    let y = pool.upload(&vec![1.0f32; count], &stream)?;
    let line = pool.upload(&[3.0f32, -1.0], &stream)?;
    let mut errors = pool.allocate_elements::<f32>(count as u64, &stream)?;
    let reads = [x.on(&stream)?, y.on(&stream)?, line.on(&stream)?];
    run(&device, &stream, reads, errors.on_mut(&stream)?, count as u32)?;
    let errors = errors.read_vec::<f32>(&stream)?;
    println!("{}: {} values, the first is {}", device.properties().name, errors.len(), errors[0]);
    assert!(errors.iter().all(|&error| error == 4.0));
    Ok(())
}

/// The kernel of the device. Other features of vrampool add variants.
fn run(
    device: &AnyDevice,
    stream: &AnyStream,
    reads: [Read<'_>; 3],
    written: Written<'_>,
    count: u32,
) -> Result<(), Box<dyn Error>> {
    match device {
        AnyDevice::Host(_) => Ok(on_host(stream, reads, written)?),
        #[cfg(feature = "opencl")]
        AnyDevice::OpenCl(device) => Ok(by_opencl(device, stream, reads, written, count)?),
        #[cfg(feature = "wgpu")]
        AnyDevice::Wgpu(device) => Ok(by_wgpu(device, stream, reads, written, count)?),
        #[cfg(feature = "cuda")]
        AnyDevice::Cuda(device) => by_cuda(device, stream, reads, written, count),
        other => Err(format!("no kernel for {}, with {count} values", other.properties().name).into()),
    }
}

/// Regions are slices in a closure, which runs on the stream's thread.
fn on_host<'a>(
    stream: &AnyStream,
    [x, y, line]: [Read<'a>; 3],
    errors: Written<'_>,
) -> Result<(), vrampool::BackendError> {
    let host = |region: Read<'a>| region.project(AnyMemory::as_host);
    let reads = [host(x)?, host(y)?, host(line)?];
    let writes = [errors.project(AnyMemory::as_host)?];
    stream.as_host()?.launch(reads, writes, |[x, y, line], [errors]: [&mut [f32]; 1]| {
        for (error, (x, y)) in errors.iter_mut().zip(x.iter().zip(y)) {
            *error = line[0] * x + line[1] - y;
        }
    })
}

/// Regions are buffers with offsets. `Program` compiles the source; kernels of `opencl3` take the same views.
#[cfg(feature = "opencl")]
fn by_opencl<'a>(
    device: &vrampool::opencl::OpenClDevice,
    stream: &AnyStream,
    [x, y, line]: [Read<'a>; 3],
    errors: Written<'_>,
    count: u32,
) -> Result<(), vrampool::BackendError> {
    use vrampool::opencl::{Arguments, Grid, Program};
    // Each view is two arguments: the buffer, and the offset in bytes.
    const SOURCE: &str = "
        #define AT(buffer, at) ((__global float *)(buffer + at))
        __kernel void errors(__global uchar *x, ulong x_at, __global uchar *y, ulong y_at,
            __global uchar *line, ulong line_at, __global uchar *to, ulong to_at, ulong count) {
            size_t i = get_global_id(0);
            __global float *p = AT(line, line_at);
            if (i < count) AT(to, to_at)[i] = p[0] * AT(x, x_at)[i] + p[1] - AT(y, y_at)[i];
        }";
    let kernel = Program::build(device, SOURCE, c"")?.kernel(c"errors")?;
    let stream = stream.as_opencl()?;
    let view = |region: Read<'a>| stream.view::<f32>(region.project(AnyMemory::as_opencl)?);
    let (x, y, line) = (view(x)?, view(y)?, view(line)?);
    let to = stream.view_mut::<f32>(errors.project(AnyMemory::as_opencl)?)?;
    let arguments = Arguments::new().view(&x).view(&y).view(&line).view(&to).long(count.into());
    // `count` work-groups, of 1 × 1 items each.
    let grid = Grid::new(count as usize, [1, 1]);
    // SAFETY: the arguments are the kernel's. It reads and writes `count` floats of each view, and two of `line`.
    unsafe { kernel.launch(stream, grid, &arguments) }
}

/// Regions are storage bindings of group 0, from binding 1 on. Binding 0 has the number of each region's first word,
/// then the parameters of the launch.
#[cfg(feature = "wgpu")]
fn by_wgpu<'a>(
    device: &vrampool::wgpu::WgpuDevice,
    stream: &AnyStream,
    [x, y, line]: [Read<'a>; 3],
    errors: Written<'_>,
    count: u32,
) -> Result<(), vrampool::BackendError> {
    use vrampool::wgpu::Program;
    const SOURCE: &str = "
        struct Parameters { x_at: u32, y_at: u32, line_at: u32, to_at: u32, count: u32 }
        @group(0) @binding(0) var<uniform> p: Parameters;
        @group(0) @binding(1) var<storage, read_write> x: array<f32>;
        @group(0) @binding(2) var<storage, read_write> y: array<f32>;
        @group(0) @binding(3) var<storage, read_write> line: array<f32>;
        @group(0) @binding(4) var<storage, read_write> to: array<f32>;
        @compute @workgroup_size(64)
        fn errors(@builtin(global_invocation_id) id: vec3<u32>) {
            if id.x < p.count {
                to[p.to_at + id.x] = line[p.line_at] * x[p.x_at + id.x] + line[p.line_at + 1] - y[p.y_at + id.x];
            }
        }";
    // The name of the entry point, and the number of its regions.
    let kernel = Program::build(device, SOURCE)?.kernel("errors", 4)?;
    let wgpu = |region: Read<'a>| region.project(AnyMemory::as_wgpu);
    let written = [errors.project(AnyMemory::as_wgpu)?];
    let reads = [wgpu(x)?, wgpu(y)?, wgpu(line)?];
    // The parameters, then the numbers of work-groups.
    kernel.launch(stream.as_wgpu()?, &reads, &written, &[count], (count.div_ceil(64), 1))
}

/// Regions are slices of `cudarc`. The kernel is that of `cudarc_training.cu`.
#[cfg(feature = "cuda")]
fn by_cuda<'a>(
    device: &vrampool::cuda::CudaDevice,
    stream: &AnyStream,
    [x, y, line]: [Read<'a>; 3],
    errors: Written<'_>,
    count: u32,
) -> Result<(), Box<dyn Error>> {
    use cudarc::driver::{LaunchConfig, PushKernelArg};
    let module =
        device.context().load_module(cudarc::nvrtc::Ptx::from_src(include_str!("cudarc_training.ptx")))?;
    let kernel = module.load_function("line_errors")?;
    let stream = stream.as_cuda()?;
    let view = |region: Read<'a>| stream.view::<f32>(region.project(AnyMemory::as_cuda)?);
    let (x, y, line) = (view(x)?, view(y)?, view(line)?);
    let mut errors = stream.view_mut::<f32>(errors.project(AnyMemory::as_cuda)?)?;
    let threads =
        LaunchConfig { grid_dim: (count.div_ceil(256), 1, 1), block_dim: (256, 1, 1), shared_mem_bytes: 0 };
    let count = u64::from(count);
    let mut launch = stream.cudarc().launch_builder(&kernel);
    launch.arg(&x).arg(&y).arg(&line).arg(&mut errors).arg(&count);
    // SAFETY: the arguments are the kernel's. It reads and writes `count` floats of each view, and two of `line`.
    unsafe { launch.launch(threads) }?;
    Ok(())
}
