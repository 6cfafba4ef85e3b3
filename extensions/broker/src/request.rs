//! Requests of a client: arrays, some of which may be cut along an axis.

use crate::error::BrokerError;
use crate::id::ArrayId;
use vrampool_backend::MemoryKind;

/// The role of an array in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Role {
    /// Copied to the device before a chunk is computed.
    Input,
    /// Copied to the host afterwards.
    Output,
    /// Both.
    InOut,
    /// On the device only; its contents are undefined when a chunk begins.
    #[default]
    Scratch,
}

impl Role {
    pub(crate) fn is_uploaded(self) -> bool {
        matches!(self, Self::Input | Self::InOut)
    }

    pub(crate) fn is_downloaded(self) -> bool {
        matches!(self, Self::Output | Self::InOut)
    }
}

/// A requested array. Elements are dense and row-major; a chunk has the same shape except along its axis.
///
/// ```
/// use vrampool_broker::ArrayRequest;
/// // One value of time, variable, and run; runs may be cut.
/// let states = ArrayRequest::output("states", [100, 3, 1 << 20], 4).chunk_axis(2);
/// let table = ArrayRequest::input("coefficients", [64], 8).unchunkable();
/// assert_eq!(table.bytes(), Some(512));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct ArrayRequest {
    pub(crate) label: String,
    shape: Vec<u64>,
    element_bytes: u64,
    pub(crate) kind: Option<MemoryKind>,
    chunk_axis: Option<usize>,
    unchunkable: bool,
    total_runs: Option<u64>,
    pub(crate) role: Role,
}

impl ArrayRequest {
    /// Creates a request for an array of `shape`, with elements of `element_bytes` bytes. A later request of
    /// the client with the same label replaces it.
    pub fn new(
        role: Role,
        label: impl Into<String>,
        shape: impl IntoIterator<Item = u64>,
        element_bytes: u64,
    ) -> Self {
        Self {
            label: label.into(),
            shape: shape.into_iter().collect(),
            element_bytes,
            kind: None,
            chunk_axis: Some(0),
            unchunkable: false,
            total_runs: None,
            role,
        }
    }

    /// Creates a request for an array that is copied to the device.
    pub fn input(label: impl Into<String>, shape: impl IntoIterator<Item = u64>, element_bytes: u64) -> Self {
        Self::new(Role::Input, label, shape, element_bytes)
    }

    /// Creates a request for an array that is copied to the host.
    pub fn output(
        label: impl Into<String>,
        shape: impl IntoIterator<Item = u64>,
        element_bytes: u64,
    ) -> Self {
        Self::new(Role::Output, label, shape, element_bytes)
    }

    /// Creates a request for an array that is copied to the device and back.
    pub fn in_out(
        label: impl Into<String>,
        shape: impl IntoIterator<Item = u64>,
        element_bytes: u64,
    ) -> Self {
        Self::new(Role::InOut, label, shape, element_bytes)
    }

    /// Creates a request for an array on the device only.
    pub fn scratch(
        label: impl Into<String>,
        shape: impl IntoIterator<Item = u64>,
        element_bytes: u64,
    ) -> Self {
        Self::new(Role::Scratch, label, shape, element_bytes)
    }

    /// Sets the axis of runs, along which it may be cut; `None` if there is none. Default: 0, the slowest.
    /// (CuBIE's is 2.)
    pub fn chunk_axis(mut self, axis: impl Into<Option<usize>>) -> Self {
        self.chunk_axis = axis.into();
        self
    }

    /// Marks it as needed as a whole by each chunk. An input is on the device once for all streams, and
    /// read-only. Scratch exists once per stream. An array that is copied back restricts the run to one
    /// stream.
    pub fn unchunkable(mut self) -> Self {
        self.unchunkable = true;
        self
    }

    /// Sets the runs of the batch, at least 1. Default: the extent of the chunk axis. Arrays that are cut
    /// must have this extent.
    pub fn total_runs(mut self, runs: u64) -> Self {
        self.total_runs = Some(runs);
        self
    }

    /// Sets its kind of memory on the device. Default: the device's preferred kind.
    pub fn memory(mut self, kind: impl Into<MemoryKind>) -> Self {
        self.kind = Some(kind.into());
        self
    }

    /// Returns its size in bytes; `None` above 2⁶⁴.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.shape.iter().try_fold(self.element_bytes, |bytes, &extent| bytes.checked_mul(extent))
    }

    /// Whether it may be cut: not [`unchunkable`](Self::unchunkable), and with other than one element along
    /// its chunk axis.
    #[must_use]
    pub fn is_chunkable(&self) -> bool {
        let extent = self.chunk_axis.and_then(|axis| self.shape.get(axis));
        !self.unchunkable && extent.is_some_and(|&extent| extent != 1)
    }

    /// Returns the runs of the batch that it specifies, or 1.
    pub(crate) fn runs(&self) -> u64 {
        let extent = self.chunk_axis.filter(|_| self.is_chunkable()).and_then(|axis| self.shape.get(axis));
        self.total_runs.or(extent.copied()).unwrap_or(1)
    }

    pub(crate) fn check(&self) -> Result<(), BrokerError> {
        let refused = |reason: String| Err(BrokerError::Request { label: self.label.clone(), reason });
        if self.element_bytes == 0 {
            return refused("its elements have no bytes".into());
        }
        match self.bytes() {
            None => return refused("it has more than 2^64 bytes".into()),
            Some(0) => return refused("it has no elements".into()),
            Some(_) => {}
        }
        if self.total_runs == Some(0) {
            return refused("a batch has at least 1 run".into());
        }
        Ok(())
    }

    /// Returns the layout of the array when it is cut along a batch of `runs`.
    pub(crate) fn layout(&self, runs: u64) -> Result<ChunkLayout, BrokerError> {
        let bytes = self.bytes().unwrap_or(u64::MAX);
        let Some(axis) = self.chunk_axis.filter(|_| self.is_chunkable()) else {
            return Ok(ChunkLayout { is_cut: false, rows: 1, runs, run_bytes: bytes });
        };
        let extent = self.shape[axis];
        if extent != runs {
            let reason =
                format!("it has {extent} elements along its chunk axis, and the batch has {runs} runs");
            return Err(BrokerError::Request { label: self.label.clone(), reason });
        }
        let rows = self.shape[..axis].iter().product();
        let run_bytes = self.shape[axis + 1..].iter().product::<u64>() * self.element_bytes;
        Ok(ChunkLayout { is_cut: true, rows, runs, run_bytes })
    }
}

