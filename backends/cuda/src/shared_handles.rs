//! Export of physical memory to other processes, and import.

use crate::device::CudaDevice;
use vrampool_backend::{
    AllocationRequest, Backend, BackendError, Physical, Placement, ShareableHandle, ShareableKind,
    SharedHandles, VirtualMemory, arguments, fork,
};

/// Best first.
const KINDS: &[ShareableKind] = if cfg!(unix) {
    &[ShareableKind::Fabric, ShareableKind::FileDescriptor]
} else {
    &[ShareableKind::Fabric, ShareableKind::WindowsHandle]
};

impl CudaDevice {
    /// Whether the driver makes and exports such memory, by doing it; an error where it cannot report that now.
    fn tries(&self, kind: ShareableKind) -> Result<bool, BackendError> {
        let (maker, context) = (self.maker()?, &self.core.context);
        let made = maker.create(context, maker.granularity(context)?, Some(kind));
        match made.and_then(|physical| physical.export().map(drop)) {
            Ok(()) => Ok(true),
            Err(error) if error.is_out_of_memory() || error.is_device_lost() => Err(error),
            Err(_) => Ok(false),
        }
    }

    /// The kinds that work, tried once; an error where the driver cannot report that now.
    fn kinds(&self) -> Result<&[ShareableKind], BackendError> {
        let known = &self.maker()?.shareable_kinds;
        if let Some(known) = known.get() {
            return Ok(known);
        }
        let mut kinds = Vec::new();
        for &kind in KINDS {
            if self.tries(kind)? {
                kinds.push(kind);
            }
        }
        Ok(known.get_or_init(|| kinds))
    }
}

impl SharedHandles for CudaDevice {
    /// Tried when asked for first; none as long as the device has no memory to try it with.
    fn shareable_kinds(&self) -> &[ShareableKind] {
        self.kinds().unwrap_or_default()
    }

    fn create_shareable(
        &self,
        request: &AllocationRequest<'_>,
        shareable: ShareableKind,
    ) -> Result<Physical, BackendError> {
        if !self.kinds()?.contains(&shareable) {
            return Err(BackendError::unsupported("exporting memory as a handle of this kind"));
        }
        let &AllocationRequest { bytes, kind, .. } = request;
        self.make_physical(bytes, kind, Some(shareable))
    }

    fn export(&self, physical: &Physical) -> Result<ShareableHandle, BackendError> {
        fork::check()?;
        self.raw_physical(physical)?.export()
    }

    fn import(&self, handle: ShareableHandle, bytes: u64) -> Result<Physical, BackendError> {
        fork::check()?;
        let (device, granularity) = (self.maker()?.device, self.granularity(Placement::Device.into())?);
        arguments::check_granularity(0, bytes, granularity)?;
        if bytes > self.properties().total_bytes {
            return Err(BackendError::invalid("bytes", "more than the device has"));
        }
        let imported = self.core.context.import(&handle, bytes, granularity, device)?;
        Ok(Physical::new(bytes, imported))
    }
}
