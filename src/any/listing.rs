//! Listing the devices of every backend.

use super::available::{Absent, Devices};
use super::family::FAMILIES;
use vrampool_backend::BackendError;

/// Lists the devices of every backend without opening them. The duration depends on the drivers.
///
/// ```
/// for device in vrampool::any::devices().there {
///     let bytes = device.total_bytes.map_or("unknown".into(), |bytes| bytes.to_string());
///     println!("{}: {}, {bytes} bytes", device.name, device.device);
/// }
/// ```
#[must_use]
pub fn devices() -> Devices {
    let mut devices = Devices::default();
    for family in &FAMILIES {
        let listed = match &family.compiled {
            Some(compiled) => (compiled.list)(),
            None => Err(family.not_compiled()),
        };
        let reason = match listed {
            Ok(listed) if listed.is_empty() => BackendError::unavailable(family.name, "it has no device"),
            Ok(listed) => {
                devices.there.extend(listed);
                continue;
            }
            Err(reason) => reason,
        };
        devices.absent.push(Absent { backend: family.name, reason });
    }
    devices
}
