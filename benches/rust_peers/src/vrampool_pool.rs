//! vrampool over its host device, which has as many streams as the trace.

use crate::Peer;
use std::error::Error;
use vrampool::host::{HostDevice, HostStream};
use vrampool::{Backend, Buffer, Pool, Source};

/// A pool's source and classes.
#[derive(Clone, Copy)]
pub enum Choice {
    /// A virtual source.
    Virtual,
    /// The default buckets without caps.
    Fixed,
}

impl Choice {
    /// The name in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Virtual => "vrampool-virtual",
            Self::Fixed => "vrampool-fixed",
        }
    }
}

/// A pool and its streams.
pub struct HostPool {
    pool: Pool<HostDevice>,
    streams: Vec<HostStream>,
}

impl HostPool {
    /// An empty pool.
    pub fn new(choice: Choice) -> Result<Self, Box<dyn Error>> {
        let device = HostDevice::builder().memory_limit(1 << 40).build();
        let builder = Pool::builder(&device);
        let pool = match choice {
            Choice::Virtual => builder.source(Source::Virtual),
            Choice::Fixed => builder.max_cached_bytes(None).max_buffers_per_bucket(None),
        };
        Ok(Self { pool: pool.build()?, streams: Vec::new() })
    }
}

impl Peer for HostPool {
    type Block = (Buffer<HostDevice>, usize);

    fn allocate(&mut self, bytes: u64, stream: usize) -> Result<Self::Block, Box<dyn Error>> {
        while self.streams.len() <= stream {
            self.streams.push(self.pool.device().create_stream()?);
        }
        Ok((self.pool.allocate(bytes, &self.streams[stream])?, stream))
    }

    fn free(&mut self, (buffer, of): Self::Block, stream: usize) {
        // As PyTorch's `record_stream`, which the traces were recorded with.
        if of != stream
            && let Some(stream) = self.streams.get(stream)
            && let Err(error) = buffer.record_stream(stream)
        {
            eprintln!("{error}");
        }
    }

    fn take_peak(&mut self) -> u64 {
        let peak = self.pool.stats().peak.reserved_bytes;
        self.pool.reset_peaks();
        peak
    }
}
