//! Waits on the host for the streams that used free memory, so that a captured stream can use it.

use crate::error::Error;
use crate::heap::arena::DeviceArena;
use crate::streams::Streams;
use vrampool_backend::{Backend, Stream, fork};

impl<B: Backend> DeviceArena<B> {
    /// Waits on the host until `stream` can use free memory without a wait on the device.
    ///
    /// It waits for the pending work of all streams that used free memory, except captured ones. Use it for a
    /// capture whose requests are refused because of such streams. Memory that another captured stream used
    /// belongs to its graph, and stays refused.
    ///
    /// # Errors
    /// [`Error::WrongDevice`]; [`Error::Backend`] if the device fails, and then no wait is recorded.
    pub fn synchronize_freed(&self, stream: &B::Stream) -> Result<(), Error> {
        fork::check()?;
        let core = &self.core;
        core.check_device(stream)?;
        let mut state = core.state.lock();
        // Later frees belong to another tick, and are not waited for.
        let (users, tick) =
            (state.users_of_free(|user, _| user.id() != stream.id()), state.uses.ticks.begin());
        drop(state);
        let mut waited: Streams<B::Stream> = Streams::new();
        for user in users {
            if !core.device.is_capturing(&user)? {
                core.device.synchronize(&user)?;
                waited.push(user);
            }
        }
        let mut state = core.state.lock();
        waited.iter().for_each(|user| state.uses.ticks.waited(user.id(), stream.id(), tick));
        drop(state);
        Ok(())
    }
}
