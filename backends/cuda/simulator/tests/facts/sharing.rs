//! Physical memory shared by file descriptor.

use crate::driver::{INVALID_VALUE, SUCCESS, UNKNOWN};
use crate::fact::{Fact, Scene, Stop, fact};
use crate::scene::physical;

/// A kind of handle: a file descriptor.
const FILE: i32 = 1;

fn shareable(d: &Scene, bytes: usize) -> Result<u64, Stop> {
    let mut handle = 0;
    d.must("cuMemCreate", d.cuMemCreate(&mut handle, bytes, &physical(FILE), 0))?;
    Ok(handle)
}

pub(crate) const FACTS: &[Fact] = &[
    fact!("sharing: the properties of a handle", |d| {
        let unit = d.unit()?;
        let (plain, shared) = (d.create(unit)?, shareable(d, unit)?);
        for (handle, expected) in [(plain, 0), (shared, FILE)] {
            let mut properties = physical(9);
            d.is("properties", d.cuMemGetAllocationPropertiesFromHandle(&mut properties, handle), SUCCESS);
            d.eq("kind", properties.kind, 1);
            d.eq("handle types", properties.handle_types, expected);
            d.eq("device", properties.location.id, 0);
        }
        let mut properties = physical(0);
        d.is("no handle", d.cuMemGetAllocationPropertiesFromHandle(&mut properties, 0), INVALID_VALUE);
    }),
    fact!("sharing: only shareable handles can be exported", |d| {
        let unit = d.unit()?;
        let (plain, shared, mut file) = (d.create(unit)?, shareable(d, unit)?, -1);
        d.is("not shareable", d.cuMemExportToShareableHandle(&mut file, plain, FILE, 0), INVALID_VALUE);
        d.is("another kind", d.cuMemExportToShareableHandle(&mut file, shared, 2, 0), INVALID_VALUE);
        d.is("no kind", d.cuMemExportToShareableHandle(&mut file, shared, 0, 0), INVALID_VALUE);
        d.is("flags", d.cuMemExportToShareableHandle(&mut file, shared, FILE, 1), INVALID_VALUE);
        d.is("no handle", d.cuMemExportToShareableHandle(&mut file, 0, FILE, 0), INVALID_VALUE);
        d.is("as made", d.cuMemExportToShareableHandle(&mut file, shared, FILE, 0), SUCCESS);
        d.eq("a descriptor", file > 2, true);
        let first = file;
        d.is("again", d.cuMemExportToShareableHandle(&mut file, shared, FILE, 0), SUCCESS);
        d.eq("another descriptor", file != first, true);
    }),
    fact!("sharing: an imported handle shares the bytes", |d| {
        let unit = d.unit()?;
        let (handle, first, second) = (shareable(d, unit)?, d.reserve(unit)?, d.reserve(unit)?);
        d.map(first, unit, handle)?;
        d.is("cuMemsetD8", d.cuMemsetD8_v2(first, 6, unit), SUCCESS);
        let (mut file, mut imported) = (-1, 0);
        d.must("export", d.cuMemExportToShareableHandle(&mut file, handle, FILE, 0))?;
        d.is("import", d.cuMemImportFromShareableHandle(&mut imported, file as usize, FILE), SUCCESS);
        d.eq("the same handle", imported == handle, false);
        d.map(second, unit, imported)?;
        d.eq("word", d.word(second)?, 0x0606_0606);
        let mut properties = physical(0);
        d.is("properties", d.cuMemGetAllocationPropertiesFromHandle(&mut properties, imported), SUCCESS);
        d.eq("handle types", properties.handle_types, 0);
        d.is("import again", d.cuMemImportFromShareableHandle(&mut imported, file as usize, FILE), SUCCESS);
        d.is("release the original", d.cuMemRelease(handle), SUCCESS);
        d.is("unmap the original", d.cuMemUnmap(first, unit), SUCCESS);
        d.is("cuMemsetD8", d.cuMemsetD8_v2(second, 7, unit), SUCCESS);
        d.eq("word", d.word(second)?, 0x0707_0707);
    }),
    fact!("sharing: descriptors of other files", |d| {
        let mut handle = 0;
        let file = std::fs::File::open("/dev/null").expect("every system has it");
        let number = std::os::fd::AsRawFd::as_raw_fd(&file) as usize;
        d.is("a device", d.cuMemImportFromShareableHandle(&mut handle, number, FILE), UNKNOWN);
        d.is("not open", d.cuMemImportFromShareableHandle(&mut handle, 900, FILE), UNKNOWN);
        d.is("negative", d.cuMemImportFromShareableHandle(&mut handle, usize::MAX, FILE), UNKNOWN);
        d.is("no kind", d.cuMemImportFromShareableHandle(&mut handle, number, 0), INVALID_VALUE);
    }),
    fact!("sharing: a descriptor keeps the memory", |d| {
        let unit = d.unit()?;
        let before = d.free_memory()?;
        let handle = shareable(d, 64 * unit)?;
        let (mut file, mut again) = (-1, 0);
        d.must("export", d.cuMemExportToShareableHandle(&mut file, handle, FILE, 0))?;
        d.is("cuMemRelease", d.cuMemRelease(handle), SUCCESS);
        d.eq("kept by the descriptor", before - d.free_memory()?, 64 * unit as i64);
        d.is("import", d.cuMemImportFromShareableHandle(&mut again, file as usize, FILE), SUCCESS);
        d.is("cuMemRelease", d.cuMemRelease(again), SUCCESS);
        // SAFETY: the descriptor is of the export above, and nothing else closes it.
        drop(unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(file) });
        d.eq("after it is closed", before - d.free_memory()?, 0);
    })
    .alone(),
    fact!("sharing: an imported handle is exported again", |d| {
        let handle = shareable(d, d.unit()?)?;
        let (mut file, mut imported) = (-1, 0);
        d.must("export", d.cuMemExportToShareableHandle(&mut file, handle, FILE, 0))?;
        d.must("import", d.cuMemImportFromShareableHandle(&mut imported, file as usize, FILE))?;
        d.note("export again", d.cuMemExportToShareableHandle(&mut file, imported, FILE, 0));
    }),
];
