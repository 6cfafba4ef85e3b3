//! Publishing again and again, to the application's recorder.

use super::owner::Owner;
use super::published::{Keep, Published};
use super::{METRICS, describe, record};
use crate::error::Error;
use std::mem;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use vrampool_backend::fork;
use vrampool_backend::spi::start_thread;

/// Publishes pools and other owners to the application's own recorder every so often, until it is dropped. Does
/// not keep them alive: one that is dropped is published once more, as holding nothing. Its counts are
/// remembered (of the last thousand names or so), since a recorder's counters never fall: the next of its
/// name counts on from there.
///
/// ```
/// # use std::time::Duration;
/// # use vrampool::{Pool, host::HostDevice, telemetry::Publisher};
/// # let pool = Pool::builder(&HostDevice::new()).build()?;
/// // After the application has installed its recorder:
/// let publisher = Publisher::start(Duration::from_secs(5))?;
/// publisher.add(&pool)?;
/// # Ok::<(), vrampool::Error>(())
/// ```
#[derive(Debug)]
#[must_use = "it publishes until it is dropped"]
pub struct Publisher {
    published: Published,
    /// Dropped to stop the thread.
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// A recorder's counter never falls, so the next owner of a series has to count on where the last one ended. Of
/// what is forgotten, a counter goes on once it has caught up.
const KEEP: Keep = Keep { times: 1, most: 1024 };

impl Publisher {
    /// Starts publishing at every `interval`.
    ///
    /// # Errors
    /// [`Error::Configuration`] for an interval of nothing, or when the system has no thread for it.
    pub fn start(interval: Duration) -> Result<Self, Error> {
        let failed = |reason: String| Error::configuration("interval", format!("{interval:?}"), reason);
        if interval.is_zero() {
            return Err(failed("it would publish without a pause; choose seconds".into()));
        }
        let (published, (stop, stopped)) = (Published::new(KEEP), channel());
        let publishing = published.clone();
        let publish = move || {
            describe(&METRICS);
            publishing.publish(&mut record);
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                publishing.publish(&mut record);
            }
            publishing.publish(&mut record);
        };
        let thread = thread::Builder::new().name("vrampool metrics".into());
        let thread = start_thread(|| thread.spawn(publish));
        let thread = thread.map_err(|error| failed(format!("no thread to publish from: {error}")))?;
        Ok(Self { published, stop: Some(stop), thread: Some(thread) })
    }

    /// Publishes a pool, or another owner, from now on. While another one of the same kind, name, backend and device
    /// is published, this one has the label `NAME#2`, and so on. The metrics of pools are described; for those of
    /// other owners call [`describe`].
    ///
    /// # Errors
    /// [`Error::Configuration`] if it is published already.
    pub fn add(&self, owner: &impl Owner) -> Result<(), Error> {
        self.published.add(owner)
    }

    /// Publishes all of them at once, to the current recorder, without waiting for the next time.
    /// One publisher does so at a time; the recorder must neither publish nor add during the call.
    pub fn publish(&self) {
        self.published.publish(&mut record);
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        if fork::is_forked() {
            // Its thread is not here, and may have held its locks.
            return mem::forget((self.stop.take(), self.thread.take()));
        }
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It ends after one more round; a panic in a recorder is the recorder's.
            let _ = thread.join();
        }
    }
}
