//! Errors that a browser reports after the call: its error scopes are promises.
//!
//! Elsewhere a scope is known when it is popped, and this list stays empty.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use vrampool_backend::BackendError;

/// The error that a scope caught, as soon as it is known.
type Scope = Pin<Box<dyn Future<Output = Option<BackendError>> + Send>>;

/// Scopes that are popped and not known yet, and the first error of those that are.
#[derive(Default)]
pub(crate) struct DeferredErrors(Mutex<State>);

#[derive(Default)]
struct State {
    scopes: VecDeque<Scope>,
    error: Option<BackendError>,
}

impl DeferredErrors {
    pub(crate) fn push(&self, scope: impl Future<Output = Option<BackendError>> + Send + 'static) {
        let mut state = self.0.lock();
        // The first results are usually known by now: the list stays short without a wait.
        let _ = state.poll(&mut Context::from_waker(Waker::noop()));
        state.scopes.push_back(Box::pin(scope));
    }

    /// The first error, reported once, when all scopes are known.
    pub(crate) fn poll(&self, context: &mut Context<'_>) -> Poll<Result<(), BackendError>> {
        let mut state = self.0.lock();
        state.poll(context).map(|()| state.error.take().map_or(Ok(()), Err))
    }
}

impl State {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while let Some(scope) = self.scopes.front_mut() {
            let Poll::Ready(error) = scope.as_mut().poll(context) else { return Poll::Pending };
            self.scopes.pop_front();
            // A lack of memory fails later calls in other ways.
            let is_first = self.error.as_ref().is_none_or(|first| !first.is_out_of_memory());
            match error {
                Some(error) if self.error.is_none() || (is_first && error.is_out_of_memory()) => {
                    self.error = Some(error);
                }
                _ => {}
            }
        }
        Poll::Ready(())
    }
}

impl fmt::Debug for DeferredErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.lock();
        f.debug_struct("DeferredErrors")
            .field("scopes", &state.scopes.len())
            .field("error", &state.error)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::ready;

    fn refused(call: &'static str) -> Option<BackendError> {
        Some(BackendError::driver(call, 1, "refused".to_owned()))
    }

    fn poll(deferred: &DeferredErrors) -> Poll<Result<(), BackendError>> {
        deferred.poll(&mut Context::from_waker(Waker::noop()))
    }

    #[test]
    fn the_first_error_is_reported_once_and_a_lack_of_memory_before_others() {
        let deferred = DeferredErrors::default();
        deferred.push(ready(None));
        assert_eq!(poll(&deferred), Poll::Ready(Ok(())));
        deferred.push(ready(refused("b")));
        deferred.push(ready(Some(BackendError::out_of_memory(0, None))));
        deferred.push(ready(refused("d")));
        assert!(matches!(poll(&deferred), Poll::Ready(Err(error)) if error.is_out_of_memory()));
        assert_eq!(poll(&deferred), Poll::Ready(Ok(())));
        deferred.push(ready(refused("e")));
        deferred.push(ready(refused("f")));
        assert!(
            matches!(poll(&deferred), Poll::Ready(Err(BackendError::Driver { call, .. })) if call == "e")
        );
    }

    #[test]
    fn nothing_is_reported_before_all_is_known() {
        let deferred = DeferredErrors::default();
        deferred.push(ready(refused("a")));
        deferred.push(std::future::pending());
        assert_eq!(poll(&deferred), Poll::Pending);
    }
}
