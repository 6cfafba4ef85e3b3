//! What a stream that is captured into a graph must not be made to do, and is asked of it only where that could be: never on
//! a hit.

use crate::error::{Error, Forbidden};
use vrampool_backend::Backend;

/// For what something is needed that a capture forbids.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    pub(crate) requested: u64,
    pub(crate) class: u64,
}

/// What a stream waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// Contents that another stream wrote: there are none if its work failed.
    Contents,
    /// The end of others' work, to reuse the memory: work that failed is over.
    Work,
}

impl After {
    /// The outcome of a wait.
    pub(crate) fn judge<T: Default>(self, outcome: Result<T, Error>) -> Result<T, Error> {
        match outcome {
            Err(error) if self == Self::Work && error.is_stream_failed() && !error.is_device_lost() => {
                Ok(T::default())
            }
            outcome => outcome,
        }
    }
}

impl Need {
    pub(crate) fn refused(self, forbidden: Forbidden) -> Error {
        let Self { requested, class } = self;
        Error::Capture { requested, class, forbidden }
    }

    /// # Errors
    /// [`Error::Capture`] while `stream` is captured.
    pub(crate) fn check<B: Backend>(
        self,
        device: &B,
        stream: &B::Stream,
        forbidden: Forbidden,
    ) -> Result<(), Error> {
        if device.is_capturing(stream)? { Err(self.refused(forbidden)) } else { Ok(()) }
    }

    /// Makes later work on `to` wait for the work so far on `from`. Streams of a capture can wait for each other, and so can all
    /// others. But a capture cannot wait for work that is done once, and who waits for a capture becomes a part of it. Answers
    /// whether it is no capture: what is ordered in one is not in the streams.
    ///
    /// # Errors
    /// [`Error::Capture`] when one of the two is captured; what the device reports.
    pub(crate) fn order<B: Backend>(
        self,
        device: &B,
        from: &B::Stream,
        to: &B::Stream,
    ) -> Result<bool, Error> {
        self.order_behind(device, from, None, to)
    }

    /// As [`order`](Self::order), where there is an event of enough of the work on `from`, from when that was not captured: `to` then
    /// waits for no more than that, and whether `from` is captured by now does not matter.
    ///
    /// # Errors
    /// As [`order`](Self::order).
    pub(crate) fn order_behind<B: Backend>(
        self,
        device: &B,
        from: &B::Stream,
        point: Option<&B::Event>,
        to: &B::Stream,
    ) -> Result<bool, Error> {
        let is_captured = device.is_capturing(to)?;
        // A captured one is not to wait for what was recorded outside.
        if let Some(point) = point
            && !is_captured
        {
            device.wait(to, point)?;
            return Ok(true);
        }
        if is_captured != device.is_capturing(from)? {
            return Err(self.refused(Forbidden::Wait));
        }
        device.wait(to, &device.record(from)?)?;
        Ok(!is_captured)
    }
}
