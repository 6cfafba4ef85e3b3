//! Programs, and kernels with their arguments.

use super::{Context, Handle, Queue, device::info};
use crate::error::{BUILD_FAILURE, check};
use crate::memory::OpenClMemory;
use opencl_sys as cl;
use std::ffi::{CStr, c_char, c_void};
use vrampool_backend::{BackendError, Region};

/// A program, built for one device.
#[derive(Debug)]
pub(super) struct Program {
    handle: Handle,
    context: Context,
}

impl Program {
    /// Where the compiler refuses the source, its log is in the error.
    pub(super) fn build(context: &Context, source: &str, options: &CStr) -> Result<Self, BackendError> {
        let core = &context.library().core;
        let (text, size, mut code) = (source.as_ptr().cast::<c_char>(), source.len(), 0);
        // SAFETY: the context is alive; one text of `size` bytes is given; the call writes one number to `code`.
        let handle = unsafe {
            (core.clCreateProgramWithSource)(
                context.handle().raw(),
                1,
                &raw const text,
                &raw const size,
                &raw mut code,
            )
        };
        context.judged(check("clCreateProgramWithSource", code))?;
        let program = Self { handle: Handle::of(handle), context: context.clone() };
        let device = context.device().handle().raw();
        // SAFETY: program and device are alive and of one context; the options end with 0; without somebody to tell, the
        // call returns when it has built.
        let code = unsafe {
            (core.clBuildProgram)(handle, 1, &raw const device, options.as_ptr(), None, std::ptr::null_mut())
        };
        match context.judged(check("clBuildProgram", code)) {
            Ok(()) => Ok(program),
            Err(BackendError::Driver { call, code, message }) if code == i64::from(BUILD_FAILURE) => {
                Err(BackendError::Driver { call, code, message: format!("{message}: {}", program.log()) })
            }
            Err(error) => Err(error),
        }
    }

    /// What the compiler said.
    fn log(&self) -> String {
        let bytes = info("clGetProgramBuildInfo", |size, place, written| {
            // SAFETY: program and device are alive; the call writes at most `size` bytes to `place`, and one number to
            // `written`.
            unsafe {
                (self.context.library().core.clGetProgramBuildInfo)(
                    self.handle.raw(),
                    self.context.device().handle().raw(),
                    cl::CL_PROGRAM_BUILD_LOG,
                    size,
                    place,
                    written,
                )
            }
        });
        bytes.map_or_else(
            |error| error.to_string(),
            |text| String::from_utf8_lossy(&text).trim_end_matches(['\0', '\n', ' ']).into(),
        )
    }

    pub(super) fn kernel(&self, name: &CStr) -> Result<Kernel, BackendError> {
        let mut code = 0;
        let create = self.context.library().core.clCreateKernel;
        // SAFETY: the program is alive, and the kernel keeps it so; the call writes one number to `code`.
        let handle = unsafe { create(self.handle.raw(), name.as_ptr(), &raw mut code) };
        self.context.judged(check("clCreateKernel", code))?;
        Ok(Kernel { handle: Handle::of(handle), context: self.context.clone() })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: this value had a count of the program.
        let _ = unsafe { (self.context.library().core.clReleaseProgram)(self.handle.raw()) };
    }
}

/// A kernel of a program.
#[derive(Debug)]
pub(super) struct Kernel {
    handle: Handle,
    context: Context,
}

/// What a kernel is given.
#[derive(Debug, Clone, Copy)]
pub(super) enum Argument {
    Buffer(Handle),
    Float(f32),
    Long(u64),
}

/// The arguments of a launch, in the kernel's order.
#[derive(Debug, Default)]
pub(super) struct Arguments(Vec<Argument>);

impl Arguments {
    /// A region's buffer, and where in it the region begins.
    pub(super) fn region(mut self, region: &Region<'_, OpenClMemory>) -> Self {
        self.0.push(Argument::Buffer(region.memory().allocation().buffer()));
        self.long(region.offset())
    }

    pub(super) fn float(mut self, value: f32) -> Self {
        self.0.push(Argument::Float(value));
        self
    }

    pub(super) fn long(mut self, value: u64) -> Self {
        self.0.push(Argument::Long(value));
        self
    }
}

/// How many groups of how many items.
#[derive(Debug, Clone, Copy)]
pub(super) struct Grid {
    pub(super) groups: usize,
    pub(super) group: [usize; 2],
}

impl Kernel {
    /// # Safety
    /// `arguments` are what the kernel takes, and with them and `grid` it stays within the regions among them, which are
    /// of the stream of `queue`.
    pub(super) unsafe fn launch(
        &self,
        queue: &Queue,
        grid: Grid,
        arguments: &Arguments,
    ) -> Result<(), BackendError> {
        let core = &self.context.library().core;
        let _turn = self.context.turn();
        for (index, argument) in arguments.0.iter().enumerate() {
            let raw;
            let (size, value) = match argument {
                Argument::Buffer(buffer) => {
                    raw = buffer.raw();
                    (size_of::<cl::cl_mem>(), (&raw const raw).cast::<c_void>())
                }
                Argument::Float(value) => (size_of::<f32>(), std::ptr::from_ref(value).cast()),
                Argument::Long(value) => (size_of::<u64>(), std::ptr::from_ref(value).cast()),
            };
            // SAFETY: the kernel is alive and no other thread sets arguments, which the lock sees to; the call copies
            // `size` bytes from `value`, which live here, and refuses a size that is not the argument's.
            let code = unsafe { (core.clSetKernelArg)(self.handle.raw(), index as u32, size, value) };
            self.context.judged(check("clSetKernelArg", code))?;
        }
        let all = [grid.groups * grid.group[0], grid.group[1]];
        let (from, none, nobody) = (std::ptr::null(), std::ptr::null(), std::ptr::null_mut());
        self.context.enqueue("clEnqueueNDRangeKernel", queue, |queue| {
            // SAFETY: the caller's promise; kernel and queue are alive and of one context. The call takes the arguments as
            // they are now, and the driver keeps a count of the buffers.
            unsafe {
                (core.clEnqueueNDRangeKernel)(
                    queue,
                    self.handle.raw(),
                    2,
                    from,
                    all.as_ptr(),
                    grid.group.as_ptr(),
                    0,
                    none,
                    nobody,
                )
            }
        })
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        // SAFETY: this value had a count of the kernel.
        let _ = unsafe { (self.context.library().core.clReleaseKernel)(self.handle.raw()) };
    }
}
