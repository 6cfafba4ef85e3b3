//! DLPack: memory that array libraries share without a copy (<https://dmlc.github.io/dlpack>).
//!
//! Capsules are made, taken and destroyed by native functions alone: an interrupt comes before or after each of
//! them, and neither leaks memory nor frees it twice.

use crate::failure;
use pyo3::exceptions::{PyOverflowError, PyRuntimeError};
use pyo3::ffi;
use pyo3::prelude::*;
use std::ffi::{CStr, c_char, c_void};
use std::mem;
use std::ptr;
use std::slice;
use std::sync::atomic::AtomicPtr;

/// The version of versioned capsules. Later minor versions are read too.
const VERSION: (u32, u32) = (1, 0);

/// `DLPACK_FLAG_BITMASK_READ_ONLY`.
const READ_ONLY: u64 = 1;

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_kind: i32,
    device: i32,
    dimensions: i32,
    /// `kDLUInt` is 1.
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    strides: *mut i64,
    offset: u64,
}

/// What a capsule points to.
trait Managed: Sized {
    /// The name of a capsule that has one.
    const NAME: &'static CStr;
    /// The name of a capsule whose content was taken.
    const USED: &'static CStr;

    fn new(flags: u64, tensor: Tensor) -> Self;
    fn tensor(&mut self) -> &mut Tensor;
    /// The version and the flags; `None` for what is from before there were any.
    fn header(&self) -> Option<((u32, u32), u64)>;
    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)>;
}

/// `DLManagedTensor`.
#[repr(C)]
struct Plain {
    tensor: Tensor,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
}

impl Managed for Plain {
    const NAME: &'static CStr = c"dltensor";
    const USED: &'static CStr = c"used_dltensor";

    fn new(_: u64, tensor: Tensor) -> Self {
        Self { tensor, context: ptr::null_mut(), deleter: Some(delete::<Self>) }
    }

    fn tensor(&mut self) -> &mut Tensor {
        &mut self.tensor
    }

    fn header(&self) -> Option<((u32, u32), u64)> {
        None
    }

    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.deleter
    }
}

/// `DLManagedTensorVersioned`.
#[repr(C)]
struct Versioned {
    major: u32,
    minor: u32,
    context: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Self)>,
    flags: u64,
    tensor: Tensor,
}

impl Managed for Versioned {
    const NAME: &'static CStr = c"dltensor_versioned";
    const USED: &'static CStr = c"used_dltensor_versioned";

    fn new(flags: u64, tensor: Tensor) -> Self {
        let (major, minor) = VERSION;
        Self { major, minor, context: ptr::null_mut(), deleter: Some(delete::<Self>), flags, tensor }
    }

    fn tensor(&mut self) -> &mut Tensor {
        &mut self.tensor
    }

    fn header(&self) -> Option<((u32, u32), u64)> {
        Some(((self.major, self.minor), self.flags))
    }

    fn deleter(&self) -> Option<unsafe extern "C" fn(*mut Self)> {
        self.deleter
    }
}

/// An export of this package's: what a capsule points to, and what that refers to.
#[repr(C)]
struct Exported<M> {
    managed: M,
    shape: i64,
    stride: i64,
    /// Keeps the memory.
    keep: Py<PyAny>,
}

/// A capsule of so many bytes, which refers to `keep` as long as the memory is used.
#[pyfunction]
#[pyo3(signature = (address, nbytes, device, keep, *, versioned, read_only))]
pub(crate) fn export_dlpack(
    py: Python<'_>,
    address: usize,
    nbytes: u64,
    device: (i32, i32),
    keep: Py<PyAny>,
    versioned: bool,
    read_only: bool,
) -> PyResult<Py<PyAny>> {
    let shape = i64::try_from(nbytes).map_err(|error| PyOverflowError::new_err(error.to_string()))?;
    let (device_kind, device) = device;
    let tensor = Tensor {
        data: address as *mut c_void,
        device_kind,
        device,
        dimensions: 1,
        code: 1,
        bits: 8,
        lanes: 1,
        shape: ptr::null_mut(),
        strides: ptr::null_mut(),
        offset: 0,
    };
    let flags = if read_only { READ_ONLY } else { 0 };
    if versioned {
        capsule(py, Versioned::new(flags, tensor), shape, keep)
    } else {
        capsule(py, Plain::new(flags, tensor), shape, keep)
    }
}

