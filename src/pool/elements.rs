//! Buffers of typed elements.

use crate::error::Error;
use crate::pool::Pool;
use crate::pool::buffer::Buffer;
use std::any::type_name;
use vrampool_backend::spi::reserve;
use vrampool_backend::{Backend, BackendError};

/// A type whose values are plain bytes: a number, an array of them, and every type that is
/// [`bytemuck::Pod`].
///
/// ```
/// # use vrampool::{Backend, Pool, Buffer, Element, Error, host::HostDevice};
/// # let device = HostDevice::new();
/// # let stream = device.create_stream()?;
/// # let pool = Pool::new(&device)?;
/// fn twice<B, T>(pool: &Pool<B>, value: T, stream: &B::Stream) -> Result<Buffer<B>, Error>
/// where
///     B: Backend,
///     T: Element,
/// {
///     pool.upload(&[value, value], stream)
/// }
/// assert_eq!(twice(&pool, 2.5f32, &stream)?.read_vec::<f32>(&stream)?, [2.5, 2.5]);
/// # Ok::<(), vrampool::Error>(())
/// ```
pub trait Element: bytemuck::Pod {
    #[doc(hidden)]
    fn bytes(elements: &[Self]) -> &[u8] {
        // Elements without bytes have none.
        bytemuck::try_cast_slice(elements).unwrap_or_default()
    }

    #[doc(hidden)]
    #[must_use]
    fn of_bytes(bytes: &[u8]) -> Option<&[Self]> {
        bytemuck::try_cast_slice(bytes).ok()
    }

    #[doc(hidden)]
    fn bytes_mut(elements: &mut [Self]) -> &mut [u8] {
        bytemuck::try_cast_slice_mut(elements).unwrap_or_default()
    }
}

impl<T: bytemuck::Pod> Element for T {}

impl<B: Backend> Pool<B> {
    /// A buffer for `count` elements of `T`; else as [`allocate`](Self::allocate).
    ///
    /// ```
    /// # use vrampool::{Backend, Pool, host::HostDevice};
    /// # let device = HostDevice::new();
    /// # let stream = device.create_stream()?;
    /// # let pool = Pool::new(&device)?;
    /// let weights = pool.allocate_elements::<f32>(1000, &stream)?;
    /// assert_eq!(weights.len(), 4000);
    /// # Ok::<(), vrampool::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate); [`Error::TooLarge`] for a size that overflows.
    #[track_caller]
    pub fn allocate_elements<T>(&self, count: u64, stream: &B::Stream) -> Result<Buffer<B>, Error> {
        // More than any device has, if it overflows.
        self.allocate(count.saturating_mul(size_of::<T>() as u64), stream)
    }

    /// A buffer with a copy of `elements`, written in order on `stream`; else as
    /// [`allocate`](Self::allocate).
    ///
    /// # Errors
    /// As [`allocate`](Self::allocate) and [`Buffer::write`].
    #[track_caller]
    pub fn upload<T: Element>(&self, elements: &[T], stream: &B::Stream) -> Result<Buffer<B>, Error> {
        let bytes = T::bytes(elements);
        let mut buffer = self.allocate(bytes.len() as u64, stream)?;
        buffer.write(bytes, stream)?;
        Ok(buffer)
    }
}

impl<B: Backend> Buffer<B> {
    /// Copies the buffer to the host as elements of `T`; else as [`read`](Self::read).
    ///
    /// # Errors
    /// As [`read`](Self::read); [`Error::Backend`] when the bytes are not a whole number of elements, or the
    /// host has no memory for them.
    pub fn read_vec<T: Element>(&self, stream: &B::Stream) -> Result<Vec<T>, Error> {
        let size = size_of::<T>() as u64;
        let whole = self.len().checked_div(size).filter(|count| count * size == self.len());
        let Some(count) = whole.and_then(|count| usize::try_from(count).ok()) else {
            let reason = format!("{} bytes are not a whole number of {}", self.len(), type_name::<T>());
            return Err(BackendError::invalid("element type", reason).into());
        };
        let mut elements = Vec::new();
        reserve(&mut elements, count)?;
        elements.resize(count, T::zeroed());
        self.read(T::bytes_mut(&mut elements), stream)?;
        Ok(elements)
    }
}
