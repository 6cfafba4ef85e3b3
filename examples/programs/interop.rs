//! A buffer with usages that the program chooses, in a command that the program records.
use vrampool::prelude::*;
use vrampool::wgpu::{WgpuDevice, WgpuMemory, wgpu::BufferUsages};
pub(crate) fn main() -> Result<(), Box<dyn std::error::Error>> {
    let Ok(device) = WgpuDevice::open(0) else { return Ok(()) };
    let (stream, pool) = (device.create_stream()?, Pool::new(&device)?);
    let kind = WgpuMemory::kind_for(WgpuMemory::DEFAULT_USAGES | BufferUsages::VERTEX);
    let mut vertices = pool.allocate_kind(4096, kind, &stream)?;
    vertices.fill(7, &stream)?;
    {
        let view = stream.view_mut(vertices.on_mut(&stream)?)?; // in use on the stream while it exists
        stream.encode(|encoder| encoder.clear_buffer(view.buffer(), view.offset(), Some(view.len())))?;
    }
    assert_eq!(vertices.read_vec::<u8>(&stream)?, [0; 4096]);
    Ok(())
}
