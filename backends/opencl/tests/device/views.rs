//! Kernels of the program's own on regions: by offset, and by sub-buffers.

use crate::all_devices;
use crate::programs::Programs;
use vrampool_backend::AllocationRequest;
use vrampool_opencl::{
    Backend, BackendError, OpenClDevice, OpenClMemory, OpenClStream, Placement, Region, RegionMut,
};

fn floats(count: usize) -> Vec<u8> {
    (0..count).flat_map(|i| (i as f32).to_le_bytes()).collect()
}

fn upload(device: &OpenClDevice, stream: &OpenClStream, bytes: &[u8]) -> OpenClMemory {
    let memory =
        device.allocate(&AllocationRequest::new(bytes.len() as u64, Placement::Device)).expect("memory");
    device.upload(stream, bytes, RegionMut::whole(&memory, stream)).expect("an upload");
    memory
}

fn float_at(bytes: &[u8], index: usize) -> f32 {
    f32::from_le_bytes(bytes[4 * index..4 * index + 4].try_into().expect("four bytes"))
}

#[test]
fn a_kernel_works_on_a_region_and_on_nothing_else() {
    for device in all_devices() {
        let (programs, stream) = (Programs::new(&device), device.create_stream().expect("a stream"));
        let (from, to) = (upload(&device, &stream, &floats(256)), upload(&device, &stream, &floats(256)));
        let from_region = Region::new(&from, 4 * 10, 4 * 100, &stream).expect("a region");
        let to_region = RegionMut::new(&to, 4 * 55, 4 * 100, &stream).expect("a region");
        let from_view = stream.view::<f32>(from_region).expect("a view");
        let to_view = stream.view_mut::<f32>(to_region).expect("a view");
        assert_eq!((from_view.len(), from_view.first(), from_view.offset()), (100, 10, 40));
        assert_eq!((to_view.len(), to_view.first(), to_view.is_empty()), (100, 55, false));
        programs.add_one(&stream, &from_view, &to_view);
        let bytes = crate::read(&device, &stream, &to);
        for index in 0..256 {
            let wanted = if (55..155).contains(&index) { index - 55 + 10 + 1 } else { index };
            assert_eq!(float_at(&bytes, index), wanted as f32, "{index}");
        }
    }
}

#[test]
fn a_sub_buffer_is_its_region() {
    for device in all_devices() {
        let (programs, stream) = (Programs::new(&device), device.create_stream().expect("a stream"));
        let alignment = device.properties().alignment;
        let count = alignment as usize;
        for placement in [Placement::Device, Placement::HostVisible, Placement::Managed] {
            let memory = match device.allocate(&AllocationRequest::new(4 * alignment, placement)) {
                Err(BackendError::Unsupported { .. }) => continue,
                memory => memory.expect("memory"),
            };
            device.upload(&stream, &floats(count), RegionMut::whole(&memory, &stream)).expect("an upload");
            let quarter =
                |nth| RegionMut::new(&memory, nth * alignment, alignment, &stream).expect("a region");
            let view = |nth| stream.view_mut::<f32>(quarter(nth)).expect("a view");
            let (from, to) = (view(1).sub_buffer().expect("aligned"), view(3).sub_buffer().expect("aligned"));
            programs.add_one_to(&stream, from.cl_mem(), to.cl_mem(), count / 4);
            drop((from, to));
            let bytes = crate::read(&device, &stream, &memory);
            for index in 0..count {
                let wanted = if index < 3 * count / 4 { index } else { index - count / 2 + 1 };
                assert_eq!(float_at(&bytes, index), wanted as f32, "{index}");
            }
        }
    }
}

#[test]
fn a_sub_buffer_begins_at_a_multiple_of_the_alignment_in_bytes() {
    for device in all_devices() {
        let stream = device.create_stream().expect("a stream");
        let alignment = device.properties().alignment;
        assert!(alignment.is_power_of_two() && (4..=4096).contains(&alignment), "{alignment}");
        let memory =
            device.allocate(&AllocationRequest::new(8 * alignment, Placement::Device)).expect("memory");
        let sub_buffer = |offset, len| {
            let region = Region::new(&memory, offset, len, &stream).expect("a region");
            stream.view::<u8>(region).expect("a view").sub_buffer().map(|_| ())
        };
        for offset in [0, alignment, 7 * alignment] {
            sub_buffer(offset, 1).expect("it is aligned");
            sub_buffer(offset, alignment).expect("it is aligned");
        }
        for (offset, len) in [(1, 8), (alignment / 2, 8), (alignment + 4, 8), (alignment, 0)] {
            let error = sub_buffer(offset, len).expect_err("the driver would refuse it");
            assert!(matches!(error, BackendError::InvalidArgument { argument: "region", .. }), "{error}");
        }
    }
}

#[test]
fn regions_that_are_no_elements_or_another_streams_are_refused() {
    for device in all_devices() {
        let [stream, other] = [0; 2].map(|_| device.create_stream().expect("a stream"));
        let memory = crate::memory(&device);
        let region = |offset, len| Region::new(&memory, offset, len, &stream).expect("a region");
        for (offset, len) in [(0, 3), (1, 4), (2, 8)] {
            let error = stream.view::<f32>(region(offset, len)).expect_err("these are no floats");
            assert!(matches!(error, BackendError::InvalidArgument { argument: "region", .. }), "{error}");
        }
        assert!(stream.view::<[f32; 0]>(region(0, 4)).is_err());
        let error = other.view::<f32>(region(0, 4)).expect_err("it is another stream's");
        assert!(matches!(error, BackendError::InvalidArgument { argument: "stream", .. }), "{error}");
    }
}
