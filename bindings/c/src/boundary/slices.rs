//! Pointers of C's to as many values as another argument says.

use super::Text;
use crate::failure::Failure;
use std::marker::PhantomData;
use std::ptr;

/// Texts of C's: a `const char *const *`, as many as another argument says.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Texts<'a> {
    first: *const Text<'a>,
}

impl<'a> Texts<'a> {
    /// None.
    #[must_use]
    pub fn null() -> Self {
        Self { first: ptr::null() }
    }

    /// Those of a slice; pass its length too.
    #[must_use]
    pub fn of(texts: &'a [Text<'a>]) -> Self {
        Self { first: texts.as_ptr() }
    }

    pub(crate) fn is_null(self) -> bool {
        self.first.is_null()
    }

    pub(crate) fn read(self, count: usize, argument: &str) -> Result<Vec<&'a str>, Failure> {
        if count == 0 {
            return Ok(Vec::new());
        }
        if self.first.is_null() || count > isize::MAX as usize / size_of::<Text<'_>>() {
            return Err(Failure::invalid(
                argument,
                "it is null, or the number of elements exceeds the address space",
            ));
        }
        // SAFETY: made of a slice whose length was passed, or C's promise: so many pointers to text, which
        // `Text` is as wide as.
        let texts = unsafe { std::slice::from_raw_parts(self.first, count) };
        texts.iter().map(|text| text.required(argument)).collect()
    }
}

/// Bytes of C's: a `const void *`, as many as another argument says.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Bytes<'a> {
    first: *const u8,
    of: PhantomData<&'a [u8]>,
}

impl<'a> Bytes<'a> {
    /// Those of a slice; pass its length too.
    #[must_use]
    pub fn of(bytes: &'a [u8]) -> Self {
        Self { first: bytes.as_ptr(), of: PhantomData }
    }

    pub(crate) fn read(self, count: usize, argument: &str) -> Result<&'a [u8], Failure> {
        if count == 0 {
            return Ok(&[]);
        }
        if self.first.is_null() || isize::try_from(count).is_err() {
            return Err(Failure::invalid(
                argument,
                "it is null, or the number of elements exceeds the address space",
            ));
        }
        // SAFETY: made of a slice whose length was passed, or C's promise: so many bytes, which stay as they
        // are during the call.
        Ok(unsafe { std::slice::from_raw_parts(self.first, count) })
    }
}

/// Numbers of C's: a `const uint64_t *`, as many as another argument says.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Numbers<'a> {
    first: *const u64,
    of: PhantomData<&'a [u64]>,
}

impl<'a> Numbers<'a> {
    /// Those of a slice; pass its length too.
    #[must_use]
    pub fn of(numbers: &'a [u64]) -> Self {
        Self { first: numbers.as_ptr(), of: PhantomData }
    }

    pub(crate) fn read(self, count: usize, argument: &str) -> Result<&'a [u64], Failure> {
        if count == 0 {
            return Ok(&[]);
        }
        if self.first.is_null() || count > isize::MAX as usize / size_of::<u64>() {
            return Err(Failure::invalid(
                argument,
                "it is null, or the number of elements exceeds the address space",
            ));
        }
        // SAFETY: made of a slice whose length was passed, or C's promise: so many aligned numbers, which stay as
        // they are during the call.
        Ok(unsafe { std::slice::from_raw_parts(self.first, count) })
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
