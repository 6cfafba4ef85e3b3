//! Programs, and kernels with their arguments.

use super::{Context, Handle, device::info};
use crate::device::OpenClDevice;
use crate::error::{BUILD_FAILURE, check};
use crate::stream::OpenClStream;
use crate::view::OpenClView;
use opencl_sys as cl;
use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use vrampool_backend::{BackendError, fork};

/// A program, compiled for one device: for callers without an OpenCL library of their own.
///
/// ```
/// use vrampool_opencl::{AllocationRequest, Arguments, Backend, Grid, OpenClDevice, Placement, Program, RegionMut};
/// # fn main() -> Result<(), vrampool_opencl::BackendError> {
/// # if vrampool_opencl::list().is_err_and(|error| error.is_unavailable()) { return Ok(()) }
/// let device = OpenClDevice::open(0)?;
/// let source = "__kernel void ones(__global uchar *to, ulong offset, ulong count) {
///     size_t i = get_global_id(0);
///     if (i < count) ((__global float *)(to + offset))[i] = 1;
/// }";
/// let ones = Program::build(&device, source, c"")?.kernel(c"ones")?;
///
/// let stream = device.create_stream()?;
/// let memory = device.allocate(&AllocationRequest::new(4 * 100, Placement::Device))?;
/// let to = stream.view_mut::<f32>(RegionMut::whole(&memory, &stream))?;
/// let grid = Grid::new(100, [1, 1]);
/// // SAFETY: the kernel takes a region and a number, and writes as many floats as the view has.
/// unsafe { ones.launch(&stream, grid, &Arguments::new().view(&to).long(to.len() as u64)) }?;
/// let mut bytes = [0; 4];
/// device.download(&stream, to.region().slice(..4)?, &mut bytes)?;
/// assert_eq!(f32::from_ne_bytes(bytes), 1.0);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Program {
    handle: Handle,
    context: Context,
}

impl Program {
    /// Compiles `source` for `device`, with the options of `clBuildProgram`.
    ///
    /// # Errors
    /// Errors of the driver, with the compiler's log where it refuses the source.
    pub fn build(device: &OpenClDevice, source: &str, options: &CStr) -> Result<Self, BackendError> {
        fork::check()?;
        let context = &device.core.context;
        let core = &context.library().core;
        let (text, size, mut code) = (source.as_ptr().cast::<c_char>(), source.len(), 0);
        let turn = context.turn();
        // SAFETY: the context is alive; one text of `size` bytes is given; the call writes one number to
        // `code`.
        let handle = unsafe {
            (core.clCreateProgramWithSource)(
                context.handle().raw(),
                1,
                &raw const text,
                &raw const size,
                &raw mut code,
            )
        };
        drop(turn);
        context.judged(check("clCreateProgramWithSource", code))?;
        let program = Self { handle: Handle::of(handle), context: context.clone() };
        let device = context.device().handle().raw();
        // SAFETY: program and device are alive and of one context; the options end with 0; without a function
        // to call, the call returns when it has built.
        let code = unsafe {
            (core.clBuildProgram)(handle, 1, &raw const device, options.as_ptr(), None, std::ptr::null_mut())
        };
        match context.judged(check("clBuildProgram", code)) {
            Ok(()) => Ok(program),
            Err(BackendError::Driver { call, code, message, .. }) if code == i64::from(BUILD_FAILURE) => {
                Err(BackendError::driver(call, code, format!("{message}: {}", program.log())))
            }
            Err(error) => Err(error),
        }
    }

    /// Returns the compiler's log.
    fn log(&self) -> String {
        let bytes = info("clGetProgramBuildInfo", |size, place, written| {
            // SAFETY: program and device are alive; the call writes at most `size` bytes to `place`, and one
            // number to `written`.
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

    /// The kernel of this name, which keeps the program alive.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn kernel(&self, name: &CStr) -> Result<Kernel, BackendError> {
        fork::check()?;
        let mut code = 0;
        let create = self.context.library().core.clCreateKernel;
        let _turn = self.context.turn();
        // SAFETY: the program is alive, and the kernel keeps it so; the call writes one number to `code`.
        let handle = unsafe { create(self.handle.raw(), name.as_ptr(), &raw mut code) };
        self.context.judged(check("clCreateKernel", code))?;
        Ok(Kernel { handle: Handle::of(handle), context: self.context.clone() })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        if fork::is_forked() {
            return;
        }
        let _turn = self.context.turn();
        // SAFETY: this value had a count of the program.
        let _ = unsafe { (self.context.library().core.clReleaseProgram)(self.handle.raw()) };
    }
}

/// A kernel of a [`Program`]. Threads may share it.
#[derive(Debug)]
pub struct Kernel {
    handle: Handle,
    context: Context,
}

#[derive(Debug, Clone, Copy)]
enum Argument {
    Buffer(Handle),
    Float(f32),
    Long(u64),
}

/// The arguments of a launch, in the kernel's order.
#[derive(Debug, Default)]
#[must_use]
pub struct Arguments<'a> {
    list: Vec<Argument>,
    /// The views among them keep their memory alive until the launch.
    views: PhantomData<&'a ()>,
}

impl<'a> Arguments<'a> {
    /// No arguments.
    pub fn new() -> Self {
        Self::default()
    }

