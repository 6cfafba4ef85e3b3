//! Kernels of the program's own on regions, by offset.

use crate::all_devices;
use crate::programs::Programs;
use vrampool_opencl::{Backend, BackendError, Placement, Region, RegionMut};
use vrampool_test_support::BackendExt;

#[test]
fn a_kernel_works_on_a_region_and_on_nothing_else() {
    let floats: Vec<f32> = (0..256).map(|i| i as f32).collect();
    for device in all_devices() {
        let (programs, stream) = (Programs::new(&device), device.stream());
        let [from, to] = [0; 2].map(|_| {
            let memory = device.memory(1024, Placement::Device);
            let whole = RegionMut::whole(&memory, &stream);
            device.upload(&stream, bytemuck::cast_slice(&floats), whole).expect("an upload");
            memory
        });
        let from_region = Region::new(&from, 4 * 10, 4 * 100, &stream).expect("a region");
        let to_region = RegionMut::new(&to, 4 * 55, 4 * 100, &stream).expect("a region");
        let from_view = stream.view::<f32>(from_region).expect("a view");
        let to_view = stream.view_mut::<f32>(to_region).expect("a view");
        assert_eq!((from_view.len(), from_view.first(), from_view.offset()), (100, 10, 40));
        assert_eq!((to_view.len(), to_view.first(), to_view.is_empty()), (100, 55, false));
        programs.add_one(&stream, &from_view, &to_view);
        let mut wanted = floats.clone();
        wanted[55..155].iter_mut().for_each(|float| *float -= 55.0 - 10.0 - 1.0);
        let found: Vec<f32> = bytemuck::pod_collect_to_vec(&crate::read(&device, &stream, &to));
        assert_eq!(found, wanted);
    }
}

#[test]
fn regions_that_are_no_elements_or_another_streams_are_refused() {
    for device in all_devices() {
        let [stream, other] = [0; 2].map(|_| device.stream());
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
