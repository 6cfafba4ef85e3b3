//! Other devices that use a device's virtual memory.
//!
//! Memory that is mapped is made accessible to every device that can reach it, as memory of `cuMemAlloc`
//! becomes once a program turns peer access on. So the work of those devices must be complete before
//! anything is unmapped: of each one whose primary context some code in the process has.

use super::context::{Context, Relaxed};
use super::device::RawDevice;
use std::ffi::c_int;
use vrampool_backend::BackendError;

impl Context {
    /// The driver's numbers of the other devices that can access this one's memory; none where the driver
    /// does not say.
    pub(crate) fn peers(&self) -> Vec<c_int> {
        let Some(functions) = self.library.peers() else { return Vec::new() };
        let count = RawDevice::count(self.library).unwrap_or(1);
        if count < 2 {
            return Vec::new();
        }
        let device = |ordinal| RawDevice::at(self.library, ordinal).ok().map(RawDevice::handle);
        let Some(own) = device(self.cudarc().ordinal()) else { return Vec::new() };
        let reaches = |&peer: &c_int| {
            let mut can = 0;
            // SAFETY: two devices that the driver lists; the call writes one number to `can`, which lives
            // here.
            let code = unsafe { (functions.cuDeviceCanAccessPeer)(&raw mut can, peer, own) };
            code == 0 && can != 0
        };
        (0..count).filter_map(device).filter(|&peer| peer != own).filter(reaches).collect()
    }

    /// Waits for all work of the other devices that can access this one's memory.
    ///
    /// # Errors
    /// Errors of the driver, with work that may go on.
    pub(crate) fn wait_for_peers(&self) -> Result<(), BackendError> {
        self.peers().into_iter().try_for_each(|peer| self.wait_for_peer(peer))
    }

    /// Whether another device that can access this one's memory may have work of this process.
    pub(crate) fn has_active_peers(&self) -> bool {
        self.peers().into_iter().any(|peer| self.is_active(peer))
    }

    /// Whether some code in this process has a device's primary context, without which there is no work. Where
    /// the driver does not say, yes: a wait does no harm then.
    fn is_active(&self, peer: c_int) -> bool {
        let Some(functions) = self.library.peers() else { return false };
        let (mut flags, mut is_active) = (0, 0);
        // SAFETY: a device that the driver lists; the call writes two numbers, which live here.
        let code =
            unsafe { (functions.cuDevicePrimaryCtxGetState)(peer, &raw mut flags, &raw mut is_active) };
        code != 0 || is_active != 0
    }

    fn wait_for_peer(&self, peer: c_int) -> Result<(), BackendError> {
        if !self.is_active(peer) {
            return Ok(());
        }
        let library = self.library;
        let mut context = std::ptr::null_mut();
        // SAFETY: a device that the driver lists; the call writes one handle, which lives here. It is
        // released below.
        let code = unsafe { (library.cuDevicePrimaryCtxRetain)(&raw mut context, peer) };
        library.check("cuDevicePrimaryCtxRetain", code)?;
        // SAFETY: the context was retained above; it is taken off the stack below.
        let code = unsafe { (library.cuCtxPushCurrent_v2)(context) };
        let waited = library.check("cuCtxPushCurrent", code).and_then(|()| {
            let waited = self.wait_for_current();
            // SAFETY: it takes off the stack what was put there above.
            let _ = unsafe { (library.cuCtxPopCurrent_v2)(&raw mut context) };
            waited
        });
        // SAFETY: the context was retained above, once.
        let _ = unsafe { (library.cuDevicePrimaryCtxRelease_v2)(peer) };
        waited
    }

    /// Waits for all work of the context that is current, another one than this. Freeing memory waits for it
    /// and, unlike waiting for a context, does so, and no harm, while a stream of it is captured.
    fn wait_for_current(&self) -> Result<(), BackendError> {
        let library = self.library;
        let _relaxed = Relaxed::new(library);
        let mut address = 0;
        // SAFETY: a context is current; the call writes one address, which lives here.
        if unsafe { (library.cuMemAlloc_v2)(&raw mut address, 1) } == 0 {
            // SAFETY: the memory was allocated just now, and nothing uses it.
            return library.check("cuMemFree", unsafe { (library.cuMemFree_v2)(address) });
        }
        // SAFETY: a context is current.
        library.check("cuCtxSynchronize", unsafe { (library.cuCtxSynchronize)() })
    }
}
