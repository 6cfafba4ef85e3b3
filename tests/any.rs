//! Devices by name: names are distinguished from other text, an error lists what is there, and nothing of one backend passes for
//! another's.

use vrampool::Error;
use vrampool::any::{self, Name};
use vrampool_test_support as _;

#[test]
fn names_of_devices_are_distinguished_from_other_texts() {
    for name in ["auto", "host", "cuda", "cuda:1", "cuda:GPU-0123", "cuda:anything"] {
        assert_eq!(name.parse::<Name>().expect(name).to_string(), name);
    }
    for name in ["", ":", "abacus", "cuda:", "host:", "host:0", "auto:1", "CUDA", " cuda", "cuda 0", "0"] {
        let error = name.parse::<Name>().expect_err(name).to_string();
        assert!(error.contains(&format!("{name:?}")), "{error}");
        assert!(error.contains("known are auto, cuda, cuda:NUMBER, cuda:UUID"), "{error}");
        assert!(error.ends_with(", host"), "{error}");
    }
}

#[test]
fn an_absent_device_is_an_error_that_lists_available_ones() {
    let compiled = [
        ("cuda", cfg!(feature = "cuda")),
        ("opencl", cfg!(feature = "opencl")),
        ("wgpu", cfg!(feature = "wgpu")),
        ("host", cfg!(feature = "host")),
    ];
    for name in ["abacus", "cuda:4096", "cuda:GPU-x"] {
        let error = any::open(name).expect_err(name);
        let Error::NotOpened(error) = error else { panic!("{error:?}") };
        let text = error.to_string();
        assert!(text.starts_with(&format!("no device `{name}`: ")), "{text}");
        assert_eq!(text.contains("host (host memory)"), cfg!(feature = "host"), "{text}");
        for (backend, is_compiled) in compiled {
            assert_eq!(text.contains(&format!("feature `{backend}`")), !is_compiled, "{text}");
        }
        assert_eq!(text.matches(&error.cause.to_string()).count(), 1, "said once: {text}");
    }
}

#[cfg(all(feature = "host", feature = "cuda"))]
#[test]
fn objects_of_one_backend_are_refused_by_another() {
    use vrampool::any::{AnyDevice, AnyMemory};
    use vrampool::backend::AllocationRequest;
    use vrampool::cuda::CudaDevice;
    use vrampool::host::HostDevice;
    use vrampool::{Backend, BackendError, Placement, Region, RegionMut, Stream};

    let device = AnyDevice::from(HostDevice::new());
    let stream = device.create_stream().expect("a stream");
    let event = device.record(&stream).expect("an event");
    let memory = device.allocate(&AllocationRequest::new(8, Placement::Device)).expect("memory");
    let whole = Region::whole(&memory, &stream);
    let refused = [
        ("device", device.as_cuda().err()),
        ("stream", stream.as_cuda().err()),
        ("event", event.as_cuda().err()),
        ("memory", memory.as_cuda().err()),
        ("memory", whole.clone().project(AnyMemory::as_cuda).err()),
        ("memory", RegionMut::whole(&memory, &stream).project(AnyMemory::as_cuda).err()),
        ("device", CudaDevice::try_from(device.clone()).err()),
    ];
    for (argument, error) in refused {
        let reason = "it is one of the backend host, not of cuda";
        assert_eq!(error, Some(BackendError::invalid(argument, reason)));
    }
    let own = whole.project(AnyMemory::as_host).expect("it is the host's");
    assert_eq!((own.offset(), own.len(), own.stream_id()), (0, 8, stream.id()));
}
