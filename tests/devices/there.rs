//! The devices that are there, and what each can do.

use vrampool::any::{self, AnyDevice, AnyMemory, AnyStream, AnyTestKernels};
use vrampool::backend::AllocationRequest;
use vrampool::backend::{Capabilities, DeviceKind};
use vrampool::{Backend, Placement, Region, RegionMut, Source};
use vrampool_cuda_simulator_control::Simulator;

/// A device, and how it writes and verifies.
#[derive(Debug)]
pub(crate) struct There {
    pub(crate) name: String,
    pub(crate) device: AnyDevice,
    pub(crate) kernels: AnyTestKernels,
}

/// Every device, or those of the backends that `VRAMPOOL_TEST_BACKENDS`, a list separated by commas, names. A
/// backend without a device is reported, and is a failure where `VRAMPOOL_REQUIRE` names it.
pub(crate) fn devices() -> Vec<There> {
    let devices = any::devices();
    for absent in &devices.absent {
        vrampool_test_support::skip_backend(absent.backend, &absent.reason);
    }
    let open = |listed: any::DeviceListing| {
        let device = any::open(&listed.name).expect("it is there");
        let kernels = AnyTestKernels::load(&device).expect("kernels");
        There { name: listed.name, device, kernels }
    };
    let only = std::env::var("VRAMPOOL_TEST_BACKENDS").unwrap_or_default();
    let is_wanted = |listed: &any::DeviceListing| {
        let backend = listed.name.split(':').next().unwrap_or_default();
        only.is_empty() || only.split(',').any(|wanted| wanted == backend)
    };
    devices.there.into_iter().filter(is_wanted).map(open).collect()
}

/// Runs `test` on every device, and says which it is.
pub(crate) fn on_each(test: impl Fn(&There)) {
    for there in devices() {
        eprintln!("on {}", there.name);
        test(&there);
    }
}

impl There {
    pub(crate) fn can(&self, capability: Capabilities) -> bool {
        self.device.properties().capabilities.contains(capability)
    }

    /// Whether its streams run beside each other; else reports that the test is skipped.
    pub(crate) fn has_concurrent_streams(&self) -> bool {
        let has = self.can(Capabilities::CONCURRENT_STREAMS);
        if !has {
            vrampool_test_support::skipped(format_args!(
                "the streams of {} run one after the other",
                self.name
            ));
        }
        has
    }

    /// The same device with so much memory. None where that cannot be chosen and it has much more.
    pub(crate) fn limited(&self, bytes: u64) -> Option<Self> {
        let device: AnyDevice = match &self.device {
            AnyDevice::Host(_) => vrampool::host::HostDevice::builder().memory_limit(bytes).build().into(),
            #[cfg(feature = "opencl")]
            AnyDevice::OpenCl(device) => {
                let builder = vrampool::opencl::OpenClDevice::builder(device.listed().ordinal);
                builder.memory_limit(bytes).build().expect("a device").into()
            }
            #[cfg(feature = "wgpu")]
            AnyDevice::Wgpu(device) => device.with_memory_limit(bytes).expect("a device").into(),
            #[allow(unreachable_patterns, reason = "no other backend may be compiled in")]
            device if device.properties().total_bytes <= 2 * bytes => device.clone(),
            _ => {
                vrampool_test_support::skipped(format_args!(
                    "how much memory {} has is not ours to choose",
                    self.name
                ));
                return None;
            }
        };
        let kernels = AnyTestKernels::load(&device).expect("kernels");
        Some(Self { name: format!("{}, {bytes} bytes of it", self.name), device, kernels })
    }

    /// The same device with so much memory, or whatever else [`limited`](Self::limited) returns; no other
    /// test's memory is counted in what its driver [holds](Self::held).
    pub(crate) fn alone(&self, bytes: u64) -> Option<Self> {
        self.counted().limited(bytes)
    }

    /// The same device; no other test's memory is counted in what its driver [holds](Self::held).
    pub(crate) fn counted(&self) -> Self {
        let device = match &self.device {
            #[cfg(feature = "wgpu")]
            AnyDevice::Wgpu(_) => own_wgpu_device().into(),
            device => device.clone(),
        };
        let kernels = AnyTestKernels::load(&device).expect("kernels");
        Self { name: self.name.clone(), device, kernels }
    }

