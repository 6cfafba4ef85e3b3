//! Programs that this crate compiles, and launches of their kernels.

use crate::all_devices;
use vrampool_opencl::opencl_sys::{CL_DEVICE_MAX_WORK_GROUP_SIZE, CL_DEVICE_NAME};
use vrampool_opencl::{
    Arguments, Backend, BackendError, Grid, OpenClDevice, Placement, Program, Region, RegionMut,
};
use vrampool_test_support::BackendExt;

const SOURCE: &str = "
#define REGION(name) __global uchar *name##_buffer, ulong name##_offset
#define AT(type, name) __global type *name = (__global type *)(name##_buffer + name##_offset)
__kernel void scale(REGION(from), float by, REGION(to), ulong count) {
    AT(const float, from);
    AT(float, to);
    for (ulong i = get_global_id(0); i < count; i += get_global_size(0)) to[i] = from[i] * by;
}";

#[test]
fn a_kernel_takes_views_wherever_they_lie_and_comes_in_order() {
    for device in all_devices() {
        let scale = Program::build(&device, SOURCE, c"").and_then(|program| program.kernel(c"scale"));
        let scale = scale.expect("a kernel");
        let stream = device.stream();
        let memory = device.memory(1024, Placement::Device);
        let values = [1.0_f32, 2.0, 3.0, 4.0, 5.0];
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_ne_bytes()).collect();
        let place = |offset| RegionMut::new(&memory, offset, 20, &stream).expect("a region");
        device.upload(&stream, &bytes, place(24)).expect("an upload");
        for (round, [from, to]) in [[24, 512], [512, 100], [100, 24]].into_iter().enumerate() {
            let from = stream.view::<f32>(place(from).as_region()).expect("a view");
            let to = stream.view_mut::<f32>(place(to)).expect("a view");
            let arguments = Arguments::new().view(&from).float(2.0).view(&to).long(5);
            // More items than elements, and fewer.
            let grid = Grid::new(1 + 2 * round, [2, 1]);
            // SAFETY: the arguments are the kernel's, and it goes through five floats of either view.
            unsafe { scale.launch(&stream, grid, &arguments) }.expect("queued");
        }
        let mut found = [0; 20];
        device.download(&stream, place(24).as_region(), &mut found).expect("a download");
        let found = found.chunks_exact(4).map(|four| f32::from_ne_bytes(four.try_into().expect("four")));
        assert!(found.eq(values.map(|value| value * 8.0)));
    }
}

#[test]
fn invalid_launches_are_errors() {
    for device in all_devices() {
        let broken = Program::build(&device, "__kernel void broken() { nonsense; }", c"");
        let error = broken.expect_err("it does not compile").to_string();
        assert!(error.contains("nonsense"), "the compiler's log: {error}");
        let program = Program::build(&device, SOURCE, c"").expect("a program");
        program.kernel(c"no_such_kernel").expect_err("it is not in the program");
        let kernel = program.kernel(c"scale").expect("a kernel");

        let memory = device.memory(64, Placement::Device);
        let stream = device.stream();
        let view = stream.view::<f32>(Region::whole(&memory, &stream)).expect("a view");
        let arguments = || Arguments::new().view(&view).float(1.0).view(&view).long(0);
        let other = OpenClDevice::builder(device.listed().ordinal).build().expect("a device");
        let foreign = other.stream();
        let one = Grid::new(1, [1, 1]);
        let grids =
            [Grid::new(0, [1, 1]), Grid::new(1, [0, 1]), Grid::new(1, [1, 0]), Grid::new(usize::MAX, [2, 1])];
        for (stream, grid) in [(&foreign, one)].into_iter().chain(grids.map(|grid| (&stream, grid))) {
            // SAFETY: the arguments are the kernel's, and it goes through no elements.
            let answer = unsafe { kernel.launch(stream, grid, &arguments()) };
            assert!(matches!(answer, Err(BackendError::InvalidArgument { .. })), "{grid:?}: {answer:?}");
        }
        // SAFETY: the driver refuses an argument more than the kernel has.
        let answer = unsafe { kernel.launch(&stream, one, &arguments().long(0)) };
        assert!(matches!(answer, Err(BackendError::Driver { .. })), "{answer:?}");
        device.synchronize(&stream).expect("no fault");
    }
}

#[test]
fn a_number_of_the_device_is_returned_and_a_text_is_refused() {
    for device in all_devices() {
        assert!(device.info(CL_DEVICE_MAX_WORK_GROUP_SIZE).expect("a number") > 0);
        let error = device.info(CL_DEVICE_NAME).expect_err("a text");
        assert!(matches!(error, BackendError::InvalidArgument { .. }), "{error}");
        assert!(matches!(device.info(0xFFFF_FFF0), Err(BackendError::Driver { .. })));
    }
}
