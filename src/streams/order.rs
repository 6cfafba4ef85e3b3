//! Order between streams, and operations that are forbidden on a captured stream.
//!
//! Whether a stream is captured is queried only before such an operation, never on a hit.

use crate::error::{Error, Forbidden};
use vrampool_backend::{Backend, CaptureId, Event, Stream};

/// The request for which an operation is needed that a capture forbids.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    pub(crate) requested: u64,
    pub(crate) class: u64,
}

/// The point that a stream waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum After {
    /// Contents that another stream wrote; they are invalid if its work failed.
    Contents,
    /// The end of other streams' work, to reuse the memory; failed work has ended.
    Work,
}

impl After {
    /// Returns the outcome of a wait, in which a failed stream counts as done with `Work`.
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
        Error::Capture { requested_bytes: requested, class_bytes: class, forbidden }
    }

    /// Checks that `stream` is not captured.
    ///
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

    /// Makes later work on `to` wait for the earlier work on each other stream among `users`.
    ///
    /// Streams of one capture can wait for each other, and so can streams that are not captured. A capture
    /// cannot wait for work that is done once, and a stream that waits for a capture becomes part of it. A
    /// refusal makes no calls with lasting effect. With [`After::Work`], failed streams are not waited for.
    ///
    /// Returns the number of waits, and the capture in which alone the order holds, if the streams are
    /// captured.
    ///
    /// # Errors
    /// [`Error::Capture`] unless all are of one capture, or of none; errors of the device.
    pub(crate) fn order<'a, B: Backend>(
        self,
        device: &B,
        users: impl Iterator<Item = &'a B::Stream> + Clone,
        to: &B::Stream,
        after: After,
    ) -> Result<(u64, Option<CaptureId>), Error> {
        let users = users.filter(|user| user.id() != to.id());
        let (capture, mut waits) = (device.capture_of(to)?, 0);
        for user in users.clone() {
            if capture != device.capture_of(user)? {
                return Err(self.refused(Forbidden::Wait));
            }
        }
        for user in users {
            waits += after.judge(wait_for(device, user, None, to))?;
        }
        Ok((waits, capture.filter(|_| waits > 0)))
    }

    /// Orders `to`, which is about to get memory, after the `users` of that memory.
    ///
    /// It waits for a point in a user's work if one is given, recorded while the user was not captured. A
    /// captured stream cannot wait: its graph might be launched elsewhere before that work. It therefore gets
    /// only memory whose users are known to be complete. Failed streams are not waited for. A refusal makes
    /// no calls with lasting effect. Returns the number of waits.
    ///
    /// # Errors
    /// [`Error::Capture`] when `to` is captured and a user is not known to be complete, or a user without a
    /// point is captured; errors of the device.
    pub(crate) fn take_over<'a, B: Backend>(
        self,
        device: &B,
        users: impl Iterator<Item = (&'a B::Stream, Option<&'a B::Event>)> + Clone,
        to: &B::Stream,
    ) -> Result<u64, Error> {
        let is_captured = device.is_capturing(to)?;
        for (from, point) in users.clone() {
            let serves = match point {
                Some(point) => !is_captured || point.is_complete()?,
                None => !is_captured && !device.is_capturing(from)?,
            };
            if !serves {
                return Err(self.refused(Forbidden::Wait));
            }
        }
        if is_captured {
            return Ok(0);
        }
        let mut waits = 0;
        for (from, point) in users {
            waits += After::Work.judge(wait_for(device, from, point, to))?;
        }
        Ok(waits)
    }
}

/// Makes `to` wait for `point`, or for all work on `from` so far. Returns the number of waits.
fn wait_for<B: Backend>(
    device: &B,
    from: &B::Stream,
    point: Option<&B::Event>,
    to: &B::Stream,
) -> Result<u64, Error> {
    match point {
        Some(point) => device.wait(to, point)?,
        None => device.wait(to, &device.record(from)?)?,
    }
    Ok(1)
}
