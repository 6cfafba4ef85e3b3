//! Regions as typed views: in kernels, in `cudarc`'s copies, on the right stream and on another.

use crate::{BYTES, first_device, memory};
use std::time::Duration;
use vrampool_cuda::cudarc::driver::{DevicePtr, DeviceSlice, LaunchConfig, PushKernelArg};
use vrampool_cuda::cudarc::nvrtc;
use vrampool_cuda::{Backend, BackendError, Memory, Placement, Region, RegionMut, TestKernels};
use vrampool_test_support::BackendExt;

const COUNT: usize = (BYTES / 4) as usize;

/// Kernels whose parameters are views and numbers of 8 bytes.
const PTX: &str = include_str!("../../src/driver/test_kernels.ptx");

#[test]
fn a_kernel_reads_and_writes_views() {
    let Some(device) = first_device() else { return };
    let module = device.context().load_module(PTX.into()).expect("the driver compiles it");
    let [write_pattern, count_mismatches] = ["write_pattern", "count_mismatches"]
        .map(|name| module.load_function(name).expect("it is in the module"));
    let stream = device.stream();
    let config = LaunchConfig::for_num_elems(COUNT as u32);
    for placement in [Placement::Device, Placement::HostVisible, Placement::Managed] {
        let [bytes, count] = [BYTES, 8].map(|bytes| device.memory(bytes, placement));
        let mut count = stream.view_mut::<u64>(RegionMut::whole(&count, &stream)).expect("a view");
        let mut written = stream.view_mut::<f32>(RegionMut::whole(&bytes, &stream)).expect("a view");
        assert_eq!((written.len(), written.num_bytes()), (COUNT, BYTES as usize));
        let mut launch = stream.cudarc().launch_builder(&write_pattern);
        launch.arg(&mut written).arg(&BYTES).arg(&5u64);
        // SAFETY: the parameters are as the kernel declares them, and the view has as many bytes, of this stream.
        unsafe { launch.launch(config) }.expect("a launch");
        let read = stream.view::<f32>(Region::whole(&bytes, &stream)).expect("a view");
        for (seed, is_the_pattern) in [(5u64, true), (6, false)] {
            stream.cudarc().memcpy_htod(&[0u64], &mut count).expect("a copy");
            let mut launch = stream.cudarc().launch_builder(&count_mismatches);
            launch.arg(&read).arg(&BYTES).arg(&seed).arg(&mut count);
            // SAFETY: as above, and the other view has the 8 bytes of the count.
            unsafe { launch.launch(config) }.expect("a launch");
            let found = stream.cudarc().clone_dtoh(&count).expect("a copy");
            assert_eq!(found == [0], is_the_pattern, "{found:?} are not of seed {seed}");
        }
    }
}

#[test]
fn a_view_of_a_part_starts_where_the_part_does() {
    let Some(device) = first_device() else { return };
    let stream = device.stream();
    let memory = memory(&device);
    let part = Region::new(&memory, 512, 1024, &stream).expect("a region");
    let view = stream.view::<u32>(part.clone()).expect("a view");
    let (address, _order) = view.device_ptr(stream.cudarc());
    assert_eq!(Some(address), memory.address().map(|base| base + 512));
    assert_eq!(Some(address), part.address());
    assert_eq!((view.len(), view.region().offset()), (256, 512));
    assert_eq!(view.stream(), stream.cudarc());
}

#[test]
fn an_impossible_view_is_refused() {
    let Some(device) = first_device() else { return };
    let (stream, other) = (device.stream(), device.stream());
    let memory = memory(&device);
    let refused =
        |error: BackendError| assert!(matches!(error, BackendError::InvalidArgument { .. }), "{error}");
    let region = |offset, len| Region::new(&memory, offset, len, &stream).expect("a region");
    refused(stream.view::<f32>(region(2, 8)).expect_err("it is not aligned"));
    refused(stream.view::<f32>(region(0, 7)).expect_err("it is not a whole number"));
    refused(stream.view::<[f32; 0]>(region(0, 8)).expect_err("the type has no size"));
    refused(other.view::<f32>(region(0, 8)).expect_err("it is another stream's"));
    assert_eq!(stream.view::<f64>(region(8, 0)).expect("an empty view").len(), 0);
    let mine = device.per_thread_stream().expect("a stream");
    let region = Region::whole(&memory, &mine);
    std::thread::scope(|scope| {
        scope.spawn(|| refused(mine.view::<u8>(region).expect_err("it is another thread's stream")));
    });
}

#[test]
fn a_library_that_uses_another_stream_comes_after_the_views_own() {
    let Some(device) = first_device() else { return };
    let kernels = TestKernels::load(&device).expect("kernels");
    let (stream, other) = (device.stream(), device.stream());
    let memory = memory(&device);
    for round in 0..100u8 {
        kernels.delay(&stream, Duration::from_micros(300)).expect("queued");
        device.fill(&stream, RegionMut::whole(&memory, &stream), round).expect("a fill");
        let view = stream.view::<u8>(Region::whole(&memory, &stream)).expect("a view");
        assert_eq!(other.cudarc().clone_dtoh(&view).expect("a copy"), vec![round; BYTES as usize]);
    }
}

#[test]
fn a_kernel_compiled_at_run_time_takes_views() {
    let Some(device) = first_device() else { return };
    // `cudarc` panics where the compiler's library is missing.
    let names = ["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"];
    // SAFETY: NVIDIA's library, found by the system under its name; its initialisers ask for nothing.
    if !names.iter().any(|name| unsafe { libloading::Library::new(*name) }.is_ok()) {
        vrampool_test_support::skipped("NVRTC is not installed");
        return;
    }
    let source = r#"extern "C" __global__ void scale(float *data, float by, unsigned count) {
        unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < count) data[i] *= by;
    }"#;
    let module =
        device.context().load_module(nvrtc::compile_ptx(source).expect("it compiles")).expect("it loads");
    let scale = module.load_function("scale").expect("it is there");
    let stream = device.stream();
    let memory = memory(&device);
    let mut view = stream.view_mut::<f32>(RegionMut::whole(&memory, &stream)).expect("a view");
    stream.cudarc().memcpy_htod(&vec![2.0f32; COUNT], &mut view).expect("a copy");
    let mut launch = stream.cudarc().launch_builder(&scale);
    launch.arg(&mut view).arg(&1.5f32).arg(&(COUNT as u32));
    // SAFETY: the parameters are as the kernel declares them, and the view has `COUNT` elements, of this
    // stream.
    unsafe { launch.launch(LaunchConfig::for_num_elems(COUNT as u32)) }.expect("a launch");
    assert_eq!(stream.cudarc().clone_dtoh(&view).expect("a copy"), vec![3.0; COUNT]);
}