    /// Two arguments: the buffer of a view, a pointer to global memory, and the view's offset in it, bytes, a
    /// `ulong`.
    pub fn view<T, A>(mut self, view: &'a OpenClView<'_, T, A>) -> Self {
        self.list.push(Argument::Buffer(view.region().memory().allocation.buffer()));
        self.long(view.offset())
    }

    /// A `float`.
    pub fn float(mut self, value: f32) -> Self {
        self.list.push(Argument::Float(value));
        self
    }

    /// A `ulong`.
    pub fn long(mut self, value: u64) -> Self {
        self.list.push(Argument::Long(value));
        self
    }
}

/// The work-items of a launch: `groups` work-groups side by side, each of `group` items.
///
/// ```
/// use vrampool_opencl::Grid;
/// let grid = Grid::new(100, [16, 16]); // 25,600 items
/// assert_eq!(grid.group[0] * grid.group[1], 256);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Grid {
    /// The number of groups.
    pub groups: usize,
    /// The items of a group, in two dimensions.
    pub group: [usize; 2],
}

impl Grid {
    /// `groups` work-groups of `group` items.
    #[must_use]
    pub const fn new(groups: usize, group: [usize; 2]) -> Self {
        Self { groups, group }
    }
}

impl Kernel {
    /// Enqueues the kernel on `stream`, and returns.
    ///
    /// # Errors
    /// [`BackendError::InvalidArgument`] for a stream of another device than the program's, or a grid without
    /// items or with more than numbers have; else errors of the driver.
    ///
    /// # Safety
    /// `arguments` are the kernel's parameters, and with them and `grid` it accesses memory only within the
    /// views among them, which are of `stream`, and writes only to those that were made for writing.
    pub unsafe fn launch(
        &self,
        stream: &OpenClStream,
        grid: Grid,
        arguments: &Arguments<'_>,
    ) -> Result<(), BackendError> {
        fork::check()?;
        if !self.context.is_same(&stream.core().context) {
            return Err(BackendError::invalid("stream", "it belongs to another device than the kernel"));
        }
        let across = grid.groups.checked_mul(grid.group[0]);
        let Some(across) = across.filter(|&across| across > 0 && grid.group[1] > 0) else {
            return Err(BackendError::invalid("grid", format!("{grid:?} is not a number of items")));
        };
        let all = [across, grid.group[1]];
        let core = &self.context.library().core;
        let _turn = self.context.turn();
        for (index, argument) in arguments.list.iter().enumerate() {
            let raw;
            let (size, value) = match argument {
                Argument::Buffer(buffer) => {
                    raw = buffer.raw();
                    (size_of::<cl::cl_mem>(), (&raw const raw).cast::<c_void>())
                }
                Argument::Float(value) => (size_of::<f32>(), std::ptr::from_ref(value).cast()),
                Argument::Long(value) => (size_of::<u64>(), std::ptr::from_ref(value).cast()),
            };
            // SAFETY: the kernel is alive and no other thread sets arguments, which the lock sees to; the
            // call copies `size` bytes from `value`, which live here, and refuses a size that is not the
            // argument's.
            let code = unsafe { (core.clSetKernelArg)(self.handle.raw(), index as u32, size, value) };
            self.context.judged(check("clSetKernelArg", code))?;
        }
        let (from, none, no_event) = (std::ptr::null(), std::ptr::null(), std::ptr::null_mut());
        self.context.enqueue("clEnqueueNDRangeKernel", stream.raw(), |queue| {
            // SAFETY: the caller's promise; kernel and queue are alive and of one context. The call takes the
            // arguments as they are now, and the driver keeps a count of the buffers.
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
                    no_event,
                )
            }
        })
    }
}

impl Drop for Kernel {
    fn drop(&mut self) {
        if fork::is_forked() {
            return;
        }
        let _turn = self.context.turn();
        // SAFETY: this value had a count of the kernel.
        let _ = unsafe { (self.context.library().core.clReleaseKernel)(self.handle.raw()) };
    }
}
