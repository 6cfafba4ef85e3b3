//! Files.

use crate::boundary::{Bytes, Text, guard};
use crate::failure::Status;
use crate::traces::failed;
use vrampool_trace::output::Output;

/// As the header says.
#[unsafe(no_mangle)]
pub extern "C" fn vrampool_file_write(path: Text<'_>, bytes: Bytes<'_>, count: usize) -> Status {
    guard(|| {
        let (path, bytes) = (path.required("path")?, bytes.read(count, "bytes")?);
        let saved = Output::create(path).and_then(|output| output.save(bytes));
        saved.map_err(failed("path"))
    })
}
