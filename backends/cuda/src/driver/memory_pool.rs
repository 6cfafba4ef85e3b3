//! Memory pools of the driver (`CUmemoryPool`).

use super::context::Context;
use super::layouts::PoolProperties;
use crate::error::OUT_OF_MEMORY;
use cudarc::driver::sys;
use std::ffi::c_int;
use vrampool_backend::BackendError;

/// Attributes of a pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub(crate) enum Figure {
    /// `CU_MEMPOOL_ATTR_RELEASE_THRESHOLD`
    ReleaseThreshold = 4,
    /// `CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT`
    Reserved = 5,
    /// `CU_MEMPOOL_ATTR_USED_MEM_CURRENT`
    Used = 7,
}

/// A pool of the driver's. One that was made here is destroyed when it is dropped; the driver keeps it until
/// the last memory of it is free.
#[derive(Debug)]
pub(crate) struct RawPool {
    /// A `CUmemoryPool`.
    handle: usize,
    is_own: bool,
    context: Context,
}

impl RawPool {
    /// A new pool on the device of `context`.
    pub(crate) fn create(context: &Context, device: c_int) -> Result<Self, BackendError> {
        let properties = PoolProperties {
            kind: 1,
            shareable: 0,
            location_kind: 1,
            device,
            security: std::ptr::null_mut(),
            rest: [0; 64],
        };
        let mut handle = std::ptr::null_mut();
        let _current = context.enter()?;
        // SAFETY: the properties are as CUDA's header has them and live here; the call writes one handle.
        let code = unsafe { (context.library.cuMemPoolCreate)(&raw mut handle, &raw const properties) };
        if code == OUT_OF_MEMORY {
            return Err(BackendError::out_of_memory(0, None));
        }
        context.library.check("cuMemPoolCreate", code)?;
        Ok(Self { handle: handle as usize, is_own: true, context: context.clone() })
    }

    /// The pool that the device came with.
    pub(crate) fn default_of(context: &Context, device: c_int) -> Result<Self, BackendError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: the driver is initialised; the call writes one handle, which is valid as long as the
        // device.
        let code = unsafe { (context.library.cuDeviceGetDefaultMemPool)(&raw mut handle, device) };
        context.library.check("cuDeviceGetDefaultMemPool", code)?;
        Ok(Self { handle: handle as usize, is_own: false, context: context.clone() })
    }

    /// The pool from which `cuMemAllocAsync` allocates now: the default one, unless some code has set another.
    pub(crate) fn current_of(context: &Context, device: c_int) -> Result<Self, BackendError> {
        let mut handle = std::ptr::null_mut();
        // SAFETY: as above; the owner of the current pool keeps it, as every `cuMemAllocAsync` requires.
        let code = unsafe { (context.library.cuDeviceGetMemPool)(&raw mut handle, device) };
        context.library.check("cuDeviceGetMemPool", code)?;
        Ok(Self { handle: handle as usize, is_own: false, context: context.clone() })
    }

    /// # Safety
    /// `handle` is a pool on the device of `context`, and exists until this and all memory of it are dropped.
    pub(crate) unsafe fn external(context: &Context, handle: sys::CUmemoryPool) -> Self {
        Self { handle: handle as usize, is_own: false, context: context.clone() }
    }

    pub(crate) fn handle(&self) -> sys::CUmemoryPool {
        self.handle as sys::CUmemoryPool
    }

    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    pub(crate) fn figure(&self, figure: Figure) -> Result<u64, BackendError> {
        let mut value = 0u64;
        let _current = self.context.enter()?;
        let get = self.context.library.cuMemPoolGetAttribute;
        // SAFETY: the pool is alive; these attributes are one `cuuint64_t`, which the call writes to `value`.
        let code = unsafe { get(self.handle(), figure as c_int, (&raw mut value).cast()) };
        self.context.library.check("cuMemPoolGetAttribute", code)?;
        Ok(value)
    }

    pub(crate) fn set_release_threshold(&self, mut bytes: u64) -> Result<(), BackendError> {
        let _current = self.context.enter()?;
        let set = self.context.library.cuMemPoolSetAttribute;
        // SAFETY: the pool is alive; the attribute is one `cuuint64_t`, which the call reads from `bytes`.
        let code = unsafe { set(self.handle(), Figure::ReleaseThreshold as c_int, (&raw mut bytes).cast()) };
        self.context.library.check("cuMemPoolSetAttribute", code)
    }

    /// Releases unused memory to the device, down to `keep` bytes.
    pub(crate) fn trim_to(&self, keep: u64) -> Result<(), BackendError> {
        let _current = self.context.enter()?;
        let keep = usize::try_from(keep).unwrap_or(usize::MAX);
        // SAFETY: the pool is alive.
        let code = unsafe { (self.context.library.cuMemPoolTrimTo)(self.handle(), keep) };
        self.context.library.check("cuMemPoolTrimTo", code)
    }
}

impl Drop for RawPool {
    fn drop(&mut self) {
        if !self.is_own {
            return;
        }
        // On a lost device the pool was destroyed with its context.
        let Ok(_current) = self.context.enter() else { return };
        // SAFETY: `create` made it, and nothing allocates from it any more. The driver keeps it for memory
        // that is left.
        let _ = unsafe { (self.context.library.cuMemPoolDestroy)(self.handle()) };
    }
}