fn capsule<M: Managed>(py: Python<'_>, managed: M, shape: i64, keep: Py<PyAny>) -> PyResult<Py<PyAny>> {
    let exported = Box::into_raw(Box::new(Exported { managed, shape, stride: 1, keep }));
    // SAFETY: the box that was just made, which has no other user.
    let content = unsafe { &mut *exported };
    let (shape, strides) = (&raw mut content.shape, &raw mut content.stride);
    let tensor = content.managed.tensor();
    (tensor.shape, tensor.strides) = (shape, strides);
    // SAFETY: a pointer that is not null, a name that stays, and a function of the right type.
    let made = unsafe { ffi::PyCapsule_New(exported.cast(), M::NAME.as_ptr(), Some(destroy::<M>)) };
    // SAFETY: null with an exception, or a new reference; this thread is attached to the interpreter.
    unsafe { Bound::from_owned_ptr_or_err(py, made) }.map(Bound::unbind).inspect_err(|_| {
        // SAFETY: no capsule has the box.
        drop(unsafe { Box::from_raw(exported) });
    })
}

/// What consumers call when they are done, from any thread.
unsafe extern "C" fn delete<M>(managed: *mut M) {
    let exported = managed.cast::<Exported<M>>();
    // After the interpreter's end the memory goes with the process.
    let _ = Python::try_attach(|_| {
        // SAFETY: the box of `capsule`, whose first part `managed` is; DLPack calls this once.
        drop(unsafe { Box::from_raw(exported) });
    });
}

/// A capsule that was not consumed frees its content.
unsafe extern "C" fn destroy<M: Managed>(capsule: *mut ffi::PyObject) {
    // SAFETY: a capsule that is being destroyed, by a thread that is attached. One that was taken has another name.
    if unsafe { ffi::PyCapsule_IsValid(capsule, M::NAME.as_ptr()) } == 0 {
        return;
    }
    // SAFETY: as above, and it has this name.
    let managed = unsafe { ffi::PyCapsule_GetPointer(capsule, M::NAME.as_ptr()) };
    // SAFETY: that of `capsule`, which makes capsules of this destructor.
    unsafe { delete(managed.cast::<M>()) }
}

/// Memory of another library, until this object ends.
#[pyclass(frozen, weakref, module = "vrampool._native")]
#[derive(Debug)]
pub(crate) struct Imported {
    /// Where it begins.
    #[pyo3(get)]
    address: usize,
    /// The number of bytes.
    #[pyo3(get)]
    nbytes: u64,
    /// The kind of device, as DLPack numbers it, and the device's number.
    #[pyo3(get)]
    device: (i32, i32),
    /// Whether it must not be written.
    #[pyo3(get)]
    is_read_only: bool,
    managed: AtomicPtr<c_void>,
    delete: unsafe fn(*mut c_void),
}

#[pymethods]
impl Imported {
    /// Takes the content of a capsule, which then has none.
    ///
    /// Raises: `UnsupportedError` for an object that is no capsule with content, and for an array that is not contiguous.
    #[new]
    fn new(capsule: &Bound<'_, PyAny>) -> PyResult<Self> {
        if is_valid(capsule, Versioned::NAME) {
            take::<Versioned>(capsule)
        } else if is_valid(capsule, Plain::NAME) {
            take::<Plain>(capsule)
        } else {
            let text = "__dlpack__ returned no capsule of DLPack, or one that was taken already";
            Err(unsupported(capsule.py(), text.into()))
        }
    }
}

impl Drop for Imported {
    fn drop(&mut self) {
        let managed = mem::take(self.managed.get_mut());
        // SAFETY: the content that `take` took, and the function for it, which is called once.
        unsafe { (self.delete)(managed) }
    }
}

