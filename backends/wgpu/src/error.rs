//! Conversion of errors from wgpu error scopes to errors of the contract.

use crate::deferred::DeferredErrors;
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use vrampool_backend::BackendError;

/// Runs `calls` with a scope for each kind of error, so that no error reaches the device's own handler,
/// which panics by default. Scopes belong to a thread: other threads' errors do not get in. In a browser, errors
/// are known [later](DeferredErrors).
pub(crate) fn caught<T>(
    device: &wgpu::Device,
    deferred: &DeferredErrors,
    call: &'static str,
    calls: impl FnOnce() -> T,
) -> Result<T, BackendError> {
    let filters =
        [wgpu::ErrorFilter::OutOfMemory, wgpu::ErrorFilter::Validation, wgpu::ErrorFilter::Internal];
    let scopes = filters.map(|filter| device.push_error_scope(filter));
    let answer = calls();
    // Innermost first, as they nest; every one is popped.
    let mut scopes = scopes.into_iter().rev();
    if cfg!(target_arch = "wasm32") {
        scopes.for_each(|scope| {
            let known = scope.pop();
            deferred.push(async move { known.await.map(|error| from_wgpu(call, &error)) });
        });
        return Ok(answer);
    }
    let mut errors: [_; 3] = std::array::from_fn(|_| now(scopes.next()?.pop()).flatten());
    // A lack of memory makes further calls of the same operation fail with other errors.
    errors.sort_by_key(|error| !matches!(error, Some(wgpu::Error::OutOfMemory { .. })));
    match errors.into_iter().flatten().next() {
        None => Ok(answer),
        Some(error) => Err(from_wgpu(call, &error)),
    }
}

/// Returns the value of a future of wgpu's. Outside a browser all are ready at once, in a browser none is.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

/// wgpu has texts and no numbers: 1 is its validation, 2 an internal error.
fn from_wgpu(call: &'static str, error: &wgpu::Error) -> BackendError {
    match error {
        wgpu::Error::OutOfMemory { .. } => BackendError::out_of_memory(0, None),
        wgpu::Error::Validation { description, .. } => {
            BackendError::driver(call, VALIDATION, description.clone())
        }
        wgpu::Error::Internal { description, .. } => BackendError::driver(call, 2, description.clone()),
    }
}

const VALIDATION: i64 = 1;

/// The same error, as one of `argument` if wgpu's validation refused it.
pub(crate) fn blame(argument: &'static str, error: BackendError) -> BackendError {
    match error {
        BackendError::Driver { code: VALIDATION, message, .. } => BackendError::invalid(argument, message),
        other => other,
    }
}
