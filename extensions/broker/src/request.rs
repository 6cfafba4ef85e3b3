//! Requests of a client: arrays, some of which may be cut along an axis.

use crate::error::BrokerError;
use crate::id::ArrayId;

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
/// let table = ArrayRequest::input("coefficients", [64], 8).chunk_axis(None);
/// assert_eq!(table.bytes(), Some(512));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct ArrayRequest {
    pub(crate) label: String,
    shape: Vec<u64>,
    element_bytes: u64,
    chunk_axis: Option<usize>,
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
            chunk_axis: Some(0),
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

    /// Sets the axis of runs, along which it may be cut. Default: 0, the slowest. (CuBIE's is 2.)
    ///
    /// With `None`, or one element along the axis, each chunk needs all of it. An input is then on the device once for
    /// all streams, and read-only. Scratch exists once per stream. An array that is copied back restricts the run to
    /// one stream.
    pub fn chunk_axis(mut self, axis: impl Into<Option<usize>>) -> Self {
        self.chunk_axis = axis.into();
        self
    }

    /// Returns its size in bytes; `None` above 2⁶⁴.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        self.shape.iter().try_fold(self.element_bytes, |bytes, &extent| bytes.checked_mul(extent))
    }

    /// Returns the axis along which it is cut.
    fn cut_axis(&self) -> Option<usize> {
        self.chunk_axis.filter(|&axis| self.shape.get(axis).is_some_and(|&extent| extent != 1))
    }

    /// Returns the runs of the batch that it specifies, or 1.
    pub(crate) fn runs(&self) -> u64 {
        self.cut_axis().map_or(1, |axis| self.shape[axis])
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
        Ok(())
    }

    /// Returns the layout of the array when it is cut along a batch of `runs`.
    pub(crate) fn layout(&self, runs: u64) -> Result<ChunkLayout, BrokerError> {
        let bytes = self.bytes().unwrap_or(u64::MAX);
        let Some(axis) = self.cut_axis() else {
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
            assert_eq!(request(shape).chunk_axis(axis).cut_axis().is_some(), wanted, "{shape:?}, {axis:?}");
        }
    }

    /// Bytes of arrays that are cut, and of others, separately.
    #[test]
    fn test_get_portioned_request_size() {
        use crate::footprint::Demand;
        use crate::handle::Broker;
        use crate::id::ClientId;
        use crate::partition::Footprint;
        use crate::plan_array::arrays;
        use vrampool::Pool;
        use vrampool::host::HostDevice;
        let queued = |id, request: ArrayRequest| Queued { id: ArrayId(id), request };
        let cut = request(&[2, 3, 4]).chunk_axis(2);
        let wanted = [(ClientId(1), vec![queued(1, cut), queued(2, request(&[2, 3, 4]).chunk_axis(None))])];
        let arrays = arrays(&wanted, 4).expect("they go together");
        let pool = Pool::new(&HostDevice::new()).expect("a pool");
        let broker = Broker::builder(&pool).granularity(1 << 10).build().expect("a broker");
        let demand = Demand { core: &broker.core, arrays: &arrays };
        assert_eq!((demand.chunkable(), demand.unchunkable()), (96, 96));
        // Scratch that is not cut exists once per stream.
        assert_eq!((demand.held(2, 1), demand.held(2, 3)), (2 << 10, 3 * (2 << 10)));
    }

    /// Only the axis of the runs becomes shorter.
    #[test]
    fn test_replace_with_chunked_size() {
        let layout = request(&[3, 100, 5]).chunk_axis(1).layout(100).expect("it fits the batch");
        assert_eq!((layout.rows, layout.run_bytes, layout.bytes()), (3, 20, 6000));
        assert_eq!((layout.chunk_bytes(25), layout.row_bytes(25)), (1500, 500));
        assert_eq!(layout.row_start(2, 25), (2 * 100 + 25) * 20);
        let whole = request(&[3, 100, 5]).chunk_axis(None).layout(100).expect("it fits any batch");
        assert_eq!((whole.bytes(), whole.chunk_bytes(25)), (6000, 6000));
    }

    #[test]
    fn requests_that_cannot_be_are_refused() {
        assert!(request(&[0]).check().is_err());
        assert!(request(&[u64::MAX, 2]).check().is_err());
        assert!(ArrayRequest::scratch("x", [4], 0).check().is_err());
        assert!(request(&[4]).layout(5).is_err());
        assert!(request(&[4]).check().is_ok());
    }
}
