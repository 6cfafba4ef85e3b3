//! The memory of a live block.

use crate::private::Captured;
use vrampool::Buffer;
use vrampool::any::AnyDevice;

#[derive(Debug, Default)]
pub(crate) enum Memory {
    Pool(Buffer<AnyDevice>),
    /// As `Pool`, but recording a use by another stream failed: it is freed after all work of the device.
    Unordered(Buffer<AnyDevice>),
    /// Of a private pool.
    Captured(Box<Captured>),
    /// Another call has it for a moment.
    #[default]
    Elsewhere,
}

impl From<Buffer<AnyDevice>> for Memory {
    #[inline(always)]
    fn from(buffer: Buffer<AnyDevice>) -> Self {
        Self::Pool(buffer)
    }
}

impl Memory {
    pub(crate) fn buffer(&self) -> Option<&Buffer<AnyDevice>> {
        match self {
            Self::Pool(buffer) | Self::Unordered(buffer) => Some(buffer),
            Self::Captured(captured) => Some(&captured.buffer),
            Self::Elsewhere => None,
        }
    }

    /// Bytes that were asked for.
    pub(crate) fn requested(&self) -> u64 {
        // The largest number is no request's.
        self.buffer().map_or(u64::MAX, Buffer::len)
    }
}
