//! Modules, kernels and host functions.

use crate::boundary::{exports, get, put, text};
use crate::code::{Answer, Code};
use crate::objects::work::Work;
use std::ffi::{c_char, c_int, c_uint, c_void};

/// Shared memory of a block, bytes.
const MOST_SHARED: c_uint = 48 << 10;

exports! {
    fn cuModuleLoadData(to: *mut usize, image: *const c_char) |call| {
        let mut world = call.world();
        let context = world.current()?;
        let handle = world.load(context, &text(image)?)?;
        put(to, handle)
    }

    fn cuModuleUnload(handle: usize) |call| {
        let mut world = call.world();
        let module = world.module_of(handle)?;
        let context = world.modules.get(&module).map_or(0, |module| module.context);
        crate::world::World::synchronize_context(&mut world, context)?;
        world.unload(module);
        Ok(())
    }

    fn cuModuleGetFunction(to: *mut usize, module: usize, name: *const c_char) |call| {
        let mut world = call.world();
        let module = world.module_of(module)?;
        let handle = world.function(module, &text(name)?)?;
        put(to, handle)
    }

    fn cuFuncGetAttribute(to: *mut c_int, attribute: c_int, function: usize) |call| {
        call.world().function_of(function)?;
        put(to, if attribute == 0 { 1024 } else { 0 })
    }

    fn cuLaunchKernel(
        function: usize,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: usize,
        parameters: *const *const c_void,
        extra: *const *const c_void,
    ) |call| {
        let mut world = call.world();
        let (function, stream) = (world.function_of(function)?, world.stream_of(stream)?);
        if [grid_x, grid_y, grid_z, block_x, block_y, block_z].contains(&0) {
            return Err(Code::INVALID_VALUE);
        }
        let threads = u64::from(block_x) * u64::from(block_y) * u64::from(block_z);
        let is_large = threads > 1024 || block_z > 64 || grid_y.max(grid_z) > 65_535;
        if is_large || shared > MOST_SHARED {
            return Err(Code::INVALID_VALUE);
        }
        let of = world.functions.get(&function).ok_or(Code::INVALID_HANDLE)?;
        let (context, kernel, sizes) = (of.context, of.kernel, of.parameters.clone());
        if world.stream(stream)?.context != context {
            return Err(Code::INVALID_HANDLE);
        }
        let kernel = kernel.ok_or(Code::NOT_SUPPORTED)?;
        let arguments = arguments(parameters, &sizes)?;
        world.submit(stream, Work::Kernel { kernel, arguments })
    }

    fn cuLaunchHostFunc(stream: usize, function: Option<extern "C" fn(*mut c_void)>, argument: *mut c_void) |call| {
        let mut world = call.world();
        let stream = world.stream_of(stream)?;
        let function = function.ok_or(Code::INVALID_VALUE)?;
        world.submit(stream, Work::Host { function, argument: argument.expose_provenance() })
    }
}

/// Reads the parameters where the caller's list says that they are.
fn arguments(list: *const *const c_void, sizes: &[usize]) -> Answer<Vec<u64>> {
    let read = |(index, &size): (usize, &usize)| {
        let place = get(list.wrapping_add(index))?;
        match size {
            1 => get(place.cast::<u8>()).map(u64::from),
            2 => get(place.cast::<u16>()).map(u64::from),
            4 => get(place.cast::<u32>()).map(u64::from),
            _ => get(place.cast::<u64>()),
        }
    };
    sizes.iter().enumerate().map(read).collect()
}