    /// Bytes that the driver has from the system for a device that is [counted](Self::counted), if it reports
    /// them.
    pub(crate) fn held(&self) -> Option<u64> {
        match &self.device {
            #[cfg(feature = "wgpu")]
            AnyDevice::Wgpu(device) => {
                let report = device.device().generate_allocator_report().expect("a report");
                Some(report.total_allocated_bytes)
            }
            _ => None,
        }
    }

    /// Bytes that are free, once the device has taken back what was dropped.
    pub(crate) fn free(&self) -> u64 {
        self.device.reclaim().expect("no fault");
        // The OpenCL backend releases memory on a separate thread.
        #[cfg(feature = "opencl")]
        while let AnyDevice::OpenCl(device) = &self.device
            && device.deferred_bytes() > 0
        {
            std::thread::yield_now();
            self.device.reclaim().expect("no fault");
        }
        self.device.memory_info().expect("figures").free_bytes
    }

    /// Returns the sources of the device.
    pub(crate) fn sources(&self) -> Vec<Source> {
        let can = |source: &Source| match source {
            Source::Driver => self.can(Capabilities::STREAM_ORDERED),
            Source::Virtual => self.can(Capabilities::VIRTUAL_MEMORY),
            _ => true,
        };
        Source::ALL.iter().copied().filter(can).collect()
    }

    /// Bytes that the device can copy and fill, not fewer.
    pub(crate) fn rounded(&self, bytes: u64) -> u64 {
        bytes.next_multiple_of(self.device.properties().copy_granularity)
    }

    /// Whether much memory is written in a moment.
    pub(crate) fn is_fast(&self) -> bool {
        // The simulated CUDA driver's kernels run on the host.
        self.device.properties().kind == DeviceKind::Discrete && Simulator::loaded().is_none()
    }

    pub(crate) fn streams<const N: usize>(&self) -> [AnyStream; N] {
        std::array::from_fn(|_| self.device.create_stream().expect("a stream"))
    }

    pub(crate) fn write(&self, stream: &AnyStream, bytes: RegionMut<'_, AnyMemory>, seed: u64) {
        self.kernels.write_pattern(stream, bytes, seed).expect("queued");
    }

    /// A count of bytes that are not as they were written, on the device; used on `stream` alone.
    pub(crate) fn count(&self, stream: &AnyStream) -> Count<'_> {
        let memory = self
            .device
            .allocate(&AllocationRequest::new(self.rounded(8), Placement::Device))
            .expect("memory");
        self.device.fill(stream, RegionMut::whole(&memory, stream), 0).expect("queued");
        Count { there: self, memory, stream: stream.clone() }
    }
}

/// A device of the program's own.
#[cfg(feature = "wgpu")]
fn own_wgpu_device() -> vrampool::wgpu::WgpuDevice {
    use std::task::{Context, Poll, Waker};
    use vrampool::wgpu::{WgpuDevice, wgpu};
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let parts = async {
        let adapters = instance.enumerate_adapters(wgpu::Backends::PRIMARY).await;
        let adapter = adapters.into_iter().next().expect("an adapter");
        adapter.request_device(&wgpu::DeviceDescriptor::default()).await.expect("a device")
    };
    match std::pin::pin!(parts).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready((device, queue)) => WgpuDevice::from_parts(device, queue).expect("a device"),
        Poll::Pending => unreachable!("it is ready outside a browser"),
    }
}

/// A count of bytes that are not as they were written.
#[derive(Debug)]
pub(crate) struct Count<'a> {
    there: &'a There,
    memory: AnyMemory,
    stream: AnyStream,
}

impl Count<'_> {
    /// Counts the bytes of a region of its stream that `seed` did not write.
    pub(crate) fn verify(&self, bytes: Region<'_, AnyMemory>, seed: u64) {
        let count = RegionMut::new(&self.memory, 0, 8, &self.stream).expect("a region");
        self.there.kernels.count_mismatches(&self.stream, bytes, seed, count).expect("queued");
    }

    /// Waits for its stream.
    pub(crate) fn read(&self) -> u64 {
        let mut bytes = vec![0; vrampool::Memory::len(&self.memory) as usize];
        let whole = Region::whole(&self.memory, &self.stream);
        self.there.device.download(&self.stream, whole, &mut bytes).expect("no fault");
        u64::from_le_bytes(bytes[..8].try_into().expect("eight"))
    }
}
