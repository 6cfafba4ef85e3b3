//! Programs of a caller's own whose kernels are recorded with the device's operations.

use crate::first_device;
use vrampool_test_support::BackendExt;
use vrampool_wgpu::wgpu::BufferUsages;
use vrampool_wgpu::{
    Backend, BackendError, Kernel, MemoryKind, Placement, Program, Region, RegionMut, Usage, WgpuDevice,
    WgpuMemory, WgpuStream,
};

const WGSL: &str = "
struct Parameters { from_at: u32, to_at: u32, by: f32, count: u32 }
@group(0) @binding(0) var<uniform> p: Parameters;
@group(0) @binding(1) var<storage, read_write> from_: array<f32>;
@group(0) @binding(2) var<storage, read_write> to: array<f32>;
@compute @workgroup_size(4)
fn scale(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x < p.count { to[p.to_at + id.x] = from_[p.from_at + id.x] * p.by; }
}";

struct Setup {
    device: WgpuDevice,
    stream: WgpuStream,
    scale: Kernel,
    memory: WgpuMemory,
}

impl Setup {
    fn new() -> Option<Self> {
        let device = first_device()?;
        let stream = device.stream();
        let scale = Program::build(&device, WGSL).and_then(|program| program.kernel("scale", 2));
        let memory = device.memory(4096, Placement::Device);
        device.fill(&stream, RegionMut::whole(&memory, &stream), 0).expect("a fill");
        Some(Self { device, stream, scale: scale.expect("a kernel"), memory })
    }

    fn at(&self, offset: u64, len: u64) -> RegionMut<'_, WgpuMemory> {
        RegionMut::new(&self.memory, offset, len, &self.stream).expect("a region")
    }

    fn launch(&self, from: [u64; 2], to: [u64; 2]) -> Result<(), BackendError> {
        let [from, to] = [from, to].map(|[offset, len]| self.at(offset, len));
        self.scale.launch(&self.stream, &[from.as_region()], &[to], &[2.0_f32.to_bits(), 5], (2, 1))
    }
}

#[test]
fn a_kernel_takes_regions_wherever_they_lie_and_comes_in_order() {
    let Some(setup) = Setup::new() else { return };
    let values = [1.0_f32, 2.0, 3.0, 4.0, 5.0];
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    setup.device.upload(&setup.stream, &bytes, setup.at(4, 20)).expect("an upload");
    for (from, to) in [(4, 1000), (1000, 260), (260, 24)] {
        setup.launch([from, 20], [to, 20]).expect("queued");
    }
    let mut found = [0; 28];
    setup.device.download(&setup.stream, setup.at(20, 28).as_region(), &mut found).expect("a download");
    let found = found.chunks_exact(4).map(|four| f32::from_le_bytes(four.try_into().expect("four")));
    // The last value of the first place, the eightfold values, and nothing behind them.
    assert!(found.eq([5.0, 8.0, 16.0, 24.0, 32.0, 40.0, 0.0]));
}

#[test]
fn invalid_launches_are_refused_and_work_goes_on() {
    let Some(setup) = Setup::new() else { return };
    let Setup { device, stream, scale, .. } = &setup;
    let refused = |what: &str, answer: Result<(), BackendError>| {
        assert!(matches!(answer, Err(BackendError::InvalidArgument { .. })), "{what}: {answer:?}");
    };
    refused("a source", Program::build(device, "nonsense").map(drop));
    let program = Program::build(device, WGSL).expect("a program");
    refused("a name", program.kernel("no_such_kernel", 2).map(drop));
    refused("bindings", program.kernel("scale", 1).map(drop));

    refused("overlap", setup.launch([0, 20], [16, 20]));
    refused("itself", setup.launch([0, 20], [0, 20]));
    refused("an odd offset", setup.launch([1, 20], [100, 20]));
    refused("an odd length", setup.launch([0, 18], [100, 20]));
    refused("nothing", setup.launch([0, 0], [100, 20]));
    let (from, to) = (|| setup.at(0, 20).as_region(), || setup.at(100, 20));
    refused("one region", scale.launch(stream, &[], &[to()], &[0, 0], (1, 1)));
    refused("three", scale.launch(stream, &[from(), from()], &[to()], &[0, 0], (1, 1)));
    refused("words", scale.launch(stream, &[from()], &[to()], &[0; 15], (1, 1)));
    refused("groups", scale.launch(stream, &[from()], &[to()], &[0, 0], (1 << 31, 1)));
    refused("rows of groups", scale.launch(stream, &[from()], &[to()], &[0, 0], (1, u32::MAX)));
    let other = device.stream();
    refused("a stream", scale.launch(&other, &[from()], &[to()], &[0, 0], (1, 1)));
    let elsewhere = WgpuDevice::open(0).expect("a device");
    let (foreign, far) = (elsewhere.stream(), elsewhere.memory(64, Placement::Device));
    let far = || RegionMut::whole(&far, &foreign);
    refused("a device", scale.launch(&foreign, &[far().as_region()], &[to()], &[0, 0], (1, 1)));
    let usage = Usage(u64::from((BufferUsages::COPY_SRC | BufferUsages::COPY_DST).bits()));
    let kind = MemoryKind::new(Placement::Device).with_usage(usage);
    let plain = device.memory(64, kind);
    let plain = [Region::whole(&plain, stream)];
    refused("a usage", scale.launch(stream, &plain, &[to()], &[0, 0], (1, 1)));

    // Sixteen words are not too many, and no group is no work.
    scale.launch(stream, &[from()], &[to()], &[0; 14], (0, 1)).expect("queued");
    setup.launch([0, 20], [100, 20]).expect("queued");
    device.synchronize(stream).expect("no fault");
}