fn is_valid(capsule: &Bound<'_, PyAny>, name: &CStr) -> bool {
    // SAFETY: any object, and a name that ends.
    unsafe { ffi::PyCapsule_IsValid(capsule.as_ptr(), name.as_ptr()) != 0 }
}

fn unsupported(py: Python<'_>, text: String) -> PyErr {
    failure::of_kind(py, "UnsupportedError", text)
}

/// The content of a capsule of its name.
fn take<M: Managed>(capsule: &Bound<'_, PyAny>) -> PyResult<Imported> {
    let (py, place) = (capsule.py(), capsule.as_ptr());
    // SAFETY: a capsule of this name; null only with an exception.
    let managed = unsafe { ffi::PyCapsule_GetPointer(place, M::NAME.as_ptr()) }.cast::<M>();
    // SAFETY: DLPack promises a structure of this type behind a capsule of this name, which stays while it is not taken.
    let Some(content) = (unsafe { managed.as_mut() }) else {
        return Err(PyErr::fetch(py));
    };
    let header = content.header();
    if let Some(((major, minor), _)) = header
        && major != VERSION.0
    {
        let text = format!("version {major}.{minor} of DLPack is unknown; 1.x is supported");
        return Err(unsupported(py, text));
    }
    let is_read_only = header.is_some_and(|(_, flags)| flags & READ_ONLY != 0);
    let tensor = content.tensor();
    let dimensions = usize::try_from(tensor.dimensions).unwrap_or(0);
    // SAFETY: DLPack promises so many numbers.
    let shape = unsafe { numbers(tensor.shape, dimensions) };
    // SAFETY: as above, or null.
    let strides = unsafe { numbers(tensor.strides, dimensions) };
    let items = contiguous_items(shape, strides).ok_or_else(|| {
        unsupported(py, "the array is not contiguous in C's order; make a contiguous copy of it".into())
    })?;
    let bits = u128::from(items) * u128::from(tensor.bits) * u128::from(tensor.lanes);
    let nbytes =
        u64::try_from(bits.div_ceil(8)).map_err(|error| PyOverflowError::new_err(error.to_string()))?;
    let address = (tensor.data as usize).wrapping_add(tensor.offset as usize);
    let device = (tensor.device_kind, tensor.device);
    // SAFETY: a capsule of its name, which this thread alone takes: with the new name its destructor leaves the content.
    if unsafe { ffi::PyCapsule_SetName(place, M::USED.as_ptr().cast::<c_char>()) } != 0 {
        return Err(PyErr::take(py).unwrap_or_else(|| PyRuntimeError::new_err("the capsule keeps its name")));
    }
    // SAFETY: as above.
    unsafe { ffi::PyCapsule_SetDestructor(place, None) };
    let managed = AtomicPtr::new(managed.cast());
    Ok(Imported { address, nbytes, device, is_read_only, managed, delete: delete_imported::<M> })
}

/// Returns what was taken to the library that made it.
unsafe fn delete_imported<M: Managed>(managed: *mut c_void) {
    let managed = managed.cast::<M>();
    // SAFETY: the caller's, of this type, and there until its deleter is called.
    if let Some(delete) = unsafe { (*managed).deleter() } {
        // SAFETY: as above; DLPack's deleters take their own structure, once.
        unsafe { delete(managed) }
    }
}

/// So many numbers; none behind null.
unsafe fn numbers<'a>(first: *const i64, count: usize) -> &'a [i64] {
    if first.is_null() {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { slice::from_raw_parts(first, count) }
}

/// The number of items of an array that is contiguous in C's order; without strides every one is.
fn contiguous_items(shape: &[i64], strides: &[i64]) -> Option<u64> {
    if shape.contains(&0) {
        return Some(0);
    }
    let mut items = 1_u64;
    for (axis, &length) in shape.iter().enumerate().rev() {
        let is_expected = strides.get(axis).is_none_or(|&stride| u64::try_from(stride) == Ok(items));
        if length > 1 && !is_expected {
            return None;
        }
        items = items.checked_mul(u64::try_from(length).ok()?)?;
    }
    Some(items)
}
