//! Order between streams, and operations that are forbidden on a captured stream.
//!
//! Whether a stream is captured is queried only before such an operation, never on a hit.

use crate::error::{Error, Forbidden};
use smallvec::SmallVec;
use vrampool_backend::{Backend, Capabilities, CaptureId, Event, Stream};

/// The request for which an operation is needed that a capture forbids.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Need {
    pub(crate) requested: u64,
    pub(crate) class: u64,
}

/// The point that a stream waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitFor {
    /// Data that another stream wrote, which is invalid if its work failed.
    Data,
    /// The end of other streams' work, to reuse the memory; failed work has ended.
    Reuse,
}

impl WaitFor {
    /// Returns the outcome of a wait, in which a failed stream counts as done with `Reuse`.
    pub(crate) fn judge<T: Default>(self, outcome: Result<T, Error>) -> Result<T, Error> {
        match outcome {
            Err(error) if self == Self::Reuse && error.is_stream_failed() && !error.is_device_lost() => {
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
    /// refusal makes no calls with lasting effect. With [`WaitFor::Reuse`], failed streams are not waited for.
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
        until: WaitFor,
    ) -> Result<(u64, Option<CaptureId>), Error> {
        let users = users.filter(|user| user.id() != to.id());
        let (capture, mut waits) = (device.capture_of(to)?, 0);
        for user in users.clone() {
            if capture != device.capture_of(user)? {
                return Err(self.refused(Forbidden::Wait));
            }
        }
        for user in users {
            waits += until.judge(wait_for(device, user, None, to))?;
        }
        Ok((waits, capture.filter(|_| waits > 0)))
    }

    /// Orders `to`, which is about to get memory, after the `users` of that memory.
    ///
    /// It waits for a marker of a user if one is given, recorded while the user was not captured, else for the
    /// user's work so far. Complete work needs neither a wait nor an event. A captured stream cannot wait: its
    /// graph might be launched elsewhere before that work. It therefore gets only memory whose users are known
    /// to be complete. Failed streams are not waited for. A refusal makes no calls with lasting effect. Returns
    /// the number of waits.
    ///
    /// # Errors
    /// [`Error::Capture`] when `to` is captured and a user is not known to be complete, or a user without a
    /// marker is captured; errors of the device.
    pub(crate) fn take_over<'a, B: Backend>(
        self,
        device: &B,
        users: impl Iterator<Item = (&'a B::Stream, Option<&'a B::Event>)>,
        to: &B::Stream,
    ) -> Result<u64, Error> {
        let is_captured = device.is_capturing(to)?;
        // Asking may submit open work early, and is useless if streams never run concurrently.
        let asks = is_captured || device.properties().capabilities.contains(Capabilities::CONCURRENT_STREAMS);
        let mut open = SmallVec::<[_; 2]>::new();
        for (from, marker) in users {
            let is_complete = match marker {
                _ if !asks => false,
                Some(marker) => marker.is_complete().unwrap_or(false),
                None => device.is_idle(from).unwrap_or(false),
            };
            if is_complete {
                continue;
            }
            if is_captured || marker.is_none() && device.is_capturing(from)? {
                return Err(self.refused(Forbidden::Wait));
            }
            open.push((from, marker));
        }
        let mut waits = 0;
        for (from, marker) in open {
            waits += WaitFor::Reuse.judge(wait_for(device, from, marker, to))?;
        }
        Ok(waits)
    }
}

/// Makes `to` wait for `marker`, or for all work on `from` so far. Returns the number of waits.
fn wait_for<B: Backend>(
    device: &B,
    from: &B::Stream,
    marker: Option<&B::Event>,
    to: &B::Stream,
) -> Result<u64, Error> {
    match marker {
        Some(marker) => device.wait(to, marker)?,
        None => device.wait(to, &device.record(from)?)?,
    }
    Ok(1)
}