/// An array as rows of runs of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkLayout {
    /// Whether a chunk contains a part of it.
    pub(crate) is_cut: bool,
    /// Elements before the chunk axis.
    pub(crate) rows: u64,
    /// Elements along the chunk axis.
    pub(crate) runs: u64,
    /// Bytes behind the chunk axis; all bytes if the array is not cut.
    pub(crate) run_bytes: u64,
}

impl ChunkLayout {
    pub(crate) fn bytes(&self) -> u64 {
        if self.is_cut { self.rows * self.runs * self.run_bytes } else { self.run_bytes }
    }

    /// Bytes of a chunk of `len` runs.
    pub(crate) fn chunk_bytes(&self, len: u64) -> u64 {
        if self.is_cut { self.rows * len.min(self.runs) * self.run_bytes } else { self.run_bytes }
    }

    /// Bytes that are contiguous in both the array and a chunk of `len` runs.
    pub(crate) fn row_bytes(&self, len: u64) -> u64 {
        if self.is_cut { len * self.run_bytes } else { self.run_bytes }
    }

    /// Returns the offset of a chunk's row in the array.
    pub(crate) fn row_start(&self, row: u64, first_run: u64) -> u64 {
        if self.is_cut { (row * self.runs + first_run) * self.run_bytes } else { 0 }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Queued {
    pub(crate) id: ArrayId,
    pub(crate) request: ArrayRequest,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(shape: &[u64]) -> ArrayRequest {
        ArrayRequest::scratch("x", shape.iter().copied(), 4)
    }

    /// CuBIE's `test_is_request_chunkable_empty_shape`, `_no_chunk_axis`, `_axis_out_of_bounds`, `_degenerate_axis`.
    #[test]
    fn test_is_request_chunkable() {
        for (shape, axis, wanted) in [
            (&[10, 2][..], Some(0), true),
            (&[], Some(0), false),
            (&[4, 4], None, false),
            (&[4, 4], Some(2), false),
            (&[4, 4], Some(5), false),
            (&[4, 1], Some(1), false),
            (&[4, 1], Some(0), true),
        ] {
            assert_eq!(request(shape).chunk_axis(axis).is_chunkable(), wanted, "{shape:?}, {axis:?}");
        }
        assert!(!request(&[10, 2]).unchunkable().is_chunkable());
    }

    /// Bytes of arrays that are cut, and of others, separately.
    #[test]
    fn test_get_portioned_request_size() {
        use crate::footprint::{Demand, Rounding};
        use crate::id::ClientId;
        use crate::partition::Footprint;
        use crate::plan_array::arrays;
        use vrampool::host::HostDevice;
        use vrampool::{Pool, SizeClasses};
        let queued = |id, request: ArrayRequest| Queued { id: ArrayId(id), request };
        let cut = request(&[2, 3, 4]).chunk_axis(2);
        let wanted = [(ClientId(1), vec![queued(1, cut), queued(2, request(&[2, 3, 4]).unchunkable())])];
        let arrays =
            arrays(&wanted, 4, vrampool_backend::Placement::Device.into()).expect("they go together");
        let pool = Pool::builder(&HostDevice::new()).size_classes(SizeClasses::Multiple(1)).build();
        let rounding = Rounding::new(&pool.expect("a pool"), 1);
        let demand = Demand { arrays: &arrays, rounding };
        assert_eq!((demand.chunkable(), demand.unchunkable(1)), (96, 96));
        // Scratch that is not cut exists once per stream.
        assert_eq!((demand.unchunkable(3), demand.held(2, 3)), (288, 3 * (48 + 96)));
    }

    /// Only the axis of the runs becomes shorter.
    #[test]
    fn test_replace_with_chunked_size() {
        let layout = request(&[3, 100, 5]).chunk_axis(1).layout(100).expect("it fits the batch");
        assert_eq!((layout.rows, layout.run_bytes, layout.bytes()), (3, 20, 6000));
        assert_eq!((layout.chunk_bytes(25), layout.row_bytes(25)), (1500, 500));
        assert_eq!(layout.row_start(2, 25), (2 * 100 + 25) * 20);
        let whole = request(&[3, 100, 5]).unchunkable().layout(100).expect("it fits any batch");
        assert_eq!((whole.bytes(), whole.chunk_bytes(25)), (6000, 6000));
    }

    #[test]
    fn requests_that_cannot_be_are_refused() {
        assert!(request(&[0]).check().is_err());
        assert!(request(&[u64::MAX, 2]).check().is_err());
        assert!(ArrayRequest::scratch("x", [4], 0).check().is_err());
        assert!(request(&[4]).total_runs(0).check().is_err());
        assert!(request(&[4]).layout(5).is_err());
        assert!(request(&[4]).check().is_ok());
    }
}
