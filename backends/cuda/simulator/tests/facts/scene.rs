//! Objects that facts use: streams, events, memory, gates that hold a stream, kernels.

use crate::driver::{Access, Code, Location, NOT_READY, PhysicalProperties, SUCCESS};
use crate::fact::{Check, Scene, Stop};
use std::ffi::{CStr, c_void};
use std::ptr::null_mut;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const PTX: &str = concat!(include_str!("../../../src/driver/test_kernels.ptx"), "\0");

pub(crate) const MIB: usize = 1 << 20;
/// A stream that does not wait for the legacy stream.
pub(crate) const NON_BLOCKING: u32 = 1;
pub(crate) const NO_TIMING: u32 = 2;
pub(crate) const LEGACY: usize = 1;
pub(crate) const PER_THREAD: usize = 2;

/// Work that holds its stream until the gate is opened, or a time limit expires.
pub(crate) struct Gate(Arc<GateState>);

struct GateState {
    open: Mutex<(bool, bool)>,
    changed: Condvar,
    limit: Duration,
}

impl Gate {
    pub(crate) fn open(&self) {
        self.0.open.lock().unwrap().0 = true;
        self.0.changed.notify_all();
    }

    /// Whether the stream has passed it.
    pub(crate) fn passed(&self) -> bool {
        self.0.open.lock().unwrap().1
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.open();
    }
}

extern "C" fn wait_at_gate(data: *mut c_void) {
    // SAFETY: the pointer is of an `Arc` that was let go for this call, which is the only one.
    let state = unsafe { Arc::from_raw(data.cast::<GateState>()) };
    let until = Instant::now() + state.limit;
    let mut open = state.open.lock().unwrap();
    while !open.0 {
        let Some(left) = until.checked_duration_since(Instant::now()) else { break };
        open = state.changed.wait_timeout(open, left).unwrap().0;
    }
    open.1 = true;
}

impl Scene {
    pub(crate) fn stream(&self, flags: u32) -> Result<usize, Stop> {
        let mut stream = 0;
        self.must("cuStreamCreate", self.cuStreamCreate(&mut stream, flags))?;
        Ok(stream)
    }

    pub(crate) fn event(&self, flags: u32) -> Result<usize, Stop> {
        let mut event = 0;
        self.must("cuEventCreate", self.cuEventCreate(&mut event, flags))?;
        Ok(event)
    }

    /// Zeroed device memory.
    pub(crate) fn alloc(&self, bytes: usize) -> Result<u64, Stop> {
        let mut pointer = 0;
        self.must("cuMemAlloc", self.cuMemAlloc_v2(&mut pointer, bytes))?;
        self.must("cuMemsetD8", self.cuMemsetD8_v2(pointer, 0, bytes))?;
        self.must("cuCtxSynchronize", self.cuCtxSynchronize())?;
        Ok(pointer)
    }

    pub(crate) fn pinned(&self, bytes: usize) -> Result<u64, Stop> {
        let mut pointer = 0;
        self.must("cuMemHostAlloc", self.cuMemHostAlloc(&mut pointer, bytes, 0))?;
        Ok(pointer)
    }

    /// A second context of the first device, which becomes current.
    pub(crate) fn other_context(&self) -> Result<usize, Stop> {
        let mut context = 0;
        self.must("cuCtxCreate", self.cuCtxCreate_v2(&mut context, 0, 0))?;
        Ok(context)
    }

    /// The second device's primary context, retained, not current.
    pub(crate) fn second_device(&self) -> Result<usize, Stop> {
        let mut context = 0;
        self.must("cuDevicePrimaryCtxRetain(1)", self.cuDevicePrimaryCtxRetain(&mut context, 1))?;
        Ok(context)
    }

    /// Holds a stream for at most 5 seconds.
    pub(crate) fn gate(&self, stream: usize) -> Result<Gate, Stop> {
        self.gate_for(stream, Duration::from_secs(5))
    }

    /// Opens a gate, and waits for the work of a stream.
    pub(crate) fn finish(&self, gate: Gate, stream: usize) {
        gate.open();
        self.is("cuStreamSynchronize", self.cuStreamSynchronize(stream), SUCCESS);
    }

    /// Opens a gate, and waits for the work of the context.
    pub(crate) fn finish_all(&self, gate: Gate) {
        gate.open();
        self.is("cuCtxSynchronize", self.cuCtxSynchronize(), SUCCESS);
    }

    /// Lets `to` wait for the work of `from`.
    pub(crate) fn fork(&self, event: usize, from: usize, to: usize) {
        self.is("record", self.cuEventRecord(event, from), SUCCESS);
        self.is("wait", self.cuStreamWaitEvent(to, event, 0), SUCCESS);
    }

    /// Releases memory in a stream's order, and waits for it.
    pub(crate) fn free(&self, pointer: u64, stream: usize) {
        self.is("cuMemFreeAsync", self.cuMemFreeAsync(pointer, stream), SUCCESS);
        self.is("cuStreamSynchronize", self.cuStreamSynchronize(stream), SUCCESS);
    }

    /// The result of `act` in another thread, where the context is current too.
    pub(crate) fn elsewhere<T: Send>(&self, act: impl FnOnce() -> T + Send) -> T {
        let act = || {
            self.is("cuCtxSetCurrent", self.cuCtxSetCurrent(self.context), SUCCESS);
            act()
        };
        std::thread::scope(|scope| scope.spawn(act).join().unwrap())
    }

