//! A training loop with a context, a stream and kernels of the program's own `cudarc` (0.19): the weights and the tensors of
//! each step come from a pool. Fits a line by gradient descent. Without an NVIDIA GPU it prints why, and ends.

use cudarc::driver::{CudaContext, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use std::error::Error;
use vrampool::cuda::CudaDevice;
use vrampool::{Backend, Pool};

/// Made from `cudarc_training.cu` by NVRTC. Where NVRTC is installed, `cudarc::nvrtc::compile_ptx` compiles the source at run time.
const KERNELS: &str = include_str!("cudarc_training.ptx");
const RATE: f32 = 0.1;

fn main() -> Result<(), Box<dyn Error>> {
    if let Err(error) = vrampool::cuda::list() {
        println!("{error}");
        return Ok(());
    }
    // The program's own.
    let context = CudaContext::new(0)?;
    let module = context.load_module(Ptx::from_src(KERNELS))?;
    let (errors_kernel, step_kernel) =
        (module.load_function("line_errors")?, module.load_function("line_step")?);

    // The pool is on the same context, and its stream is the program's.
    let device = CudaDevice::from_context(context.clone())?;
    let stream = device.wrap_stream(context.new_stream()?)?;
    let pool = Pool::builder(&device).limit(256 << 20).build()?;

    let mut line = pool.upload(&[0f32, 0.0], &stream)?; // slope and intercept
    for step in 0..300u32 {
        let batch = 500 + 7 * (step % 50); // sizes vary
        let inputs: Vec<f32> = (0..batch).map(|i| i as f32 / batch as f32 * 4.0 - 2.0).collect();
        let targets: Vec<f32> = inputs.iter().map(|x| 3.0 * x - 1.0).collect();
        let count = u64::from(batch);

        let (x, y) = (pool.upload(&inputs, &stream)?, pool.upload(&targets, &stream)?);
        let mut errors = pool.allocate_elements::<f32>(count, &stream)?;
        let threads = LaunchConfig {
            grid_dim: (batch.div_ceil(256), 1, 1),
            block_dim: (256, 1, 1),
            shared_mem_bytes: 0,
        };
        let one = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };
        {
            // While these views exist, their memory is in use on the stream.
            let (x, y) = (stream.view::<f32>(x.on(&stream)?)?, stream.view::<f32>(y.on(&stream)?)?);
            let line = stream.view::<f32>(line.on(&stream)?)?;
            let mut errors = stream.view_mut::<f32>(errors.on_mut(&stream)?)?;
            let mut launch = stream.cudarc().launch_builder(&errors_kernel);
            launch.arg(&x).arg(&y).arg(&line).arg(&mut errors).arg(&count);
            // SAFETY: the arguments are the kernel's. It reads `count` inputs and targets, and writes as many errors.
            unsafe { launch.launch(threads) }?;
        }
        {
            let (x, errors) = (stream.view::<f32>(x.on(&stream)?)?, stream.view::<f32>(errors.on(&stream)?)?);
            let mut line = stream.view_mut::<f32>(line.on_mut(&stream)?)?;
            let mut launch = stream.cudarc().launch_builder(&step_kernel);
            launch.arg(&x).arg(&errors).arg(&mut line).arg(&RATE).arg(&count);
            // SAFETY: the arguments are the kernel's. It reads `count` inputs and errors, and updates two weights.
            unsafe { launch.launch(one) }?;
        }
    } // dropped: the next step reuses the memory in the order of the stream, and nothing waits

    let line = line.read_vec::<f32>(&stream)?;
    println!("{}: y = {:.3} x {:+.3}; {}", device.properties().name, line[0], line[1], pool.stats());
    assert!((line[0] - 3.0).abs() < 0.01 && (line[1] + 1.0).abs() < 0.01);
    Ok(())
}
