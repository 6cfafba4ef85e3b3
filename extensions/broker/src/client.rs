//! The settings of a client, and what it gets of a commit.

use crate::id::{ArrayId, DEFAULT_GROUP};
use crate::partition::Partition;
use crate::share::Share;
use std::fmt;
use std::sync::Arc;

pub(crate) type InvalidateHook = Arc<dyn Fn() + Send + Sync>;
pub(crate) type ReadyHook = Arc<dyn Fn(&Response) + Send + Sync>;

/// Settings of a client, for [`Broker::register`](crate::Broker::register).
#[derive(Clone)]
#[must_use]
pub struct Client {
    pub(crate) name: String,
    pub(crate) share: Share,
    pub(crate) group: String,
    pub(crate) on_invalidate: Option<InvalidateHook>,
    pub(crate) on_ready: Option<ReadyHook>,
}

impl Client {
    /// Creates settings with this name, for logs and metrics, an automatic share, and the default group.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            share: Share::Auto,
            group: DEFAULT_GROUP.into(),
            on_invalidate: None,
            on_ready: None,
        }
    }

    /// Sets the part of the device that it may hold. Default: [`Share::Auto`]. Any other share enables
    /// [`LimitMode::Active`](crate::LimitMode::Active).
    pub fn share(mut self, share: Share) -> Self {
        self.share = share;
        self
    }

    /// Sets the group that it commits with. Default: `default`.
    pub fn group(mut self, group: &str) -> Self {
        self.group = group_name(group);
        self
    }

    /// Sets a function that is called after its memory was evicted, by the thread of another client's commit.
    ///
    /// It may queue requests, but not commit. A plan reallocates memory by itself; the function is for other
    /// state of the client. A panic of it does not end that commit: it goes on in the next call for this client, or in
    /// the next commit or run of its group.
    pub fn on_invalidate(mut self, hook: impl Fn() + Send + Sync + 'static) -> Self {
        self.on_invalidate = Some(Arc::new(hook));
        self
    }

    /// Sets a function that is called with the result of each commit of its group, even without own requests.
    /// A panic of it goes on in that commit, after the other clients' functions were called.
    pub fn on_ready(mut self, hook: impl Fn(&Response) + Send + Sync + 'static) -> Self {
        self.on_ready = Some(Arc::new(hook));
        self
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("name", &self.name)
            .field("share", &self.share)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}

/// The part of a grant for one client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Response {
    /// The partition of the whole group.
    pub partition: Partition,
    /// Chunks that are on the device at a time, each on its own stream.
    pub streams: usize,
    /// Label and id of the client's arrays; empty if it requested none.
    pub arrays: Vec<(String, ArrayId)>,
}

/// Returns the group name, or the default.
pub(crate) fn group_name(name: &str) -> String {
    (if name.is_empty() { DEFAULT_GROUP } else { name }).to_owned()
}
