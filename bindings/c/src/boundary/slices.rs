//! Pointers of C's to as many values as another argument says.

use super::Text;
use crate::failure::Failure;
use std::marker::PhantomData;
use std::ptr;

const INVALID_SLICE: &str = "it is null, or the number of elements exceeds the address space";

/// Values of C's: a `const T *`, as many as another argument says.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Values<'a, T> {
    first: *const T,
    of: PhantomData<&'a [T]>,
}

/// Texts of C's: a `const char *const *`.
pub type Texts<'a> = Values<'a, Text<'a>>;
/// Bytes of C's: a `const void *`.
pub type Bytes<'a> = Values<'a, u8>;
/// Numbers of C's: a `const uint64_t *`.
pub type Numbers<'a> = Values<'a, u64>;

impl<'a, T> Values<'a, T> {
    /// None.
    #[must_use]
    pub fn null() -> Self {
        Self { first: ptr::null(), of: PhantomData }
    }

    /// Those of a slice; pass its length too.
    #[must_use]
    pub fn of(values: &'a [T]) -> Self {
        Self { first: values.as_ptr(), of: PhantomData }
    }

    pub(crate) fn is_null(&self) -> bool {
        self.first.is_null()
    }

    pub(crate) fn read(self, count: usize, argument: &str) -> Result<&'a [T], Failure> {
        if count == 0 {
            return Ok(&[]);
        }
        if self.first.is_null() || count > isize::MAX as usize / size_of::<T>() {
            return Err(Failure::invalid(argument, INVALID_SLICE));
        }
        // SAFETY: made of a slice whose length was passed, or C's promise: so many aligned values, which stay as they
        // are during the call. A `Text` is as wide as the pointer it is.
        Ok(unsafe { std::slice::from_raw_parts(self.first, count) })
    }
}

impl<'a> Texts<'a> {
    pub(crate) fn texts(self, count: usize, argument: &str) -> Result<Vec<&'a str>, Failure> {
        self.read(count, argument)?.iter().map(|text| text.required(argument)).collect()
    }
}

/// Memory of C's that bytes are copied to: a `void *`, as large as another argument says.
#[derive(Debug)]
#[repr(transparent)]
pub struct BytesOut<'a> {
    first: *mut u8,
    of: PhantomData<&'a mut [u8]>,
}

impl<'a> BytesOut<'a> {
    /// That of a slice; pass its length too.
    #[must_use]
    pub fn of(bytes: &'a mut [u8]) -> Self {
        Self { first: bytes.as_mut_ptr(), of: PhantomData }
    }

    pub(crate) fn get(self, count: usize, argument: &str) -> Result<&'a mut [u8], Failure> {
        if count == 0 {
            return Ok(&mut []);
        }
        if self.first.is_null() || isize::try_from(count).is_err() {
            return Err(Failure::invalid(argument, "it is null, or its size exceeds the address space"));
        }
        // SAFETY: made of a slice whose length was passed, or C's promise: memory for so many bytes, which no other
        // code uses during the call. Bytes of C's that were never written are not read here.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.first, count) })
    }
}
