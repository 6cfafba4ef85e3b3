//! Kernels for the tests, as PTX, which every driver compiles for its device: no toolkit is needed.

use std::sync::Arc;
use std::time::Duration;
use vrampool_cuda::cudarc::driver::{CudaFunction, CudaModule, LaunchConfig, PushKernelArg};
use vrampool_cuda::{CudaDevice, CudaStream, CudaView, CudaViewMut};

const PTX: &str = r"
.version 7.0
.target sm_50
.address_size 64

// out[i] = in[i] + 1
.visible .entry add_one(.param .u64 in, .param .u64 out, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .b32 %r<6>;
    .reg .f32 %f<3>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    mul.wide.u32 %rd5, %r5, 4;
    add.s64 %rd6, %rd3, %rd5;
    add.s64 %rd7, %rd4, %rd5;
    ld.global.f32 %f1, [%rd6];
    add.f32 %f2, %f1, 0f3F800000;
    st.global.f32 [%rd7], %f2;
DONE:
    ret;
}

// Keeps its stream busy.
.visible .entry spin(.param .u64 nanoseconds)
{
    .reg .pred %p<2>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [nanoseconds];
    mov.u64 %rd2, %globaltimer;
LOOP:
    mov.u64 %rd3, %globaltimer;
    sub.s64 %rd4, %rd3, %rd2;
    setp.lt.u64 %p1, %rd4, %rd1;
    @%p1 bra LOOP;
    ret;
}

.visible .entry write_to(.param .u64 address)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [address];
    mov.u32 %r1, 7;
    st.global.u32 [%rd1], %r1;
    ret;
}
";

#[allow(dead_code, reason = "each test file uses some")]
pub(crate) struct Kernels {
    add_one: CudaFunction,
    spin: CudaFunction,
    write_to: CudaFunction,
}

const ONE: LaunchConfig = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (1, 1, 1), shared_mem_bytes: 0 };

#[allow(dead_code, reason = "each test file uses some")]
impl Kernels {
    pub(crate) fn new(device: &CudaDevice) -> Self {
        let module: Arc<CudaModule> =
            device.context().load_module(PTX.into()).expect("the driver compiles it");
        let function = |name| module.load_function(name).expect("it is in the module");
        Self { add_one: function("add_one"), spin: function("spin"), write_to: function("write_to") }
    }

    pub(crate) fn add_one(
        &self,
        stream: &CudaStream,
        from: &CudaView<'_, f32>,
        to: &mut CudaViewMut<'_, f32>,
    ) {
        use vrampool_cuda::cudarc::driver::DeviceSlice;
        let count = from.len().min(to.len()) as u32;
        let mut launch = stream.cudarc().launch_builder(&self.add_one);
        launch.arg(from).arg(to).arg(&count);
        // SAFETY: the parameters are as the kernel declares them, and it touches `count` elements of either,
        // which both have; both views are of this stream, which is what they were checked for.
        unsafe { launch.launch(LaunchConfig::for_num_elems(count)) }.expect("a launch");
    }

    pub(crate) fn spin(&self, stream: &CudaStream, time: Duration) {
        let nanoseconds = time.as_nanos() as u64;
        let mut launch = stream.cudarc().launch_builder(&self.spin);
        launch.arg(&nanoseconds);
        // SAFETY: the parameter is as the kernel declares it, and the kernel touches no memory.
        unsafe { launch.launch(ONE) }.expect("a launch");
    }

    pub(crate) fn write_to_nowhere(&self, stream: &CudaStream) {
        let mut launch = stream.cudarc().launch_builder(&self.write_to);
        launch.arg(&16u64);
        // SAFETY: nothing has memory at this address: the device refuses, the context is lost, and no memory
        // changes.
        unsafe { launch.launch(ONE) }.expect("a launch");
    }
}