    fn gate_for(&self, stream: usize, limit: Duration) -> Result<Gate, Stop> {
        let state = Arc::new(GateState { open: Mutex::default(), changed: Condvar::new(), limit });
        let data = Arc::into_raw(Arc::clone(&state)).cast_mut().cast();
        self.must("cuLaunchHostFunc", self.cuLaunchHostFunc(stream, wait_at_gate, data))?;
        Ok(Gate(state))
    }

    /// Whether a call returns only once the work of a stream is complete, which it is after 400 ms.
    pub(crate) fn waits(
        &self,
        what: &str,
        stream: usize,
        expected: bool,
        call: impl FnOnce() -> Code,
    ) -> Check {
        let gate = self.gate_for(stream, Duration::from_millis(400))?;
        let code = call();
        let passed = gate.passed();
        self.is(what, code, SUCCESS);
        self.eq(&format!("{what} waits"), passed, expected);
        gate.open();
        self.must("cuCtxSynchronize", self.cuCtxSynchronize())
    }

    /// The first bytes of device memory, as one number.
    pub(crate) fn word(&self, pointer: u64) -> Result<u32, Stop> {
        let mut bytes = [0; 4];
        self.must("cuMemcpyDtoH", self.cuMemcpyDtoH_v2(bytes.as_mut_ptr(), pointer, 4))?;
        Ok(u32::from_le_bytes(bytes))
    }

    pub(crate) fn module(&self) -> Result<usize, Stop> {
        let mut module = 0;
        self.must("cuModuleLoadData", self.cuModuleLoadData(&mut module, PTX.as_ptr().cast()))?;
        Ok(module)
    }

    pub(crate) fn kernel(&self, name: &CStr) -> Result<usize, Stop> {
        let (module, mut function) = (self.module()?, 0);
        self.must("cuModuleGetFunction", self.cuModuleGetFunction(&mut function, module, name.as_ptr()))?;
        Ok(function)
    }

    /// Launches a kernel of one block; each parameter is 8 bytes.
    pub(crate) fn launch(&self, function: usize, stream: usize, parameters: &mut [u64]) -> Code {
        let mut pointers: Vec<*mut c_void> =
            parameters.iter_mut().map(|value| (&raw mut *value).cast()).collect();
        self.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, stream, pointers.as_mut_ptr(), null_mut())
    }

    /// Launches a kernel in the legacy stream, and checks how that ends.
    pub(crate) fn run(&self, what: &str, function: usize, parameters: &mut [u64], expected: Code) {
        self.is(what, self.launch(function, 0, parameters), SUCCESS);
        self.is("cuCtxSynchronize", self.cuCtxSynchronize(), expected);
    }

    pub(crate) fn attribute(&self, attribute: i32) -> i32 {
        let mut value = -1;
        self.cuDeviceGetAttribute(&mut value, attribute, self.device);
        value
    }

    pub(crate) fn free_memory(&self) -> Result<i64, Stop> {
        let (mut free, mut total) = (0, 0);
        self.must("cuMemGetInfo", self.cuMemGetInfo_v2(&mut free, &mut total))?;
        Ok(free as i64)
    }

    /// Whether a stream's work is pending.
    pub(crate) fn busy(&self, stream: usize) -> bool {
        self.cuStreamQuery(stream) == NOT_READY
    }
}

/// Pinned memory of the device 0, which can be exported as a file descriptor if `handle_types` is 1.
pub(crate) fn physical(handle_types: i32) -> PhysicalProperties {
    PhysicalProperties { kind: 1, handle_types, location: on_device(0), ..PhysicalProperties::default() }
}

pub(crate) fn on_device(id: i32) -> Location {
    Location { kind: 1, id }
}

pub(crate) fn read_write(device: i32) -> Access {
    Access { location: on_device(device), flags: 3 }
}

impl Scene {
    /// Physical memory.
    pub(crate) fn create(&self, bytes: usize) -> Result<u64, Stop> {
        let mut handle = 0;
        self.must("cuMemCreate", self.cuMemCreate(&mut handle, bytes, &physical(0), 0))?;
        Ok(handle)
    }

    pub(crate) fn reserve(&self, bytes: usize) -> Result<u64, Stop> {
        let mut address = 0;
        self.must("cuMemAddressReserve", self.cuMemAddressReserve(&mut address, bytes, 0, 0, 0))?;
        Ok(address)
    }

    /// A unit of physical memory, mapped at the start of so many units of addresses: the unit, handle and address.
    pub(crate) fn mapped(&self, units: usize) -> Result<(usize, u64, u64), Stop> {
        let unit = self.unit()?;
        let (handle, address) = (self.create(unit)?, self.reserve(units * unit)?);
        self.map(address, unit, handle)?;
        Ok((unit, handle, address))
    }

    pub(crate) fn map(&self, address: u64, bytes: usize, handle: u64) -> Check {
        self.must("cuMemMap", self.cuMemMap(address, bytes, 0, handle, 0))?;
        self.must("cuMemSetAccess", self.cuMemSetAccess(address, bytes, &read_write(0), 1))
    }

    /// Checks the access of a device to a mapping.
    pub(crate) fn access(&self, what: &str, device: i32, address: u64, expected: u64) {
        let mut flags = 9;
        let code = self.cuMemGetAccess(&mut flags, &on_device(device), address);
        self.is("cuMemGetAccess", code, SUCCESS);
        self.eq(what, flags, expected);
    }

    /// The smallest unit of physical memory.
    pub(crate) fn unit(&self) -> Result<usize, Stop> {
        let mut bytes = 0;
        self.must("granularity", self.cuMemGetAllocationGranularity(&mut bytes, &physical(0), 0))?;
        Ok(bytes)
    }
}
