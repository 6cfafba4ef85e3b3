//! A device's physical memory for other processes, and theirs.

use crate::device::CudaDevice;
use crate::virtual_memory::{check_size, is_refusal};
use vrampool_backend::{
    Backend, BackendError, MemoryKind, Physical, Placement, ShareableHandle, ShareableKind, SharedHandles,
    VirtualMemory,
};

/// Best first.
const KINDS: &[ShareableKind] = if cfg!(unix) {
    &[ShareableKind::Fabric, ShareableKind::FileDescriptor]
} else {
    &[ShareableKind::Fabric]
};

impl CudaDevice {
    /// Whether the driver makes and exports such memory, by doing it; an error where it cannot tell now.
    fn tries(&self, kind: ShareableKind) -> Result<bool, BackendError> {
        let (maker, context) = (self.maker()?, self.shared().context());
        let made = maker.create(context, maker.granularity(context)?, Some(kind));
        match made.and_then(|physical| physical.export().map(drop)) {
            Ok(()) => Ok(true),
            Err(error) if is_refusal(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

impl SharedHandles for CudaDevice {
    /// Tried when asked for first; none as long as the device has no memory to try it with.
    fn shareable_kinds(&self) -> &[ShareableKind] {
        let Ok(maker) = self.maker() else { return &[] };
        if let Some(known) = maker.shareable_kinds.get() {
            return known;
        }
        let tried: Result<Vec<_>, _> = KINDS.iter().map(|&kind| Ok((kind, self.tries(kind)?))).collect();
        let tried: Result<_, BackendError> = tried;
        match tried {
            Ok(tried) => maker.shareable_kinds.get_or_init(|| {
                tried.into_iter().filter(|(_, works)| *works).map(|(kind, _)| kind).collect()
            }),
            Err(_) => &[],
        }
    }

    fn create_shareable(
        &self,
        bytes: u64,
        kind: MemoryKind,
        shareable: ShareableKind,
    ) -> Result<Physical, BackendError> {
        if !self.shareable_kinds().contains(&shareable) {
            return Err(BackendError::Unsupported { operation: "exporting memory as a handle of this kind" });
        }
        self.make_physical(bytes, kind, Some(shareable))
    }

    fn export(&self, physical: &Physical) -> Result<ShareableHandle, BackendError> {
        self.raw_physical(physical)?.export()
    }

    fn import(&self, handle: ShareableHandle, bytes: u64) -> Result<Physical, BackendError> {
        let (device, granularity) = (self.maker()?.device(), self.granularity(Placement::Device.into())?);
        check_size(bytes, granularity)?;
        if bytes > self.properties().total_bytes {
            return Err(BackendError::invalid("bytes", "more than the device has"));
        }
        let imported = self.shared().context().import(&handle, bytes, granularity, device)?;
        Ok(Physical::new(bytes, imported))
    }
}
